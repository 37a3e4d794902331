/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The other processes, all of which the message plane must reach. */
#include "mtl.h"

#include "ompi/runtime/mpiruntime.h"
#include "opal/runtime/opal_progress.h"

void vicinity_unreachable(struct opal_proc_t *proc, const char *reason) {
  const char *host = opal_get_proc_hostname(proc);
  opal_output(0,
              "%s: rank %lu on %s is not reached by the message plane (%s). pml/cm has no other way between ranks: "
              "leave out `--mca pml cm`, and Open MPI uses another one for this rank.",
              vicinity_name, (unsigned long)proc->proc_name.vpid, host == NULL ? "?" : host, reason);
}

void vicinity_fail(struct opal_proc_t *proc, const char *reason) {
  char text[256];
  if (vicinity_plane.failed)
    return;
  vicinity_plane.failed = true;
  opal_output(0, "%s", vicinity_loss(proc, reason, text, sizeof text));
  ompi_mpi_abort(&ompi_mpi_comm_world.comm, 1);
}

/* Messages with data are told apart by the keys of their senders. */
static bool keys_differ(vicinity_peer_t **peers, size_t count) {
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < i; k++)
      if ((peers[i]->key ^ peers[k]->key) << 2 == 0)
        return false;
  return true;
}

int vicinity_mtl_add_procs(struct mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs) {
  struct opal_proc_t **wanted = calloc(count, sizeof *wanted);
  vicinity_peer_t **peers = calloc(count, sizeof *peers);
  bool *reached = calloc(count, sizeof *reached);
  int result = wanted == NULL || peers == NULL || reached == NULL ? OMPI_ERR_OUT_OF_RESOURCE : OMPI_SUCCESS;
  size_t connects = 0;
  for (size_t i = 0; i < count && result == OMPI_SUCCESS; i++) {
    if (procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] != NULL)
      continue;
    vicinity_peer_t *peer = calloc(1, sizeof *peer);
    procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] = peer;
    if (peer == NULL) {
      result = OMPI_ERR_OUT_OF_RESOURCE;
    } else if (&procs[i]->super == opal_proc_local_get()) {
      vicinity_own_peer(peer);
    } else {
      wanted[connects] = &procs[i]->super;
      peers[connects++] = peer;
    }
  }
  if (result == OMPI_SUCCESS)
    result = vicinity_connect(&mca_mtl_vicinity_component.mtl_version, connects, wanted, peers, reached,
                              vicinity_mtl.connect_timeout);
  for (size_t i = 0; i < connects && result == OMPI_SUCCESS; i++)
    if (!reached[i])
      result = OMPI_ERR_UNREACH;
  if (result == OMPI_SUCCESS && !keys_differ(peers, connects)) {
    opal_output(0, "%s: two ranks have chosen one random number. Start the job again.", vicinity_name);
    result = OMPI_ERR_UNREACH;
  }
  if (result == OMPI_SUCCESS)
    opal_progress_register(vicinity_progress); /* Later calls change nothing. */
  free(wanted), free(peers), free(reached);
  return result;
}

/* Called when MPI ends. The link stays until the endpoint is closed, because the peer may still read
   what was sent, and so does the peer's structure, which the watch refers to. */
int vicinity_mtl_del_procs(struct mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs) {
  for (size_t i = 0; i < count; i++)
    procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] = NULL;
  return OMPI_SUCCESS;
}
