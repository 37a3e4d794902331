/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The other processes, all of which the message plane must reach. */
#include "pml.h"

#include "ompi/runtime/mpiruntime.h"

/* A PML has all processes of a job. */
bool vicinity_has_other_network(void) { return false; }

void vicinity_unreachable(struct opal_proc_t *proc, const char *reason) {
  const char *host = opal_get_proc_hostname(proc);
  opal_output(0,
              "%s: rank %lu on %s is not reached by the message plane (%s). This PML has no other way between ranks: "
              "leave out `--mca pml vicinity`, and Open MPI uses another one for this rank.",
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

/* Adds a peer, unless it is not reached. Keys differ, because they tell messages with data of different peers apart. */
static bool add(vicinity_peer_t *peer) {
  if (peer->proc == NULL)
    return false;
  for (const vicinity_peer_t *other = vicinity_pml.peers; other != NULL; other = other->next)
    if (vicinity_data(peer->key, 0) == vicinity_data(other->key, 0)) {
      opal_output(0, "%s: two ranks have chosen one random number. Start the job again.", vicinity_name);
      return false;
    }
  peer->self = peer->proc == opal_proc_local_get();
  peer->next = vicinity_pml.peers;
  vicinity_pml.peers = peer;
  return true;
}

static int add_all(size_t count, struct ompi_proc_t **procs, struct opal_proc_t **wanted, vicinity_peer_t **peers) {
  for (size_t i = 0; i < count; i++) {
    wanted[i] = &procs[i]->super;
    if (procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML] != NULL)
      continue;
    peers[i] = calloc(1, sizeof *peers[i]);
    if (peers[i] == NULL)
      return OMPI_ERR_OUT_OF_RESOURCE;
  }
  int result = vicinity_connect(count, wanted, peers, vicinity_pml.connect_timeout);
  for (size_t i = 0; i < count && result == OMPI_SUCCESS; i++) {
    if (peers[i] == NULL)
      continue;
    if (!add(peers[i]))
      result = OMPI_ERR_UNREACH;
    else
      procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML] = peers[i];
  }
  return result;
}

/* After an error, the job ends. */
int vicinity_pml_add_procs(struct ompi_proc_t **procs, size_t count) {
  struct opal_proc_t **wanted = calloc(count, sizeof *wanted);
  vicinity_peer_t **peers = calloc(count, sizeof *peers);
  int result = OMPI_ERR_OUT_OF_RESOURCE;
  OPAL_THREAD_LOCK(&vicinity_pml.peers_lock);
  if (wanted != NULL && peers != NULL)
    result = add_all(count, procs, wanted, peers);
  OPAL_THREAD_UNLOCK(&vicinity_pml.peers_lock);
  if (result == OMPI_SUCCESS)
    opal_progress_register(vicinity_progress); /* Later calls change nothing. */
  free(wanted), free(peers);
  return result;
}

/* Called when MPI ends. The link stays until the endpoint is closed, because the peer may still read
   what was sent, and so does the peer's structure, which the watch refers to. */
int vicinity_pml_del_procs(struct ompi_proc_t **procs, size_t count) {
  for (size_t i = 0; i < count; i++)
    procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML] = NULL;
  return OMPI_SUCCESS;
}
