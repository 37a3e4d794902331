/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sends of messages and tagged messages. */
#include "engine.h"

/* Copies the memory of an operation, so that the program may reuse its own at once. */
static int copy_memory(operation_t *operation) {
  size_t length = operation->length;
  if (length > INJECT_MAX)
    return -FI_EMSGSIZE;
  char *copy = length == 0 ? NULL : malloc(length), *next = copy;
  if (copy == NULL && length > 0)
    return -FI_ENOMEM;
  for (uint32_t i = 1; i <= operation->segment_count; i++) {
    mx_segment_t *segment = &operation->segments[i];
    memcpy(next, segment->segment_ptr, segment->segment_length);
    next += segment->segment_length;
  }
  operation->copy = copy;
  operation->segments[1].segment_ptr = copy;
  operation->segments[1].segment_length = (uint32_t)length;
  operation->segment_count = length > 0;
  return 0;
}

int start_operation(endpoint_t *endpoint, enum operation_kind kind, fi_addr_t to,
                    const struct iovec *iov, size_t count, uint64_t flags, bool silent,
                    operation_t **result) {
  peer_t *peer;
  if (!endpoint->enabled)
    return -FI_EOPBADSTATE;
  int error = peer_at(endpoint, to, &peer);
  if (error == -FI_EAGAIN)
    progress(endpoint);
  if (error != 0)
    return error;
  operation_t *operation = new_operation(endpoint, kind);
  if (operation == NULL)
    return -FI_ENOMEM;
  error = set_memory(operation, iov, count);
  if (error == 0 && (flags & FI_INJECT))
    error = copy_memory(operation);
  if (error != 0) {
    free_operation(operation);
    return error;
  }
  operation->peer = peer;
  operation->silent = silent || (endpoint->send_selective && !(flags & FI_COMPLETION));
  *result = operation;
  return 0;
}

static int send(endpoint_t *endpoint, bool tagged, const struct fi_msg_tagged *message,
                uint64_t flags, bool silent) {
  operation_t *operation;
  unsigned words = 0, wire = 0;
  int error = start_operation(endpoint, OPERATION_SEND, message->addr, message->msg_iov,
                              message->iov_count, flags, silent, &operation);
  if (error != 0)
    return error;
  operation->context = message->context;
  operation->flags = FI_SEND | (tagged ? FI_TAGGED : FI_MSG);
  operation->tag = message->tag;
  if (tagged) {
    operation->words[words++] = message->tag;
    wire |= FLAG_TAGGED;
  }
  if (flags & FI_REMOTE_CQ_DATA) {
    operation->words[words++] = message->data;
    wire |= FLAG_DATA;
  }
  operation->wants_reply = flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE);
  operation->confirms = operation->wants_reply;
  bool offer = operation->length + (words + 1) * sizeof(uint64_t) > PACKET_MAX ||
               (flags & FI_MATCH_COMPLETE);
  if (offer || operation->wants_reply)
    operation->words[words++] = operation_number(operation);
  if (operation->wants_reply)
    wire |= FLAG_REPLY;
  if (offer) {
    operation->kind = OPERATION_OFFER;
    operation->words[words++] = operation->length;
    operation->wants_reply = true;
  }
  error = send_packet(operation, offer ? PACKET_OFFER : PACKET_MESSAGE, wire, words, !offer);
  if (error != 0)
    free_operation(operation);
  return error;
}

static ssize_t post(struct fid_ep *ep, bool tagged, const struct fi_msg_tagged *message,
                    uint64_t flags, bool silent) {
  endpoint_t *endpoint = endpoint_of(ep);
  pthread_mutex_lock(&endpoint->domain->lock);
  int result = send(endpoint, tagged, message, flags, silent);
  pthread_mutex_unlock(&endpoint->domain->lock);
  return result;
}

/* The flags of a call without flags. */
static uint64_t flags_of(struct fid_ep *ep) { return endpoint_of(ep)->send_flags; }

static ssize_t send_vector(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                           fi_addr_t to, void *context) {
  struct fi_msg_tagged message = {
      .msg_iov = iov, .desc = desc, .iov_count = count, .addr = to, .context = context};
  return post(ep, false, &message, flags_of(ep), false);
}

static ssize_t send_buffer(struct fid_ep *ep, const void *buffer, size_t length, void *desc,
                           fi_addr_t to, void *context) {
  struct iovec iov = {(void *)buffer, length};
  return send_vector(ep, &iov, &desc, 1, to, context);
}

