/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How the component for collective operations finds the heap and the other ranks. */
#include "coll.h"
#include "find_peer.h"
#include "pml.h"

/* The PML's; NULL if Open MPI uses another one. */
static const vicinity_heap_t *heap_of_pml(void) {
  mca_base_component_list_item_t *item;
  const vicinity_heap_t *found = NULL;
  if (!mca_base_framework_is_open(&ompi_pml_base_framework))
    return NULL;
  OPAL_LIST_FOREACH(item, &ompi_pml_base_framework.framework_components, mca_base_component_list_item_t)
    if (!strcmp(item->cli_component->mca_component_name, "vicinity"))
      found = ((const vicinity_pml_component_t *)item->cli_component)->heap;
  return found != NULL && found->version == VICINITY_HEAP_VERSION ? found : NULL;
}

const vicinity_heap_t *vicinity_coll_heap(void) {
  const vicinity_heap_t *heap = heap_of_pml();
  return heap != NULL ? heap : vicinity_find_heap();
}

const vicinity_peer_t *vicinity_coll_peer(struct ompi_communicator_t *comm, int rank) {
  if (heap_of_pml() != NULL)
    return ompi_comm_peer_lookup(comm, rank)->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
  struct mca_btl_base_endpoint_t *peer = vicinity_find_peer(vicinity_find_transfers(), comm, rank);
  return peer == NULL ? NULL : &peer->plane;
}
