/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sends: short messages at once, others announced. */
#include "pml.h"
#include "words.h"

/* Returns the peer, or NULL if it is not reached. Open MPI 5.0 does not add processes of MPI_Comm_spawn. */
static const vicinity_peer_t *peer_of(struct ompi_communicator_t *comm, int rank) {
  struct ompi_proc_t *proc = ompi_comm_peer_lookup(comm, rank);
  const vicinity_peer_t *peer = proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
  if (peer == NULL && vicinity_pml_add_procs(&proc, 1) == OMPI_SUCCESS)
    peer = proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
  return peer;
}

/* Sends a message that is too long for mx_inject, synchronous, or for which there is no room yet. */
static bool queue(vicinity_request_t *request, const vicinity_peer_t *peer, mx_segment_t *segments, uint32_t count,
                  uint64_t match, bool synchronous) {
  __typeof__(vicinity_mx.isend) send = synchronous ? vicinity_mx.issend : vicinity_mx.isend;
  mx_request_t number;
  vicinity_plane.requests++;
  mx_return_t code = send(vicinity_plane.endpoint, segments, count, peer->address, match,
                          vicinity_context(request, VICINITY_SEND), &number);
  if (code == MX_SUCCESS)
    return true;
  vicinity_plane.requests--;
  vicinity_fail(peer->proc, vicinity_mx.strerror(code));
  return false;
}

/* Sends a message without an announcement, if its receiver's library has granted that. */
static bool send_with_credit(vicinity_request_t *request, const vicinity_peer_t *peer, mx_segment_t *segment,
                             uint64_t match) {
  mx_request_t number;
  uint32_t sent = 0;
  vicinity_plane.requests++;
  mx_return_t code =
      vicinity_mx.isend_with_credit(vicinity_plane.endpoint, segment, 1, peer->address, match,
                                    vicinity_context(request, VICINITY_SEND), &number, &sent);
  if (code == MX_SUCCESS && sent)
    return true;
  vicinity_plane.requests--;
  return false;
}

/* Returns whether a message has left. */
static bool injected(const vicinity_peer_t *peer, mx_return_t code, uint32_t sent) {
  if (code != MX_SUCCESS)
    vicinity_fail(peer->proc, vicinity_mx.strerror(code));
  return sent;
}

static bool inject(const vicinity_peer_t *peer, mx_segment_t *segments, uint32_t count, uint64_t match) {
  uint32_t sent = 0;
  mx_return_t code = vicinity_mx.inject(vicinity_plane.endpoint, segments, count, peer->address, match, &sent);
  return injected(peer, code, sent);
}

/* The same for up to VICINITY_DATA_MAX bytes. */
static bool inject_short(const vicinity_peer_t *peer, const unsigned char *data, size_t length, uint64_t match) {
  uint64_t words[VICINITY_WORDS] = {vicinity_load_data(data, length)};
  uint32_t sent = 0;
  mx_return_t code =
      vicinity_mx.inject_words(vicinity_plane.endpoint, words, (uint32_t)length, peer->address, match, &sent);
  return injected(peer, code, sent);
}

/* Sends short contiguous data at once, as most messages are. Returns false, and sends nothing, if start has to decide. */
static inline bool inject_contiguous(const vicinity_buffer_t *buffer, int rank, int tag, mca_pml_base_send_mode_t mode,
                                     struct ompi_communicator_t *comm) {
  size_t length;
  unsigned char *memory = vicinity_find_memory(buffer, &length);
  if ((memory == NULL && length > 0) || length > PML_EAGER_MAX || mode == MCA_PML_BASE_SEND_SYNCHRONOUS)
    return false;
  const vicinity_peer_t *peer = ompi_comm_peer_lookup(comm, rank)->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
  if (peer == NULL || peer->self)
    return false;
  uint64_t envelope = vicinity_envelope(VICINITY_CONTEXT(comm), (uint32_t)ompi_comm_rank(comm), tag);
  if (length <= VICINITY_DATA_MAX)
    return inject_short(peer, memory, length, PML_MESSAGE | envelope);
  mx_segment_t segment = {memory, (uint32_t)length};
  return inject(peer, &segment, 1, PML_MESSAGE | envelope);
}

