/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Which peers the message plane reaches. Each process publishes its address on the plane; a peer is
   reachable if a connect to the peer's address, with the peer's random key, succeeds. An address
   alone would not do: two hosts without a common plane may have equal ones. */
#include "plane.h"

#include <arpa/inet.h>
#include <endian.h>

/* Returns whether a process has published a usable address, and reads it. */
static bool read_card(struct opal_proc_t *proc, vicinity_card_t *card) {
  uint8_t *bytes = NULL;
  size_t size = 0;
  int result;
  OPAL_MODEX_RECV(result, vicinity_plane.component, &proc->proc_name, &bytes, &size);
  bool usable = result == OPAL_SUCCESS && bytes != NULL && size == sizeof *card;
  if (usable)
    memcpy(card, bytes, sizeof *card);
  free(bytes);
  return usable && card->format == htonl(VICINITY_CARD_FORMAT);
}

bool vicinity_read_member(struct opal_proc_t *proc, uint64_t *member) {
  vicinity_card_t card;
  bool usable = read_card(proc, &card);
  if (usable)
    *member = be64toh(card.nic);
  return usable;
}

/* Whether the message plane reaches a process less well than another network: only by the process of a daemon's uplink, to which
   ranks that poll leave little time. Datagrams between the two programs need no such process. Both ends know the same of each other, and so decide alike. */
static bool is_left_to_other_network(const vicinity_peer_t *peer) {
  bool needs_uplink = (vicinity_plane.flags | peer->flags) & VICINITY_NEEDS_UPLINK;
  return needs_uplink && peer->other_host && !peer->by_datagrams && vicinity_has_other_network();
}

/* Asks the library about a connected peer. */
static bool is_true(__typeof__(vicinity_mx.is_on_other_host) question, mx_endpoint_addr_t address) {
  uint32_t answer = 0;
  mx_return_t code = question(vicinity_plane.endpoint, address, &answer);
  return code == MX_SUCCESS && answer;
}

/* Starts a connect to a process, if it has published a usable address. */
static bool start_connect(struct opal_proc_t *proc, vicinity_peer_t *peer, mx_request_t *request) {
  vicinity_card_t card;
  if (!read_card(proc, &card)) {
    vicinity_unreachable(proc, "it has no message plane");
    return false;
  }
  peer->key = ntohl(card.key);
  peer->near = be64toh(card.nic) == vicinity_plane.nic;
  peer->flags = ntohl(card.flags);
  mx_return_t code = vicinity_mx.iconnect(vicinity_plane.endpoint, be64toh(card.nic), ntohl(card.endpoint),
                                          peer->key, 0, NULL, request);
  if (code != MX_SUCCESS)
    vicinity_unreachable(proc, vicinity_mx.strerror(code));
  return code == MX_SUCCESS;
}

/* Waits until a connect completes or the time is over. Returns whether it succeeded. */
static bool finish_connect(struct opal_proc_t *proc, vicinity_peer_t *peer, mx_request_t *request, long long end) {
  mx_status_t status;
  uint32_t done = 0;
  long long left = end - vicinity_now();
  mx_return_t code =
      left > 0 ? vicinity_mx.wait(vicinity_plane.endpoint, request, (uint32_t)left, &status, &done)
               : vicinity_mx.test(vicinity_plane.endpoint, request, &status, &done);
  if (code != MX_SUCCESS || !done || status.code != MX_STATUS_SUCCESS) {
    vicinity_unreachable(proc, code != MX_SUCCESS ? vicinity_mx.strerror(code)
                                     : done             ? vicinity_mx.strstatus(status.code)
                                                        : "no answer");
    if (code == MX_SUCCESS && !done)
      vicinity_mx.cancel(vicinity_plane.endpoint, request, &done);
    return false;
  }
  peer->other_host = is_true(vicinity_mx.is_on_other_host, status.source);
  peer->by_datagrams = is_true(vicinity_mx.is_reached_by_datagrams, status.source);
  /* The link stays: the peer may not have seen yet that it is connected. */
  if (is_left_to_other_network(peer)) {
    vicinity_unreachable(proc, "it is on another host, one of the two users has no `program-sockets`, and datagrams do not reach it");
    return false;
  }
  peer->address = status.source;
  if (!vicinity_watch(peer)) {
    vicinity_unreachable(proc, "it ended");
    return false;
  }
  VICINITY_EXPLAIN("%s is reached by the message plane", OPAL_NAME_PRINT(proc->proc_name));
  return true;
}

static void own_peer(vicinity_peer_t *peer) {
  peer->proc = opal_proc_local_get();
  peer->key = vicinity_plane.key;
  vicinity_mx.get_endpoint_addr(vicinity_plane.endpoint, &peer->address);
}

int vicinity_connect(size_t count, struct opal_proc_t **procs, vicinity_peer_t **peers, int milliseconds) {
  mx_request_t *requests = calloc(count, sizeof *requests);
  bool *started = calloc(count, sizeof *started);
  if (requests == NULL || started == NULL) {
    free(requests), free(started);
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  for (size_t i = 0; i < count; i++) {
    if (peers[i] != NULL && procs[i] == opal_proc_local_get())
      own_peer(peers[i]);
    else if (peers[i] != NULL)
      started[i] = start_connect(procs[i], peers[i], &requests[i]);
  }
  /* All connects run at the same time, as the peers' do. */
  long long end = vicinity_now() + milliseconds;
  for (size_t i = 0; i < count; i++)
    if (started[i] && finish_connect(procs[i], peers[i], &requests[i], end))
      peers[i]->proc = procs[i];
  free(requests), free(started);
  return OPAL_SUCCESS;
}
