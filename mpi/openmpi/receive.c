/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Received fragments. */
#include "vicinity.h"

static void deliver(mx_endpoint_addr_t source, uint64_t match, const void *data, size_t length) {
  if (match == VICINITY_RMA_REQUEST) {
    vicinity_requested(source, data, length);
    return;
  }
  if (match == VICINITY_RMA_ANSWER) {
    vicinity_answered(source, data, length);
    return;
  }
  mca_btl_base_segment_t segment = {.seg_addr.pval = (void *)data, .seg_len = length};
  vicinity_pass_on(match & VICINITY_OTHER_HOSTS ? &vicinity_other_hosts : &vicinity_module.super,
                   (mca_btl_base_tag_t)match, &segment);
}

/* Fetches a message that is still at its sender: it does not fit into the shared memory at once. */
static void fetch(const mx_unexpected_t *message, uint32_t number) {
  vicinity_received_t *received = malloc(sizeof *received + message->length);
  if (received == NULL) {
    vicinity_fail(NULL, "no memory for a received fragment");
    return;
  }
  received->source = message->source;
  received->match = message->match_info;
  /* No message is matched before this one is kept, so this receive gets this message. */
  mx_segment_t segment = {received->data, message->length};
  mx_request_t request;
  vicinity_plane.requests++;
  if (vicinity_mx.irecv(vicinity_plane.endpoint, &segment, 1, message->match_info, MX_MATCH_MASK_NONE,
                        vicinity_context(received, VICINITY_RECEIVE), &request) != MX_SUCCESS) {
    vicinity_plane.requests--;
    free(received);
    vicinity_fail(NULL, "a received fragment cannot be fetched");
    return;
  }
  vicinity_mx.keep_unexpected(vicinity_plane.endpoint, number);
}

void vicinity_arrived(const mx_unexpected_t *message, uint32_t number) {
  if (message->match_info == VICINITY_WATCH) {
    vicinity_plane.watches++;
    vicinity_mx.keep_unexpected(vicinity_plane.endpoint, number);
  } else if (message->data == NULL && message->length > 0) {
    fetch(message, number);
  } else {
    deliver(message->source, message->match_info, message->data, message->length);
  }
}

static void received(vicinity_received_t *received, const mx_status_t *status) {
  if (status->code == MX_STATUS_SUCCESS)
    deliver(received->source, received->match, received->data, status->xfer_length);
  else
    vicinity_fail(NULL, vicinity_mx.strstatus(status->code));
  free(received);
}

void vicinity_completed(uintptr_t kind, void *owner, const mx_status_t *status) {
  if (kind == VICINITY_RECEIVE)
    received(owner, status);
  else if (kind == VICINITY_RMA)
    vicinity_rma_completed(owner, status);
  else
    vicinity_sent(owner, status);
}
