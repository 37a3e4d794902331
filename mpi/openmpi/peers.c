/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Which peers the message plane reaches. Each process publishes its address on the plane; a peer is
   reachable if a connect to the peer's address, with the peer's random key, succeeds. An address
   alone would not do: two hosts without a common plane may have equal ones. */
#include "vicinity.h"

#include <arpa/inet.h>
#include <endian.h>

/* A connect that has not completed. */
typedef struct {
  size_t proc; /* index in the list of processes */
  mx_request_t request;
} connect_t;

int vicinity_publish(uint32_t key) {
  mx_endpoint_addr_t own;
  uint64_t nic;
  uint32_t id;
  int result;
  if (vicinity_mx.get_endpoint_addr(vicinity_module.endpoint, &own) != MX_SUCCESS ||
      vicinity_mx.decompose_endpoint_addr(own, &nic, &id) != MX_SUCCESS)
    return OPAL_ERROR;
  vicinity_card_t card = {
      .format = htonl(VICINITY_CARD_FORMAT),
      .endpoint = htonl(id),
      .nic = htobe64(nic),
      .key = htonl(key),
  };
  OPAL_MODEX_SEND(result, VICINITY_MODEX_SCOPE, &mca_btl_vicinity_component.super.btl_version, &card,
                  sizeof card);
  return result;
}

/* Whether Open MPI's own shared memory is in use, which has precedence inside a VM. */
static bool shared_memory_in_use(void) {
  mca_btl_base_selected_module_t *selected;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t) {
    const char *name = selected->btl_component->btl_version.mca_component_name;
    if (!strcmp(name, VICINITY_SHARED_MEMORY) &&
        selected->btl_module->btl_exclusivity > vicinity_module.super.btl_exclusivity)
      return true;
  }
  return false;
}

static void unreachable(struct opal_proc_t *proc, const char *reason) {
  VICINITY_EXPLAIN("%s cannot be reached by the message plane (%s); another BTL is used",
                   OPAL_NAME_PRINT(proc->proc_name), reason);
}

/* Returns whether a process has published a usable address. */
static bool read_card(struct opal_proc_t *proc, vicinity_card_t *card) {
  uint8_t *bytes = NULL;
  size_t size = 0;
  int result;
  OPAL_MODEX_RECV(result, &mca_btl_vicinity_component.super.btl_version, &proc->proc_name,
                  &bytes, &size);
  bool usable = result == OPAL_SUCCESS && bytes != NULL && size == sizeof *card;
  if (usable)
    memcpy(card, bytes, sizeof *card);
  free(bytes);
  return usable && card->format == htonl(VICINITY_CARD_FORMAT);
}

bool vicinity_published(struct opal_proc_t *proc) {
  vicinity_card_t card;
  return read_card(proc, &card);
}

/* Starts a connect to a process, if it has published a usable address. */
static bool start_connect(struct opal_proc_t *proc, mx_request_t *request) {
  vicinity_card_t card;
  if (!read_card(proc, &card)) {
    VICINITY_EXPLAIN("%s has no message plane; another BTL is used",
                     OPAL_NAME_PRINT(proc->proc_name));
    return false;
  }
  mx_return_t code =
      vicinity_mx.iconnect(vicinity_module.endpoint, be64toh(card.nic), ntohl(card.endpoint),
                           ntohl(card.key), 0, NULL, request);
  if (code != MX_SUCCESS)
    unreachable(proc, vicinity_mx.strerror(code));
  return code == MX_SUCCESS;
}

