/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Receives, and the messages that arrive for them. */
#include "pml.h"

#include "../copy.h"

void vicinity_select(struct ompi_communicator_t *comm, int source, int tag, uint64_t *envelope, uint64_t *mask) {
  *mask = ~PML_KIND;
  if (source == MPI_ANY_SOURCE) {
    *mask &= ~PML_RANK_BITS;
    source = 0;
  }
  /* The sign must match: negative tags are Open MPI's own. */
  if (tag == MPI_ANY_TAG) {
    *mask &= ~PML_TAG_BITS;
    tag = 0;
  }
  *envelope = vicinity_envelope(VICINITY_CONTEXT(comm), (uint32_t)source, tag);
}

static int set_memory(vicinity_request_t *request, const vicinity_buffer_t *buffer) {
  request->memory = vicinity_find_memory(buffer, &request->length);
  if (request->memory == NULL && request->length > 0 && !vicinity_prepare_unpacking(request, buffer))
    return OMPI_ERR_OUT_OF_RESOURCE;
  return OMPI_SUCCESS;
}

static void put(vicinity_request_t *request, const void *bytes, size_t length) {
  if (request->memory != NULL)
    vicinity_copy(request->memory, bytes, length);
  else if (length > 0)
    vicinity_unpack(request, bytes, length);
}

/* Accepts the data of a message, of which `fits` bytes have room. */
static void fetch(vicinity_request_t *request, const vicinity_message_t *message, size_t fits) {
  unsigned char *to = request->memory;
  if (message->here > 0) {
    /* The sender only waits for the empty message. */
    fits = 0;
  } else if (to == NULL && fits > 0) {
    to = request->packed = malloc(fits);
    if (to == NULL)
      vicinity_fail(NULL, "no memory for a received message");
  }
  request->pieces = (int)message->pieces;
  for (uint32_t i = 0; i < message->pieces; i++) {
    size_t start = i * PML_DATA_MAX, rest = start < fits ? fits - start : 0;
    mx_segment_t segment = {to + start, (uint32_t)(rest < PML_DATA_MAX ? rest : PML_DATA_MAX)};
    mx_request_t number;
    vicinity_plane.requests++;
    if (vicinity_mx.irecv(vicinity_plane.endpoint, &segment, 1, vicinity_data_piece(message->data, i),
                          MX_MATCH_MASK_NONE, vicinity_context(request, VICINITY_RECEIVE), &number) != MX_SUCCESS)
      vicinity_fail(NULL, "a received message cannot be fetched");
  }
}

/* Gives a message to a receive that matches it, and that is in no queue any more. */
static void give(vicinity_request_t *request, const vicinity_message_t *message) {
  ompi_status_public_t *status = &request->super.req_status;
  size_t fits = message->length < request->length ? message->length : request->length;
  status->MPI_SOURCE = vicinity_rank(message->envelope);
  status->MPI_TAG = vicinity_tag(message->envelope);
  status->MPI_ERROR = message->length > request->length ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
  status->_ucount = fits;
  if (message->here > 0)
    put(request, message->bytes, fits);
  if (message->pieces > 0)
    fetch(request, message, fits);
  else
    vicinity_complete(request);
  if (message->sender != NULL)
    vicinity_part_ended(message->sender);
}

static void give_kept(vicinity_request_t *request, vicinity_unexpected_t *unexpected) {
  give(request, &unexpected->message);
  free(unexpected);
}

static void data_received(vicinity_request_t *request, const mx_status_t *status) {
  if (status->code != MX_STATUS_SUCCESS && status->code != MX_STATUS_TRUNCATED)
    vicinity_fail(NULL, vicinity_mx.strstatus(status->code));
  if (atomic_fetch_sub(&request->pieces, 1) > 1)
    return;
  if (request->packed != NULL) {
    vicinity_unpack(request, request->packed, request->super.req_status._ucount);
    free(request->packed);
    request->packed = NULL;
  }
  vicinity_complete(request);
}

void vicinity_deliver(const vicinity_message_t *message) {
  OPAL_THREAD_LOCK(&vicinity_pml.matching_lock);
  vicinity_request_t *request = vicinity_take_posted(message->envelope);
  if (request == NULL) {
    size_t copied = message->sender == NULL ? message->here : 0;
    vicinity_unexpected_t *kept = malloc(sizeof *kept + copied);
    if (kept == NULL) {
      vicinity_fail(NULL, "no memory for a message that has arrived");
      return;
    }
    kept->message = *message;
    if (copied > 0)
      kept->message.bytes = memcpy(kept->bytes, message->bytes, copied);
    vicinity_add_unexpected(kept);
  }
  OPAL_THREAD_UNLOCK(&vicinity_pml.matching_lock);
  if (request != NULL)
    give(request, message);
}

