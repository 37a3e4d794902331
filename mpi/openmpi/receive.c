/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Received fragments, and progress. */
#include "vicinity.h"

/* Completions in one call, so that other components make progress, too. */
#define COMPLETIONS_MAX 32

/* Whether this thread is in vicinity_progress, where Open MPI expects its callbacks. */
static __thread bool progressing;

/* Number of fragments that Open MPI got in this call of vicinity_progress. */
static __thread int delivered;

/* Without sends and receives that wait, only each of this number of calls looks at the watches. */
#define WATCH_INTERVAL 512

static void deliver(mx_endpoint_addr_t source, uint64_t match, void *data, size_t length) {
  mca_btl_base_tag_t tag = (mca_btl_base_tag_t)match;
  mca_btl_base_segment_t segment = {.seg_addr.pval = data, .seg_len = length};
  mca_btl_base_descriptor_t descriptor = {.des_segments = &segment, .des_segment_count = 1};
  const mca_btl_active_message_callback_t *call = &mca_btl_base_active_message_trigger[tag];
  delivered++;
  if (match == VICINITY_RMA_ANSWER) {
    vicinity_answered(source, data, length);
    return;
  }
  if (call->cbfunc != NULL)
    call->cbfunc(&vicinity_module.super, tag, &descriptor, call->cbdata);
}

static vicinity_received_t *make_received(mx_endpoint_addr_t source, uint64_t match,
                                          uint32_t length) {
  vicinity_received_t *received = malloc(sizeof *received + length);
  if (received == NULL)
    return NULL;
  OBJ_CONSTRUCT(&received->super, opal_list_item_t);
  received->source = source;
  received->match = match;
  received->length = length;
  return received;
}

static void defer(vicinity_received_t *received) {
  vicinity_module_t *module = &vicinity_module;
  OPAL_THREAD_LOCK(&module->deferred_lock);
  opal_list_append(&module->deferred, &received->super);
  OPAL_THREAD_UNLOCK(&module->deferred_lock);
  module->queued++;
}

static void deliver_deferred(void) {
  vicinity_module_t *module = &vicinity_module;
  while (module->queued > 0) {
    OPAL_THREAD_LOCK(&module->deferred_lock);
    vicinity_received_t *received =
        (vicinity_received_t *)opal_list_remove_first(&module->deferred);
    OPAL_THREAD_UNLOCK(&module->deferred_lock);
    if (received == NULL)
      return;
    module->queued--;
    deliver(received->source, received->match, received->data, received->length);
    free(received);
  }
}

/* The library calls this for each message, because no receive is posted. */
mx_unexp_handler_action_t vicinity_arrived(void *context, mx_endpoint_addr_t source,
                                           uint64_t match, uint32_t length, void *data) {
  vicinity_module_t *module = &vicinity_module;
  (void)context;
  if (match == VICINITY_WATCH) {
    module->watches++;
    return MX_RECV_CONTINUE;
  }
  if (match == VICINITY_RMA_REQUEST) {
    vicinity_requested(source, data, data == NULL ? 0 : length);
    return MX_RECV_FINISHED;
  }
  if ((data != NULL || length == 0) && progressing) {
    deliver(source, match, data, length);
    return MX_RECV_FINISHED;
  }
  vicinity_received_t *received = make_received(source, match, length);
  if (received == NULL) {
    vicinity_fail(NULL, "no memory for a received fragment");
    return MX_RECV_FINISHED;
  }
  if (data != NULL || length == 0) {
    memcpy(received->data, data, length);
    defer(received);
    return MX_RECV_FINISHED;
  }
  /* No message can arrive before this function returns, so this receive gets this message. */
  mx_segment_t segment = {received->data, length};
  mx_request_t request;
  module->requests++;
  if (vicinity_mx.irecv(module->endpoint, &segment, 1, match, MX_MATCH_MASK_NONE,
                        vicinity_context(received, VICINITY_RECEIVE), &request) != MX_SUCCESS) {
    module->requests--;
    free(received);
    vicinity_fail(NULL, "a received fragment cannot be fetched");
    return MX_RECV_FINISHED;
  }
  return MX_RECV_CONTINUE;
}

static void received(vicinity_received_t *received, const mx_status_t *status) {
  if (status->code == MX_STATUS_SUCCESS)
    deliver(received->source, received->match, received->data, received->length);
  else
    vicinity_fail(NULL, vicinity_mx.strstatus(status->code));
  free(received);
}

/* Ends completed sends and receives. If this process was idle, looks for completions in any case: the
   library counts the looks that find nothing, and then yields the processor. */
static int complete(bool idle) {
  vicinity_module_t *module = &vicinity_module;
  int count = 0;
  static unsigned calls;
  bool all = ++calls % WATCH_INTERVAL == 0;
  if (all && module->ended != NULL)
    vicinity_check_ended();
  all = all || idle;
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
  static bool idle; /* the last call found nothing */
  if (progressing || OPAL_THREAD_TRYLOCK(&module->progress_lock) != 0)
    return 0;
  progressing = true;
  delivered = 0;
  deliver_deferred();
  /* Looking for completions makes progress, too. */
  if (!idle)
    vicinity_mx.progress(module->endpoint);
  int count = complete(idle) + delivered;
  idle = count == 0;
  progressing = false;
  OPAL_THREAD_UNLOCK(&module->progress_lock);
  return count;
}