void vicinity_part_ended(vicinity_request_t *request) {
  if (atomic_fetch_sub(&request->pieces, 1) > 1)
    return;
  if (request->packed != NULL && request->buffered)
    mca_pml_base_bsend_request_free(request->packed);
  else if (request->packed != NULL)
    free(request->packed);
  vicinity_complete(request);
}

/* Sends to this process itself, without the plane. The bytes of a short message are copied; another one waits for its receive. */
static void send_to_self(vicinity_request_t *request, uint64_t envelope, bool eager) {
  vicinity_deliver(&(vicinity_message_t){.envelope = envelope,
                                         .length = request->length,
                                         .bytes = request->memory,
                                         .here = request->length,
                                         .sender = eager ? NULL : request});
  if (eager)
    vicinity_part_ended(request);
}

/* Sends an announcement, with the bytes if they fit, and then the data. The receiver accepts the data, or the empty
   message instead of them, when it has matched the announcement. */
static int announce(vicinity_request_t *request, const vicinity_peer_t *peer, uint64_t envelope) {
  vicinity_announcement_t *head = &request->announcement;
  size_t length = request->length;
  bool here = length + sizeof *head <= PML_EAGER_MAX;
  *head = (vicinity_announcement_t){.length = length};
  head->pieces = here ? 1 : (uint32_t)vicinity_pieces(length);
  head->data = vicinity_data(vicinity_plane.key, atomic_fetch_add(&vicinity_pml.sequence, head->pieces));
  request->pieces = (int)head->pieces + 1;
  mx_segment_t segments[] = {{head, sizeof *head}, {request->memory, (uint32_t)(here ? length : 0)}};
  bool left = inject(peer, segments, 2, PML_ANNOUNCEMENT | envelope);
  if (!left && !queue(request, peer, segments, 2, PML_ANNOUNCEMENT | envelope, false))
    return OMPI_ERR_UNREACH;
  for (uint32_t i = 0; i < head->pieces; i++) {
    size_t start = i * PML_DATA_MAX, rest = here ? 0 : length - start;
    mx_segment_t segment = {request->memory + start, (uint32_t)(rest < PML_DATA_MAX ? rest : PML_DATA_MAX)};
    if (!queue(request, peer, &segment, 1, vicinity_data_piece(head->data, i), true))
      return OMPI_ERR_UNREACH;
  }
  if (left)
    vicinity_part_ended(request);
  return OMPI_SUCCESS;
}

/* Packs bytes that are not contiguous, or those of a buffered send. */
static int pack(vicinity_request_t *request, const vicinity_buffer_t *buffer, unsigned char *memory) {
  if (request->length > 0 && (memory == NULL || request->buffered)) {
    request->packed = request->buffered ? mca_pml_base_bsend_request_alloc_buf(request->length) : malloc(request->length);
    if (request->packed == NULL)
      return request->buffered ? MPI_ERR_BUFFER : OMPI_ERR_OUT_OF_RESOURCE;
    if (!vicinity_pack(buffer, request->packed, request->length))
      return OMPI_ERR_OUT_OF_RESOURCE;
    memory = request->packed;
  }
  request->memory = memory;
  return OMPI_SUCCESS;
}

/* Starts a send, and completes it if it has left. After an error, the job ends. */
static int start(vicinity_request_t *request, const vicinity_buffer_t *buffer, int rank, int tag,
                 mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm) {
  const vicinity_peer_t *peer = peer_of(comm, rank);
  if (peer == NULL)
    return OMPI_ERR_UNREACH;
  request->peer = peer;
  request->pieces = 1;
  int result = pack(request, buffer, vicinity_find_memory(buffer, &request->length));
  if (result != OMPI_SUCCESS)
    return result;
  uint64_t envelope = vicinity_envelope(VICINITY_CONTEXT(comm), (uint32_t)ompi_comm_rank(comm), tag);
  bool synchronous = mode == MCA_PML_BASE_SEND_SYNCHRONOUS, eager = request->length <= PML_EAGER_MAX && !synchronous;
  mx_segment_t segment = {request->memory, (uint32_t)request->length};
  if (peer->self) {
    send_to_self(request, envelope, eager);
    return OMPI_SUCCESS;
  }
  if (eager && inject(peer, &segment, 1, PML_MESSAGE | envelope)) {
    vicinity_part_ended(request);
    return OMPI_SUCCESS;
  }
  if (eager)
    return queue(request, peer, &segment, 1, PML_MESSAGE | envelope, false) ? OMPI_SUCCESS : OMPI_ERR_UNREACH;
  if (!synchronous && request->length <= PML_CREDIT_MAX &&
      send_with_credit(request, peer, &segment, PML_MESSAGE | envelope))
    return OMPI_SUCCESS;
  return announce(request, peer, envelope);
}

