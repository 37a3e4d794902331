/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Probes: what has arrived, and messages that the program takes without a receive. */
#include "mtl.h"

static vicinity_unexpected_t *find(struct ompi_communicator_t *comm, int source, int tag, bool take,
                                   struct ompi_status_public_t *status) {
  uint64_t envelope, mask;
  vicinity_select(comm, source, tag, &envelope, &mask);
  vicinity_progress();
  OPAL_THREAD_LOCK(&vicinity_mtl.matching_lock);
  vicinity_unexpected_t *found = vicinity_find_unexpected(envelope, mask, take);
  if (found != NULL && status != MPI_STATUS_IGNORE) {
    status->MPI_SOURCE = vicinity_rank(found->message.envelope);
    status->MPI_TAG = vicinity_tag(found->message.envelope);
    status->MPI_ERROR = MPI_SUCCESS;
    status->_ucount = found->message.length;
    status->_cancelled = 0;
  }
  OPAL_THREAD_UNLOCK(&vicinity_mtl.matching_lock);
  return found;
}

int vicinity_mtl_iprobe(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag,
                        int *found, struct ompi_status_public_t *status) {
  *found = find(comm, source, tag, false, status) != NULL;
  return OMPI_SUCCESS;
}

int vicinity_mtl_improbe(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag,
                         int *found, struct ompi_message_t **message, struct ompi_status_public_t *status) {
  vicinity_unexpected_t *taken = find(comm, source, tag, true, status);
  *found = taken != NULL;
  if (taken == NULL)
    return OMPI_SUCCESS;
  *message = ompi_message_alloc();
  if (*message == NULL)
    return OMPI_ERR_OUT_OF_RESOURCE;
  (*message)->comm = comm;
  (*message)->req_ptr = taken;
  (*message)->peer = vicinity_rank(taken->message.envelope);
  (*message)->count = taken->message.length;
  return OMPI_SUCCESS;
}
