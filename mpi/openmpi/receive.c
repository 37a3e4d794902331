/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Received fragments, and progress. */
#include "vicinity.h"

/* Messages and completions in one call, so that other components make progress, too. */
#define MESSAGES_MAX 16
#define COMPLETIONS_MAX 32

/* Without sends and receives that wait, only each of this number of calls looks at the watches. */
#define WATCH_INTERVAL 512

/* Whether this thread is in vicinity_progress: Open MPI's callbacks may make progress themselves. */
static __thread bool progressing;

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
  vicinity_pass_on(&vicinity_module.super, (mca_btl_base_tag_t)match, &segment);
}

/* Fetches a message that is still at its sender: it does not fit into the shared memory at once. */
static void fetch(const mx_unexpected_t *message, uint32_t number) {
  vicinity_module_t *module = &vicinity_module;
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
  module->requests++;
  if (vicinity_mx.irecv(module->endpoint, &segment, 1, message->match_info, MX_MATCH_MASK_NONE,
                        vicinity_context(received, VICINITY_RECEIVE), &request) != MX_SUCCESS) {
    module->requests--;
    free(received);
    vicinity_fail(NULL, "a received fragment cannot be fetched");
    return;
  }
  vicinity_mx.keep_unexpected(module->endpoint, number);
}

static void arrived(const mx_unexpected_t *message, uint32_t number) {
  if (message->match_info == VICINITY_WATCH) {
    vicinity_module.watches++;
    vicinity_mx.keep_unexpected(vicinity_module.endpoint, number);
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

/* Passes the messages that have arrived to Open MPI, which reads them where they arrived. The library
   counts the calls that find nothing, and then yields the processor. */
static int take_messages(void) {
  mx_unexpected_t messages[MESSAGES_MAX];
  uint32_t count = 0;
  if (vicinity_mx.next_unexpected(vicinity_module.endpoint, messages, MESSAGES_MAX, &count) !=
      MX_SUCCESS)
    return 0;
  for (uint32_t i = 0; i < count; i++)
    arrived(&messages[i], i);
  return (int)count;
}

/* Ends completed sends and receives. */
static int complete(void) {
  vicinity_module_t *module = &vicinity_module;
  int count = 0;
  static unsigned calls;
  bool all = ++calls % WATCH_INTERVAL == 0;
  if (all && module->ended != NULL)
    vicinity_check_ended();
  while (count < COMPLETIONS_MAX && (module->requests > 0 || all)) {
    mx_request_t request;
    mx_status_t status;
    uint32_t found = 0;
    if (vicinity_mx.ipeek(module->endpoint, &request, &found) != MX_SUCCESS || !found ||
        vicinity_mx.test(module->endpoint, &request, &status, &found) != MX_SUCCESS || !found)
      break;
    count++;
    uintptr_t context = (uintptr_t)status.context;
    void *owner = (void *)(context & ~(uintptr_t)VICINITY_KINDS);
    if ((context & VICINITY_KINDS) == VICINITY_WATCHING) {
      vicinity_watch_ended(owner, &status);
      continue;
    }
    module->requests--;
    if ((context & VICINITY_KINDS) == VICINITY_RECEIVE)
      received(owner, &status);
    else if ((context & VICINITY_KINDS) == VICINITY_RMA)
      vicinity_rma_completed(owner, &status);
    else
      vicinity_sent(owner, &status);
  }
  return count;
}

int vicinity_progress(void) {
  vicinity_module_t *module = &vicinity_module;
  if (progressing || OPAL_THREAD_TRYLOCK(&module->progress_lock) != 0)
    return 0;
  progressing = true;
  int count = take_messages() + complete();
  progressing = false;
  OPAL_THREAD_UNLOCK(&module->progress_lock);
  return count;
}
