/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How the component for collective operations finds the other ranks. */
#include "coll.h"
#include "find_peer.h"

const vicinity_peer_t *vicinity_coll_peer(struct ompi_communicator_t *comm, int rank) {
  if (vicinity_find_heap_of_pml() != NULL)
    return ompi_comm_peer_lookup(comm, rank)->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
  struct mca_btl_base_endpoint_t *peer = vicinity_find_peer(vicinity_find_transfers(), comm, rank);
  return peer == NULL ? NULL : &peer->plane;
}