/* Waits until a connect completes or the time is over. Returns the peer, or NULL. */
static struct mca_btl_base_endpoint_t *finish_connect(struct opal_proc_t *proc,
                                                      mx_request_t *request, long long end) {
  mx_status_t status;
  uint32_t done = 0;
  long long left = end - vicinity_now();
  mx_return_t code = left > 0
                         ? vicinity_mx.wait(vicinity_module.endpoint, request, (uint32_t)left,
                                            &status, &done)
                         : vicinity_mx.test(vicinity_module.endpoint, request, &status, &done);
  if (code != MX_SUCCESS || !done || status.code != MX_STATUS_SUCCESS) {
    const char *reason = code != MX_SUCCESS ? vicinity_mx.strerror(code)
                         : done             ? vicinity_mx.strstatus(status.code)
                                            : "no answer";
    unreachable(proc, reason);
    if (code == MX_SUCCESS && !done)
      vicinity_mx.cancel(vicinity_module.endpoint, request, &done);
    return NULL;
  }
  struct mca_btl_base_endpoint_t *peer = calloc(1, sizeof *peer);
  if (peer != NULL) {
    peer->address = status.source;
    peer->proc = proc;
    if (!vicinity_watch(peer)) {
      unreachable(proc, "it ended");
      free(peer);
      return NULL;
    }
    VICINITY_EXPLAIN("%s is reached by the message plane", OPAL_NAME_PRINT(proc->proc_name));
  }
  return peer;
}

/* Whether a connect to this VM's ranks would take memory of the plane for nothing. They send through
   Open MPI's shared memory, but a window of MPI needs one component that reaches all its ranks. */
static bool local_peers_are_served(size_t count, struct opal_proc_t **procs) {
  for (size_t i = 0; i < count; i++)
    if (!OPAL_PROC_ON_LOCAL_NODE(procs[i]->proc_flags))
      return false;
  return shared_memory_in_use();
}

/* Returns this process as its own peer, or NULL. */
static struct mca_btl_base_endpoint_t *own_peer(void) {
  struct mca_btl_base_endpoint_t *peer = calloc(1, sizeof *peer);
  if (peer == NULL)
    return NULL;
  peer->proc = opal_proc_local_get();
  vicinity_mx.get_endpoint_addr(vicinity_module.endpoint, &peer->address);
  return peer;
}

int vicinity_add_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                       struct mca_btl_base_endpoint_t **peers, opal_bitmap_t *reachable) {
  (void)btl;
  connect_t *connects = calloc(count, sizeof *connects);
  if (connects == NULL)
    return OPAL_ERR_OUT_OF_RESOURCE;
  bool skip_local = local_peers_are_served(count, procs);
  size_t started = 0;
  for (size_t i = 0; i < count; i++) {
    peers[i] = NULL;
    connects[started].proc = i;
    if (procs[i] == opal_proc_local_get())
      peers[i] = own_peer();
    else if (!(skip_local && OPAL_PROC_ON_LOCAL_NODE(procs[i]->proc_flags)) &&
             start_connect(procs[i], &connects[started].request))
      started++;
  }
  /* All connects run at the same time, as the peers' do. */
  long long end = vicinity_now() + mca_btl_vicinity_component.connect_timeout;
  for (size_t i = 0; i < started; i++) {
    size_t proc = connects[i].proc;
    peers[proc] = finish_connect(procs[proc], &connects[i].request, end);
  }
  for (size_t i = 0; i < count; i++)
    if (peers[i] != NULL && reachable != NULL)
      opal_bitmap_set_bit(reachable, (int)i);
  /* Open MPI looks at this field after this call, and then calls the function in each turn of its progress
     (mca_bml_r2_register_progress), because this process is its own peer. A job whose ranks are reached by
     another BTL alone is to pay nothing for this one. */
  if (vicinity_module.peers > 0)
    mca_btl_vicinity_component.super.btl_progress = vicinity_progress;
  free(connects);
  return OPAL_SUCCESS;
}

/* Called when MPI ends. The link stays until the endpoint is closed, because the peer may still read
   what was sent, and so does the peer's structure, which the watch refers to. */
int vicinity_del_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                       struct mca_btl_base_endpoint_t **peers) {
  (void)btl, (void)procs;
  for (size_t i = 0; i < count; i++)
    peers[i] = NULL;
  return OPAL_SUCCESS;
}
