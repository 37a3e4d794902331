/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef VICINITY_FIND_PEER_H
#define VICINITY_FIND_PEER_H

#include "vicinity.h"

#include "ompi/communicator/communicator.h"

/* Returns the peer at which the component for transfers reaches a rank, or NULL. */
struct mca_btl_base_endpoint_t *vicinity_find_peer(mca_btl_base_module_t *btl, struct ompi_communicator_t *ranks,
                                                   int rank);

#endif
