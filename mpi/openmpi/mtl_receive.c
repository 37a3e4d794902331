/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Receives, and the messages that arrive for them. */
#include "mtl.h"

#include "../copy.h"

void vicinity_select(struct ompi_communicator_t *comm, int source, int tag, uint64_t *envelope, uint64_t *mask) {
  *mask = ~MTL_KIND;
  if (source == MPI_ANY_SOURCE) {
    *mask &= ~MTL_RANK_BITS;
    source = 0;
  }
  /* The sign must match: negative tags are Open MPI's own. */
  if (tag == MPI_ANY_TAG) {
    *mask &= ~MTL_TAG_BITS;
    tag = 0;
  }
  *envelope = vicinity_envelope(VICINITY_CONTEXT(comm), (uint32_t)source, tag);
}

static void set_memory(vicinity_request_t *request, struct opal_convertor_t *convertor) {
  request->convertor = convertor;
  request->packed = NULL;
  vicinity_find_memory(convertor, CONVERTOR_RECV, &request->memory, &request->length);
}

static void put(vicinity_request_t *request, const void *bytes, size_t length) {
  if (request->memory != NULL)
    vicinity_copy(request->memory, bytes, length);
  else if (length > 0)
    vicinity_unpack(request->convertor, bytes, length);
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
    size_t start = i * MTL_DATA_MAX, rest = start < fits ? fits - start : 0;
    mx_segment_t segment = {to + start, (uint32_t)(rest < MTL_DATA_MAX ? rest : MTL_DATA_MAX)};
    mx_request_t number;
    vicinity_plane.requests++;
    if (vicinity_mx.irecv(vicinity_plane.endpoint, &segment, 1, vicinity_data_piece(message->data, i),
                          MX_MATCH_MASK_NONE, vicinity_context(request, VICINITY_RECEIVE), &number) != MX_SUCCESS)
      vicinity_fail(NULL, "a received message cannot be fetched");
  }
}

/* Gives a message to a receive that matches it, and that is in no queue any more. */
static void give(vicinity_request_t *request, const vicinity_message_t *message) {
  ompi_status_public_t *status = &request->super.ompi_req->req_status;
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
    request->super.completion_callback(&request->super);
}

static void data_received(vicinity_request_t *request, const mx_status_t *status) {
  if (status->code != MX_STATUS_SUCCESS && status->code != MX_STATUS_TRUNCATED)
    vicinity_fail(NULL, vicinity_mx.strstatus(status->code));
  if (atomic_fetch_sub(&request->pieces, 1) > 1)
    return;
  if (request->packed != NULL) {
    vicinity_unpack(request->convertor, request->packed, request->super.ompi_req->req_status._ucount);
    free(request->packed);
  }
  request->super.completion_callback(&request->super);
}

/* A message, whose bytes are valid during the call. */
static void deliver(const vicinity_message_t *message) {
  vicinity_mtl_t *mtl = &vicinity_mtl;
  OPAL_THREAD_LOCK(&mtl->matching_lock);
  vicinity_request_t *request = vicinity_take_posted(message->envelope);
  if (request == NULL) {
    vicinity_unexpected_t *kept = malloc(sizeof *kept + message->here);
    if (kept == NULL) {
      vicinity_fail(NULL, "no memory for a message that has arrived");
      return;
    }
    kept->message = *message;
    kept->message.bytes = memcpy(kept->bytes, message->bytes, message->here);
    vicinity_add_unexpected(kept);
  }
  OPAL_THREAD_UNLOCK(&mtl->matching_lock);
  if (request != NULL)
    give(request, message);
}

static void announced(uint64_t envelope, const unsigned char *bytes, size_t length) {
  vicinity_announcement_t head;
  if (length < sizeof head) {
    vicinity_fail(NULL, "the announcement of a message is too short");
    return;
  }
  memcpy(&head, bytes, sizeof head);
  deliver(&(vicinity_message_t){.envelope = envelope,
                                .length = head.length,
                                .data = head.data,
                                .pieces = head.pieces,
                                .bytes = bytes + sizeof head,
                                .here = length - sizeof head});
}

void vicinity_arrived(const mx_unexpected_t *message, uint32_t number) {
  uint64_t kind = message->match_info & MTL_KIND, envelope = message->match_info & ~MTL_KIND;
  if (kind == MTL_MESSAGE) {
    deliver(&(vicinity_message_t){
        .envelope = envelope, .length = message->length, .bytes = message->data, .here = message->length});
  } else if (kind == MTL_ANNOUNCEMENT) {
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

int vicinity_mtl_irecv(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag,
                       struct opal_convertor_t *convertor, mca_mtl_request_t *mtl_request) {
  vicinity_request_t *request = (vicinity_request_t *)mtl_request;
  set_memory(request, convertor);
  vicinity_select(comm, source, tag, &request->envelope, &request->mask);
  OPAL_THREAD_LOCK(&vicinity_mtl.matching_lock);
  vicinity_unexpected_t *unexpected = vicinity_find_unexpected(request->envelope, request->mask, true);
  if (unexpected == NULL)
    vicinity_add_posted(request);
  OPAL_THREAD_UNLOCK(&vicinity_mtl.matching_lock);
  if (unexpected != NULL) {
    give(request, &unexpected->message);
    free(unexpected);
  }
  return OMPI_SUCCESS;
}

int vicinity_mtl_imrecv(struct mca_mtl_base_module_t *mtl, struct opal_convertor_t *convertor,
                        struct ompi_message_t **message, mca_mtl_request_t *mtl_request) {
  vicinity_request_t *request = (vicinity_request_t *)mtl_request;
  vicinity_unexpected_t *unexpected = (*message)->req_ptr;
  ompi_message_return(*message);
  *message = MPI_MESSAGE_NULL;
  set_memory(request, convertor);
  give(request, &unexpected->message);
  free(unexpected);
  return OMPI_SUCCESS;
}

int vicinity_mtl_cancel(struct mca_mtl_base_module_t *mtl, mca_mtl_request_t *mtl_request, int flag) {
  OPAL_THREAD_LOCK(&vicinity_mtl.matching_lock);
  bool cancelled = vicinity_remove_posted((vicinity_request_t *)mtl_request);
  OPAL_THREAD_UNLOCK(&vicinity_mtl.matching_lock);
  if (cancelled) {
    mtl_request->ompi_req->req_status._cancelled = true;
    mtl_request->completion_callback(mtl_request);
  }
  return OMPI_SUCCESS;
}
