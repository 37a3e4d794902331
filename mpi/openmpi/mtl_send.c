/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sends: short messages at once, others announced. */
#include "mtl.h"
#include "words.h"

#include "opal/runtime/opal_progress.h"

/* Returns the peer, or NULL if it is not reached. Open MPI 5.0 does not add processes of MPI_Comm_spawn. */
static const vicinity_peer_t *peer_of(struct ompi_communicator_t *comm, int rank) {
  struct ompi_proc_t *proc = ompi_comm_peer_lookup(comm, rank);
  const vicinity_peer_t *peer = proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL];
  if (peer == NULL && vicinity_mtl_add_procs(&vicinity_mtl.super, 1, &proc) == OMPI_SUCCESS)
    peer = proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL];
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
static inline bool inject_contiguous(struct ompi_communicator_t *comm, int dest, int tag,
                                     const struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode) {
  /* pml/cm does not prepare the convertor of contiguous bytes, see vicinity_find_memory. */
  if ((convertor->flags & CONVERTOR_SEND) || convertor->local_size > MTL_EAGER_MAX ||
      mode == MCA_PML_BASE_SEND_SYNCHRONOUS)
    return false;
  const vicinity_peer_t *peer = ompi_comm_peer_lookup(comm, dest)->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL];
  if (peer == NULL)
    return false;
  uint64_t envelope = vicinity_envelope(VICINITY_CONTEXT(comm), (uint32_t)ompi_comm_rank(comm), tag);
  if (convertor->local_size <= VICINITY_DATA_MAX)
    return inject_short(peer, convertor->pBaseBuf, convertor->local_size, MTL_MESSAGE | envelope);
  mx_segment_t segment = {convertor->pBaseBuf, (uint32_t)convertor->local_size};
  return inject(peer, &segment, 1, MTL_MESSAGE | envelope);
}

/* A part of a send has completed: the announcement or data. */
static bool part_is_last(vicinity_request_t *request) {
  if (atomic_fetch_sub(&request->pieces, 1) > 1)
    return false;
  free(request->packed);
  return true;
}

/* Sends an announcement, with the bytes if they fit, and then the data. The receiver accepts the data, or the empty
   message instead of them, when it has matched the announcement. */
static int announce(vicinity_request_t *request, const vicinity_peer_t *peer, uint64_t envelope) {
  vicinity_announcement_t *head = &request->announcement;
  size_t length = request->length;
  bool here = length + sizeof *head <= MTL_EAGER_MAX;
  *head = (vicinity_announcement_t){.length = length};
  head->pieces = here ? 1 : (uint32_t)((length + MTL_DATA_MAX - 1) / MTL_DATA_MAX);
  head->data = vicinity_data(vicinity_plane.key, atomic_fetch_add(&vicinity_mtl.sequence, head->pieces));
  request->pieces = (int)head->pieces + 1;
  mx_segment_t segments[] = {{head, sizeof *head}, {request->memory, (uint32_t)(here ? length : 0)}};
  bool left = inject(peer, segments, 2, MTL_ANNOUNCEMENT | envelope);
  if (!left && !queue(request, peer, segments, 2, MTL_ANNOUNCEMENT | envelope, false))
    return OMPI_ERR_UNREACH;
  for (uint32_t i = 0; i < head->pieces; i++) {
    size_t start = i * MTL_DATA_MAX, rest = here ? 0 : length - start;
    mx_segment_t segment = {request->memory + start, (uint32_t)(rest < MTL_DATA_MAX ? rest : MTL_DATA_MAX)};
    if (!queue(request, peer, &segment, 1, vicinity_data_piece(head->data, i), true))
      return OMPI_ERR_UNREACH;
  }
  return left && part_is_last(request);
}

/* Starts a send. Returns 1 if it has completed, 0 if vicinity_part_sent will complete it, or an error. */
static int start(vicinity_request_t *request, struct ompi_communicator_t *comm, int dest, int tag,
                 struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode) {
  const vicinity_peer_t *peer = peer_of(comm, dest);
  if (peer == NULL)
    return OMPI_ERR_UNREACH;
  uint64_t envelope = vicinity_envelope(VICINITY_CONTEXT(comm), (uint32_t)ompi_comm_rank(comm), tag);
  unsigned char *memory, *packed = NULL;
  size_t length;
  vicinity_find_memory(convertor, CONVERTOR_SEND, &memory, &length);
  if (memory == NULL && length > 0) {
    memory = packed = malloc(length);
    if (packed == NULL || !vicinity_pack(convertor, packed, length)) {
      free(packed);
      return OMPI_ERR_OUT_OF_RESOURCE;
    }
  }
  bool synchronous = mode == MCA_PML_BASE_SEND_SYNCHRONOUS, eager = length <= MTL_EAGER_MAX && !synchronous;
  mx_segment_t segment = {memory, (uint32_t)length};
  if (eager && inject(peer, &segment, 1, MTL_MESSAGE | envelope)) {
    if (packed != NULL)
      free(packed);
    return 1;
  }
  request->peer = peer;
  request->packed = packed;
  request->memory = memory;
  request->length = length;
  request->pieces = 1;
  if (eager)
    return queue(request, peer, &segment, 1, MTL_MESSAGE | envelope, false) ? 0 : OMPI_ERR_UNREACH;
  if (!synchronous && length <= MTL_CREDIT_MAX && send_with_credit(request, peer, &segment, MTL_MESSAGE | envelope))
    return 0;
  return announce(request, peer, envelope);
}

void vicinity_part_sent(vicinity_request_t *request, const mx_status_t *status) {
  /* A receive that is too short is the receiver's error. */
  if (status->code != MX_STATUS_SUCCESS && status->code != MX_STATUS_TRUNCATED)
    vicinity_fail(request->peer->proc, vicinity_mx.strstatus(status->code));
  if (part_is_last(request))
    request->super.completion_callback(&request->super);
}

static void blocking_send_ended(mca_mtl_request_t *request) { ((vicinity_request_t *)request)->sent = true; }

int vicinity_mtl_send(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int dest, int tag,
                      struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode) {
  vicinity_request_t request;
  request.super.completion_callback = blocking_send_ended;
  request.sent = false;
  int result = start(&request, comm, dest, tag, convertor, mode);
  while (result == 0 && !request.sent)
    opal_progress();
  return result < 0 ? result : OMPI_SUCCESS;
}

/* Starts a send that vicinity_mtl_isend did not inject. Not inlined there, because a function that needs fewer registers saves
   fewer. */
__attribute__((noinline)) static int start_any(mca_mtl_request_t *request, struct ompi_communicator_t *comm, int dest,
                                               int tag, struct opal_convertor_t *convertor,
                                               mca_pml_base_send_mode_t mode) {
  int result = start((vicinity_request_t *)request, comm, dest, tag, convertor, mode);
  if (result == 1)
    request->completion_callback(request);
  return result < 0 ? result : OMPI_SUCCESS;
}

int vicinity_mtl_isend(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int dest, int tag,
                       struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode, bool blocking,
                       mca_mtl_request_t *request) {
  /* pml/cm does not set it for sends. */
  request->ompi_req->req_status.MPI_ERROR = MPI_SUCCESS;
  if (!inject_contiguous(comm, dest, tag, convertor, mode))
    return start_any(request, comm, dest, tag, convertor, mode);
  request->completion_callback(request);
  return OMPI_SUCCESS;
}
