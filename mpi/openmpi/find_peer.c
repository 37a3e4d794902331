/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How the components osc and coll find the peers of the component for transfers. */
#include "find_peer.h"

#include "ompi/mca/bml/base/base.h"

struct mca_btl_base_endpoint_t *vicinity_find_peer(mca_btl_base_module_t *btl, struct ompi_communicator_t *ranks,
                                                   int rank) {
  mca_bml_base_endpoint_t *ways = mca_bml_base_get_endpoint(ompi_comm_peer_lookup(ranks, rank));
  if (ways == NULL)
    return NULL;
  for (size_t i = 0; i < mca_bml_base_btl_array_get_size(&ways->btl_rdma); i++) {
    mca_bml_base_btl_t *way = mca_bml_base_btl_array_get_index(&ways->btl_rdma, i);
    if (way->btl == btl)
      return way->btl_endpoint;
  }
  return NULL;
}
