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

/* Whether all are reached, and their keys, which tell their messages with data apart, differ. */
static bool all_reached(vicinity_peer_t **peers, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (peers[i] != NULL && peers[i]->proc == NULL)
      return false;
    for (size_t k = 0; peers[i] != NULL && k < i; k++)
      if (peers[k] != NULL && vicinity_data(peers[i]->key, 0) == vicinity_data(peers[k]->key, 0)) {
        opal_output(0, "%s: two ranks have chosen one random number. Start the job again.", vicinity_name);
        return false;
      }
  }
  return true;
}

int vicinity_mtl_add_procs(struct mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs) {
  struct opal_proc_t **wanted = calloc(count, sizeof *wanted);
  vicinity_peer_t **peers = calloc(count, sizeof *peers);
  int result = wanted == NULL || peers == NULL ? OMPI_ERR_OUT_OF_RESOURCE : OMPI_SUCCESS;
  for (size_t i = 0; i < count && result == OMPI_SUCCESS; i++) {
    wanted[i] = &procs[i]->super;
    if (procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] != NULL)
      continue;
    procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] = peers[i] = calloc(1, sizeof *peers[i]);
    if (peers[i] == NULL)
      result = OMPI_ERR_OUT_OF_RESOURCE;
  }
  if (result == OMPI_SUCCESS)
    result = vicinity_connect(&mca_mtl_vicinity_component.mtl_version, count, wanted, peers,
                              vicinity_mtl.connect_timeout);
  if (result == OMPI_SUCCESS && !all_reached(peers, count))
    result = OMPI_ERR_UNREACH;
  if (result == OMPI_SUCCESS)
    opal_progress_register(vicinity_progress); /* Later calls change nothing. */
  free(wanted), free(peers);
  return result;
}

/* Called when MPI ends. The link stays until the endpoint is closed, because the peer may still read
   what was sent, and so does the peer's structure, which the watch refers to. */
int vicinity_mtl_del_procs(struct mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs) {
  for (size_t i = 0; i < count; i++)
    procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] = NULL;
  return OMPI_SUCCESS;
}