static ssize_t send_message(struct fid_ep *ep, const struct fi_msg *message, uint64_t flags) {
  struct fi_msg_tagged tagged = {.msg_iov = message->msg_iov,
                                 .desc = message->desc,
                                 .iov_count = message->iov_count,
                                 .addr = message->addr,
                                 .context = message->context,
                                 .data = message->data};
  return post(ep, false, &tagged, flags, false);
}

static ssize_t send_data(struct fid_ep *ep, const void *buffer, size_t length, void *desc,
                         uint64_t data, fi_addr_t to, void *context) {
  struct iovec iov = {(void *)buffer, length};
  struct fi_msg_tagged message = {
      .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = to, .context = context, .data = data};
  return post(ep, false, &message, flags_of(ep) | FI_REMOTE_CQ_DATA, false);
}

/* Injected messages have no completion. */
static ssize_t inject(struct fid_ep *ep, bool tagged, const void *buffer, size_t length,
                      fi_addr_t to, uint64_t tag, uint64_t data, uint64_t flags) {
  struct iovec iov = {(void *)buffer, length};
  struct fi_msg_tagged message = {
      .msg_iov = &iov, .iov_count = 1, .addr = to, .tag = tag, .data = data};
  return post(ep, tagged, &message, flags | FI_INJECT, true);
}

static ssize_t inject_message(struct fid_ep *ep, const void *buffer, size_t length, fi_addr_t to) {
  return inject(ep, false, buffer, length, to, 0, 0, 0);
}

static ssize_t inject_data(struct fid_ep *ep, const void *buffer, size_t length, uint64_t data,
                           fi_addr_t to) {
  return inject(ep, false, buffer, length, to, 0, data, FI_REMOTE_CQ_DATA);
}

static ssize_t tagged_send_vector(struct fid_ep *ep, const struct iovec *iov, void **desc,
                                  size_t count, fi_addr_t to, uint64_t tag, void *context) {
  struct fi_msg_tagged message = {
      .msg_iov = iov, .desc = desc, .iov_count = count, .addr = to, .tag = tag, .context = context};
  return post(ep, true, &message, flags_of(ep), false);
}

static ssize_t tagged_send_buffer(struct fid_ep *ep, const void *buffer, size_t length, void *desc,
                                  fi_addr_t to, uint64_t tag, void *context) {
  struct iovec iov = {(void *)buffer, length};
  return tagged_send_vector(ep, &iov, &desc, 1, to, tag, context);
}

static ssize_t tagged_send_message(struct fid_ep *ep, const struct fi_msg_tagged *message,
                                   uint64_t flags) {
  return post(ep, true, message, flags, false);
}

static ssize_t tagged_send_data(struct fid_ep *ep, const void *buffer, size_t length, void *desc,
                                uint64_t data, fi_addr_t to, uint64_t tag, void *context) {
  struct iovec iov = {(void *)buffer, length};
  struct fi_msg_tagged message = {.msg_iov = &iov,
                                  .desc = &desc,
                                  .iov_count = 1,
                                  .addr = to,
                                  .tag = tag,
                                  .context = context,
                                  .data = data};
  return post(ep, true, &message, flags_of(ep) | FI_REMOTE_CQ_DATA, false);
}

static ssize_t tagged_inject(struct fid_ep *ep, const void *buffer, size_t length, fi_addr_t to,
                             uint64_t tag) {
  return inject(ep, true, buffer, length, to, tag, 0, 0);
}

static ssize_t tagged_inject_data(struct fid_ep *ep, const void *buffer, size_t length,
                                  uint64_t data, fi_addr_t to, uint64_t tag) {
  return inject(ep, true, buffer, length, to, tag, data, FI_REMOTE_CQ_DATA);
}

struct fi_ops_msg message_ops = {
    .size = sizeof(struct fi_ops_msg),
    .recv = receive_buffer,
    .recvv = receive_vector,
    .recvmsg = receive_message,
    .send = send_buffer,
    .sendv = send_vector,
    .sendmsg = send_message,
    .inject = inject_message,
    .senddata = send_data,
    .injectdata = inject_data,
};

struct fi_ops_tagged tagged_ops = {
    .size = sizeof(struct fi_ops_tagged),
    .recv = tagged_receive_buffer,
    .recvv = tagged_receive_vector,
    .recvmsg = tagged_receive_message,
    .send = tagged_send_buffer,
    .sendv = tagged_send_vector,
    .sendmsg = tagged_send_message,
    .inject = tagged_inject,
    .senddata = tagged_send_data,
    .injectdata = tagged_inject_data,
};