/* Starts a send whose bytes are copied into the buffer of MPI_Buffer_attach, so that the program need not wait for it. */
static int start_buffered(const vicinity_buffer_t *buffer, int rank, int tag, struct ompi_communicator_t *comm) {
  vicinity_request_t *request = vicinity_new_request(comm, false, false);
  if (request == NULL)
    return OMPI_ERR_OUT_OF_RESOURCE;
  request->buffered = true;
  vicinity_let_go(request); /* for the program, which does not see this request */
  int result = start(request, buffer, rank, tag, MCA_PML_BASE_SEND_STANDARD, comm);
  if (result == MPI_ERR_BUFFER) /* The job may go on after this error. */
    vicinity_let_go(request);
  return result;
}

void vicinity_part_sent(vicinity_request_t *request, const mx_status_t *status) {
  /* A receive that is too short is the receiver's error. */
  if (status->code != MX_STATUS_SUCCESS && status->code != MX_STATUS_TRUNCATED)
    vicinity_fail(request->peer->proc, vicinity_mx.strstatus(status->code));
  vicinity_part_ended(request);
}

/* Starts a send that was not injected. Not inlined, because a function that needs fewer registers saves fewer. */
__attribute__((noinline)) static int start_any(const vicinity_buffer_t *buffer, int rank, int tag,
                                               mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm,
                                               ompi_request_t **started) {
  *started = &ompi_request_empty;
  if (mode == MCA_PML_BASE_SEND_BUFFERED)
    return start_buffered(buffer, rank, tag, comm);
  vicinity_request_t *request = vicinity_new_request(comm, false, false);
  if (request == NULL)
    return OMPI_ERR_OUT_OF_RESOURCE;
  *started = &request->super;
  return start(request, buffer, rank, tag, mode, comm);
}

int vicinity_pml_isend(const void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                       mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, ompi_request_t **request) {
  vicinity_buffer_t buffer = {(unsigned char *)(uintptr_t)base, count, datatype};
  if (!inject_contiguous(&buffer, rank, tag, mode, comm))
    return start_any(&buffer, rank, tag, mode, comm, request);
  *request = &ompi_request_empty;
  return OMPI_SUCCESS;
}

int vicinity_pml_send(const void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                      mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm) {
  vicinity_buffer_t buffer = {(unsigned char *)(uintptr_t)base, count, datatype};
  if (inject_contiguous(&buffer, rank, tag, mode, comm))
    return OMPI_SUCCESS;
  ompi_request_t *request;
  int result = start_any(&buffer, rank, tag, mode, comm, &request);
  if (result != OMPI_SUCCESS || request == &ompi_request_empty)
    return result;
  return vicinity_wait((vicinity_request_t *)request, MPI_STATUS_IGNORE);
}

int vicinity_pml_isend_init(const void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                            mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, ompi_request_t **result) {
  vicinity_request_t *request = vicinity_new_persistent(base, count, datatype, rank, tag, comm, false);
  if (request == NULL)
    return OMPI_ERR_OUT_OF_RESOURCE;
  request->mode = mode;
  *result = &request->super;
  return OMPI_SUCCESS;
}

int vicinity_start_send(vicinity_request_t *request) {
  if (request->mode != MCA_PML_BASE_SEND_BUFFERED)
    return start(request, &request->buffer, request->rank, request->tag, request->mode, request->comm);
  int result = start_buffered(&request->buffer, request->rank, request->tag, request->comm);
  vicinity_complete(request);
  return result;
}
