/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Progress, and how packets and bytes are passed to MX. */
#include "engine.h"

/* Completions in one call, so that other endpoints make progress, too. */
#define COMPLETIONS_MAX 64

/* Bytes for an operation have arrived, or its receive was ended. */
static void bytes_done(operation_t *operation, const mx_status_t *status) {
  const mx_endpoint_addr_t *from = &operation->peer->address;
  bool from_peer =
      status->source.stuff[0] == from->stuff[0] && status->source.stuff[1] == from->stuff[1];
  operation->wants_reply = false;
  if (status->code != MX_STATUS_SUCCESS || !from_peer || status->xfer_length != operation->taken) {
    complain(operation->peer, "the bytes of a transfer are not those that it announced");
    operation->error = FI_EIO;
  }
  if (operation->confirms)
    send_reply(operation->endpoint, operation->peer, PACKET_DONE, 2,
               (uint64_t[]){operation->answered, (uint64_t)operation->error});
  if (operation->error == 0 && operation->excess > 0)
    operation->error = FI_ETRUNC;
}

static bool receives_bytes(const operation_t *operation) {
  return operation->kind == OPERATION_FETCH || operation->kind == OPERATION_READ ||
         operation->kind == OPERATION_STORE;
}

static void request_done(operation_t *operation, const mx_status_t *status) {
  operation->requests--;
  if (operation->kind == OPERATION_WATCH) {
    watch_done(operation, status);
    return;
  }
  if (operation->kind == OPERATION_CONNECT) {
    connect_done(operation, status);
    return;
  }
  if (receives_bytes(operation) && (status->match_info & MATCH_BYTES)) {
    bytes_done(operation, status);
  } else if (status->code != MX_STATUS_SUCCESS) {
    operation->error = FI_ECONNRESET;
    operation->wants_reply = false;
  }
  finish_if_done(operation);
}

static bool is_full(const queue_t *queue) { return queue != NULL && queue->count >= queue->limit; }

void progress(endpoint_t *endpoint) {
  endpoint_t *before = handling;
  if (is_full(endpoint->send_queue) || is_full(endpoint->receive_queue))
    return;
  handling = endpoint;
  if (endpoint->held > 0 || endpoint->postponed > 0)
    take_held(endpoint);
  /* Also without requests that wait: MX counts the polls that find nothing. It yields the CPU when the
     peer may need it, and accepts connects when other programs had the CPU. */
  for (int i = 0; i < COMPLETIONS_MAX; i++) {
    mx_status_t status;
    uint32_t found = 0;
    if (mx.test_any(endpoint->mx, 0, 0, &status, &found) != MX_SUCCESS || !found)
      break;
    request_done(status.context, &status);
  }
  handling = before;
}

static int failure(mx_return_t code) { return code == MX_NO_RESOURCES ? -FI_EAGAIN : -FI_EIO; }

/* Takes the result of a request that has completed at once, which most do. */
static void started(operation_t *operation, mx_request_t request) {
  endpoint_t *endpoint = operation->endpoint, *before = handling;
  mx_status_t status;
  uint32_t found = 0;
  operation->requests++;
  /* A packet that arrives here stays in the plane: the caller is in the middle of its work. */
  handling = NULL;
  mx_return_t code = mx.test(endpoint->mx, &request, &status, &found);
  handling = before;
  if (code == MX_SUCCESS && found)
    request_done(operation, &status);
}

int send_packet(operation_t *operation, enum packet_kind kind, unsigned flags, unsigned words,
                bool bytes) {
  endpoint_t *endpoint = operation->endpoint;
  uint32_t count = 1 + (bytes ? operation->segment_count : 0);
  mx_request_t request;
  operation->segments[0].segment_ptr = operation->words;
  operation->segments[0].segment_length = words * (uint32_t)sizeof *operation->words;
  mx_return_t code = mx.isend(endpoint->mx, operation->segments, count, operation->peer->address,
                              MATCH_PACKET(endpoint->hash, flags, kind), operation, &request);
  if (code != MX_SUCCESS)
    return failure(code);
  started(operation, request);
  return 0;
}

int send_bytes(operation_t *operation, uint64_t to) {
  endpoint_t *endpoint = operation->endpoint;
  mx_request_t request;
  mx_return_t code = mx.isend(endpoint->mx, operation->segments + 1, operation->segment_count,
                              operation->peer->address, MATCH_BYTES | to, operation, &request);
  if (code != MX_SUCCESS)
    return failure(code);
  started(operation, request);
  return 0;
}

int receive_bytes(operation_t *operation, size_t length) {
  endpoint_t *endpoint = operation->endpoint;
  shorten_memory(operation, length);
  operation->taken = length;
  mx_return_t code = mx.irecv(endpoint->mx, operation->segments + 1, operation->segment_count,
                              MATCH_BYTES | operation_number(operation), MX_MATCH_MASK_NONE,
                              operation, &operation->request);
  if (code != MX_SUCCESS)
    return failure(code);
  operation->requests++;
  return 0;
}

void send_reply(endpoint_t *endpoint, peer_t *peer, enum packet_kind kind, unsigned words,
                const uint64_t *values) {
  operation_t *operation = peer->lost ? NULL : new_operation(endpoint, OPERATION_REPLY);
  if (operation == NULL)
    return;
  operation->peer = peer;
  memcpy(operation->words, values, words * sizeof *values);
  peer->replies++;
  if (send_packet(operation, kind, 0, words, false) != 0)
    finish(operation, FI_EIO);
}
