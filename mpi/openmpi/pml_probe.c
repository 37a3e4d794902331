/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Probes: what has arrived, and messages that the program takes without a receive. */
#include "pml.h"

static vicinity_unexpected_t *find(struct ompi_communicator_t *comm, int rank, int tag, bool take,
                                   ompi_status_public_t *status) {
  uint64_t envelope, mask;
  vicinity_select(comm, rank, tag, &envelope, &mask);
  opal_progress();
  OPAL_THREAD_LOCK(&vicinity_pml.matching_lock);
  vicinity_unexpected_t *found = vicinity_find_unexpected(envelope, mask, take);
  if (found != NULL && status != MPI_STATUS_IGNORE) {
    status->MPI_SOURCE = vicinity_rank(found->message.envelope);
    status->MPI_TAG = vicinity_tag(found->message.envelope);
    status->MPI_ERROR = MPI_SUCCESS;
    status->_ucount = found->message.length;
    status->_cancelled = 0;
  }
  OPAL_THREAD_UNLOCK(&vicinity_pml.matching_lock);
  return found;
}

int vicinity_pml_iprobe(int rank, int tag, struct ompi_communicator_t *comm, int *found, ompi_status_public_t *status) {
  *found = find(comm, rank, tag, false, status) != NULL;
  return OMPI_SUCCESS;
}

int vicinity_pml_probe(int rank, int tag, struct ompi_communicator_t *comm, ompi_status_public_t *status) {
  while (find(comm, rank, tag, false, status) == NULL)
    ;
  return OMPI_SUCCESS;
}

int vicinity_pml_improbe(int rank, int tag, struct ompi_communicator_t *comm, int *found, struct ompi_message_t **message,
                         ompi_status_public_t *status) {
  vicinity_unexpected_t *taken = find(comm, rank, tag, true, status);
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

int vicinity_pml_mprobe(int rank, int tag, struct ompi_communicator_t *comm, struct ompi_message_t **message,
                        ompi_status_public_t *status) {
  int found = 0, result = OMPI_SUCCESS;
  while (!found && result == OMPI_SUCCESS)
    result = vicinity_pml_improbe(rank, tag, comm, &found, message, status);
  return result;
}
