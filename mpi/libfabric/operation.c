/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Operations: their numbers, their memory and their end. */
#include "engine.h"

#include "../copy.h"

operation_t *new_operation(endpoint_t *endpoint, enum operation_kind kind) {
  operation_t *operation = TAILQ_FIRST(&endpoint->free_operations);
  if (operation != NULL) {
    uint32_t index = operation->index, generation = operation->generation;
    TAILQ_REMOVE(&endpoint->free_operations, operation, link);
    memset(operation, 0, offsetof(operation_t, segments));
    operation->index = index;
    operation->generation = generation;
    operation->copy = NULL;
  } else {
    if (endpoint->operation_count == endpoint->operation_capacity) {
      uint32_t capacity =
          endpoint->operation_capacity == 0 ? 256 : endpoint->operation_capacity * 2;
      operation_t **table = realloc(endpoint->operations, capacity * sizeof *table);
      if (table == NULL)
        return NULL;
      endpoint->operations = table;
      endpoint->operation_capacity = capacity;
    }
    operation = calloc(1, sizeof *operation);
    if (operation == NULL)
      return NULL;
    operation->index = endpoint->operation_count;
    endpoint->operations[endpoint->operation_count++] = operation;
  }
  operation->kind = kind;
  operation->endpoint = endpoint;
  operation->source = FI_ADDR_NOTAVAIL;
  return operation;
}

void free_operation(operation_t *operation) {
  endpoint_t *endpoint = operation->endpoint;
  free(operation->copy);
  operation->copy = NULL;
  operation->kind = 0;
  operation->generation++;
  TAILQ_INSERT_HEAD(&endpoint->free_operations, operation, link);
}

/* Bits 0 to 23 are the index, 24 to 55 the number of times that the index was used before. Other
   bits of a match value are used for MATCH_BYTES. */
uint64_t operation_number(const operation_t *operation) {
  return (uint64_t)operation->generation << 24 | operation->index;
}

operation_t *operation_of(endpoint_t *endpoint, uint64_t number) {
  uint32_t index = number & 0xffffff;
  if (index >= endpoint->operation_count)
    return NULL;
  operation_t *operation = endpoint->operations[index];
  bool fits = operation->kind != 0 && operation_number(operation) == number;
  return fits ? operation : NULL;
}

int set_memory(operation_t *operation, const struct iovec *iov, size_t count) {
  size_t length = 0;
  if (count > IOV_MAX_COUNT)
    return -FI_EINVAL;
  for (size_t i = 0; i < count; i++) {
    if (iov[i].iov_len > MESSAGE_MAX - length)
      return -FI_EMSGSIZE;
    operation->segments[i + 1].segment_ptr = iov[i].iov_base;
    operation->segments[i + 1].segment_length = (uint32_t)iov[i].iov_len;
    length += iov[i].iov_len;
  }
  operation->segment_count = (uint32_t)count;
  operation->buffer = count == 0 ? NULL : iov[0].iov_base;
  operation->length = length;
  return 0;
}

size_t fill_memory(operation_t *operation, const void *bytes, size_t length) {
  const char *next = bytes;
  size_t left = length;
  for (uint32_t i = 1; i <= operation->segment_count && left > 0; i++) {
    size_t part = operation->segments[i].segment_length;
    if (part > left)
      part = left;
    vicinity_copy(operation->segments[i].segment_ptr, next, part);
    next += part;
    left -= part;
  }
  return length - left;
}

void shorten_memory(operation_t *operation, size_t length) {
  uint32_t count = 0;
  while (count < operation->segment_count && length > 0) {
    mx_segment_t *segment = &operation->segments[++count];
    if (segment->segment_length > length)
      segment->segment_length = (uint32_t)length;
    length -= segment->segment_length;
  }
  operation->segment_count = count;
}

static void count(endpoint_t *endpoint, enum counter_kind kind, bool failed) {
  counter_t *counter = endpoint->counters[kind];
  if (counter != NULL)
    __atomic_add_fetch(failed ? &counter->errors : &counter->value, 1, __ATOMIC_ACQ_REL);
}

static void report(operation_t *operation, queue_t *queue, int error) {
  endpoint_t *endpoint = operation->endpoint;
  bool received = operation->flags & FI_RECV;
  if (queue == NULL || (operation->silent && error == 0))
    return;
  event_t event = {
      .context = operation->context,
      .flags = operation->flags | (received && operation->has_data ? FI_REMOTE_CQ_DATA : 0),
      .length = received ? operation->taken : operation->length,
      .buffer = operation->buffer,
      .data = received ? operation->data : 0,
      .tag = operation->tag,
      .source = received && operation->peer != NULL ? peer_index(endpoint, operation->peer)
                                                    : FI_ADDR_NOTAVAIL,
      .excess = operation->excess,
      .error = error,
  };
  queue_add(queue, &event);
}

/* A transfer has filled a part of a multi-receive buffer. The last one returns the buffer. */
static void leave_parent(operation_t *operation) {
  operation_t *parent = operation->parent;
  if (parent == NULL)
    return;
  parent->pieces--;
  if (!parent->linked && parent->pieces == 0) {
    operation->flags |= FI_MULTI_RECV;
    free_operation(parent);
  }
}

/* Ends what a peer has asked for. */
static void finish_for_peer(operation_t *operation, int error) {
  operation->peer->replies--;
  if (operation->region != NULL)
    operation->region->users--;
  if (operation->kind != OPERATION_STORE || error != 0)
    return;
  count(operation->endpoint, COUNT_REMOTE_WRITE, false);
  if (operation->has_data)
    report_remote_write(operation->endpoint, operation->peer, operation->data, operation->length);
}

void finish(operation_t *operation, int error) {
  endpoint_t *endpoint = operation->endpoint;
  bool failed = error != 0;
  switch (operation->kind) {
  case OPERATION_SEND:
  case OPERATION_OFFER:
    count(endpoint, COUNT_SEND, failed);
    report(operation, endpoint->send_queue, error);
    break;
  case OPERATION_RECEIVE:
  case OPERATION_FETCH:
    leave_parent(operation);
    count(endpoint, COUNT_RECV, failed);
    report(operation, endpoint->receive_queue, error);
    break;
  case OPERATION_WRITE:
  case OPERATION_WRITE_OFFER:
    count(endpoint, COUNT_WRITE, failed);
    report(operation, endpoint->send_queue, error);
    break;
  case OPERATION_READ:
    count(endpoint, COUNT_READ, failed);
    report(operation, endpoint->send_queue, error);
    break;
  case OPERATION_REPLY:
  case OPERATION_ANSWER:
  case OPERATION_STORE:
    finish_for_peer(operation, error);
    break;
  case OPERATION_CONNECT:
  case OPERATION_WATCH:
    break;
  }
  free_operation(operation);
}

void finish_if_done(operation_t *operation) {
  if (operation->requests == 0 && !operation->wants_reply)
    finish(operation, operation->error);
}

void report_remote_write(endpoint_t *endpoint, const peer_t *peer, uint64_t data, size_t length) {
  event_t event = {
      .flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
      .length = length,
      .data = data,
      .source = peer_index(endpoint, peer),
  };
  if (endpoint->receive_queue != NULL)
    queue_add(endpoint->receive_queue, &event);
}