static void announced(uint64_t envelope, const unsigned char *bytes, size_t length) {
  vicinity_announcement_t head;
  if (length >= sizeof head)
    memcpy(&head, bytes, sizeof head);
  if (length < sizeof head || !vicinity_is_announcement(&head, length - sizeof head)) {
    vicinity_fail(NULL, "the announcement of a message contradicts itself");
    return;
  }
  vicinity_deliver(&(vicinity_message_t){.envelope = envelope,
                                         .length = head.length,
                                         .data = head.data,
                                         .pieces = head.pieces,
                                         .bytes = bytes + sizeof head,
                                         .here = length - sizeof head});
}

void vicinity_arrived(const mx_unexpected_t *message, uint32_t number) {
  uint64_t kind = message->match_info & PML_KIND, envelope = message->match_info & ~PML_KIND;
  if (kind == PML_MESSAGE) {
    vicinity_deliver(&(vicinity_message_t){
        .envelope = envelope, .length = message->length, .bytes = message->data, .here = message->length});
  } else if (kind == PML_ANNOUNCEMENT) {
    announced(envelope, message->data, message->length);
  } else {
    /* A watch, or data whose announcement has not been matched yet. */
    vicinity_plane.watches += message->match_info == VICINITY_WATCH;
    vicinity_mx.keep_unexpected(vicinity_plane.endpoint, number);
  }
}

void vicinity_completed(uintptr_t kind, void *owner, const mx_status_t *status) {
  if (kind == VICINITY_RECEIVE)
    data_received(owner, status);
  else
    vicinity_part_sent(owner, status);
}

/* Gives a receive the message that has arrived for it, or has it wait. */
static int post(vicinity_request_t *request, const vicinity_buffer_t *buffer, int rank, int tag,
                struct ompi_communicator_t *comm) {
  int result = set_memory(request, buffer);
  if (result != OMPI_SUCCESS)
    return result;
  vicinity_select(comm, rank, tag, &request->envelope, &request->mask);
  OPAL_THREAD_LOCK(&vicinity_pml.matching_lock);
  vicinity_unexpected_t *unexpected = vicinity_find_unexpected(request->envelope, request->mask, true);
  if (unexpected == NULL)
    vicinity_add_posted(request);
  OPAL_THREAD_UNLOCK(&vicinity_pml.matching_lock);
  if (unexpected != NULL)
    give_kept(request, unexpected);
  return OMPI_SUCCESS;
}

int vicinity_pml_irecv(void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                       struct ompi_communicator_t *comm, ompi_request_t **result) {
  vicinity_buffer_t buffer = {base, count, datatype};
  vicinity_request_t *request = vicinity_new_request(comm, true, false);
  if (request == NULL)
    return OMPI_ERR_OUT_OF_RESOURCE;
  *result = &request->super;
  return post(request, &buffer, rank, tag, comm);
}

int vicinity_pml_recv(void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                      struct ompi_communicator_t *comm, ompi_status_public_t *status) {
  ompi_request_t *request;
  int result = vicinity_pml_irecv(base, count, datatype, rank, tag, comm, &request);
  return result == OMPI_SUCCESS ? vicinity_wait((vicinity_request_t *)request, status) : result;
}

int vicinity_pml_irecv_init(void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                            struct ompi_communicator_t *comm, ompi_request_t **result) {
  vicinity_request_t *request = vicinity_new_persistent(base, count, datatype, rank, tag, comm, true);
  if (request == NULL)
    return OMPI_ERR_OUT_OF_RESOURCE;
  *result = &request->super;
  return OMPI_SUCCESS;
}

int vicinity_start_receive(vicinity_request_t *request) {
  return post(request, &request->buffer, request->rank, request->tag, request->comm);
}

int vicinity_pml_imrecv(void *base, size_t count, struct ompi_datatype_t *datatype, struct ompi_message_t **message,
                        ompi_request_t **result) {
  vicinity_buffer_t buffer = {base, count, datatype};
  vicinity_unexpected_t *unexpected = (*message)->req_ptr;
  vicinity_request_t *request = vicinity_new_request((*message)->comm, true, false);
  if (request == NULL || set_memory(request, &buffer) != OMPI_SUCCESS)
    return OMPI_ERR_OUT_OF_RESOURCE;
  ompi_message_return(*message);
  *message = MPI_MESSAGE_NULL;
  *result = &request->super;
  give_kept(request, unexpected);
  return OMPI_SUCCESS;
}

int vicinity_pml_mrecv(void *base, size_t count, struct ompi_datatype_t *datatype, struct ompi_message_t **message,
                       ompi_status_public_t *status) {
  ompi_request_t *request;
  int result = vicinity_pml_imrecv(base, count, datatype, message, &request);
  return result == OMPI_SUCCESS ? vicinity_wait((vicinity_request_t *)request, status) : result;
}
