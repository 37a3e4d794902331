/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reads and writes of peers' memory, at the side that starts them. A write is complete when the
   bytes are in the peer's memory, or when the peer has refused it. */
#include "engine.h"

static int write_memory(endpoint_t *endpoint, const struct fi_msg_rma *message, uint64_t flags,
                        bool silent) {
  operation_t *operation;
  unsigned words = 0, wire = 0;
  int error = start_operation(endpoint, OPERATION_WRITE, message->addr, message->msg_iov,
                              message->iov_count, flags, silent, &operation);
  if (error != 0)
    return error;
  operation->context = message->context;
  operation->flags = FI_RMA | FI_WRITE;
  operation->wants_reply = true;
  if (flags & FI_REMOTE_CQ_DATA) {
    operation->words[words++] = message->data;
    wire |= FLAG_DATA;
  }
  operation->words[words++] = operation_number(operation);
  operation->words[words++] = message->rma_iov[0].key;
  operation->words[words++] = message->rma_iov[0].addr;
  bool offer = operation->length + words * sizeof(uint64_t) > PACKET_MAX;
  if (offer) {
    operation->kind = OPERATION_WRITE_OFFER;
    operation->confirms = true;
    operation->words[words++] = operation->length;
  }
  error = send_packet(operation, offer ? PACKET_WRITE_OFFER : PACKET_WRITE, wire, words, !offer);
  if (error != 0)
    free_operation(operation);
  return error;
}

static int read_memory(endpoint_t *endpoint, const struct fi_msg_rma *message, uint64_t flags) {
  operation_t *operation;
  int error = start_operation(endpoint, OPERATION_READ, message->addr, message->msg_iov,
                              message->iov_count, flags & ~FI_INJECT, false, &operation);
  if (error != 0)
    return error;
  operation->context = message->context;
  operation->flags = FI_RMA | FI_READ;
  operation->wants_reply = true;
  operation->words[0] = operation_number(operation);
  operation->words[1] = message->rma_iov[0].key;
  operation->words[2] = message->rma_iov[0].addr;
  operation->words[3] = operation->length;
  if (operation->length > 0)
    error = receive_bytes(operation, operation->length);
  if (error == 0)
    error = send_packet(operation, PACKET_READ, 0, 4, false);
  if (error == 0)
    return 0;
  uint32_t cancelled = 0;
  if (operation->requests > 0)
    mx.cancel(endpoint->mx, &operation->request, &cancelled);
  free_operation(operation);
  return error;
}

static size_t length_of(const struct iovec *iov, size_t count) {
  size_t length = 0;
  for (size_t i = 0; i < count; i++)
    length += iov[i].iov_len;
  return length;
}

static ssize_t post(struct fid_ep *ep, bool read, const struct fi_msg_rma *message, uint64_t flags,
                    bool silent) {
  endpoint_t *endpoint = endpoint_of(ep);
  if (message->rma_iov_count != 1 ||
      message->rma_iov[0].len != length_of(message->msg_iov, message->iov_count))
    return -FI_EINVAL;
  pthread_mutex_lock(&endpoint->domain->lock);
  int result =
      read ? read_memory(endpoint, message, flags) : write_memory(endpoint, message, flags, silent);
  pthread_mutex_unlock(&endpoint->domain->lock);
  return result;
}

/* A call with the arguments of the simple functions. */
static ssize_t call(struct fid_ep *ep, bool read, const struct iovec *iov, size_t count,
                    fi_addr_t peer, uint64_t address, uint64_t key, uint64_t data, uint64_t flags,
                    bool silent, void *context) {
  struct fi_rma_iov remote = {.addr = address, .len = length_of(iov, count), .key = key};
  struct fi_msg_rma message = {.msg_iov = iov,
                               .iov_count = count,
                               .addr = peer,
                               .rma_iov = &remote,
                               .rma_iov_count = 1,
                               .context = context,
                               .data = data};
  return post(ep, read, &message, flags, silent);
}

static uint64_t flags_of(struct fid_ep *ep) { return endpoint_of(ep)->send_flags; }

static ssize_t read_vector(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                           fi_addr_t from, uint64_t address, uint64_t key, void *context) {
  (void)desc;
  return call(ep, true, iov, count, from, address, key, 0, flags_of(ep), false, context);
}

static ssize_t read_buffer(struct fid_ep *ep, void *buffer, size_t length, void *desc,
                           fi_addr_t from, uint64_t address, uint64_t key, void *context) {
  struct iovec iov = {buffer, length};
  return read_vector(ep, &iov, &desc, 1, from, address, key, context);
}

static ssize_t read_message(struct fid_ep *ep, const struct fi_msg_rma *message, uint64_t flags) {
  return post(ep, true, message, flags, false);
}

static ssize_t write_vector(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                            fi_addr_t to, uint64_t address, uint64_t key, void *context) {
  (void)desc;
  return call(ep, false, iov, count, to, address, key, 0, flags_of(ep), false, context);
}

static ssize_t write_buffer(struct fid_ep *ep, const void *buffer, size_t length, void *desc,
                            fi_addr_t to, uint64_t address, uint64_t key, void *context) {
  struct iovec iov = {(void *)buffer, length};
  return write_vector(ep, &iov, &desc, 1, to, address, key, context);
}

static ssize_t write_message(struct fid_ep *ep, const struct fi_msg_rma *message, uint64_t flags) {
  return post(ep, false, message, flags, false);
}

static ssize_t write_data(struct fid_ep *ep, const void *buffer, size_t length, void *desc,
                          uint64_t data, fi_addr_t to, uint64_t address, uint64_t key,
                          void *context) {
  struct iovec iov = {(void *)buffer, length};
  (void)desc;
  return call(ep, false, &iov, 1, to, address, key, data, flags_of(ep) | FI_REMOTE_CQ_DATA, false,
              context);
}

static ssize_t inject_write(struct fid_ep *ep, const void *buffer, size_t length, fi_addr_t to,
                            uint64_t address, uint64_t key) {
  struct iovec iov = {(void *)buffer, length};
  return call(ep, false, &iov, 1, to, address, key, 0, FI_INJECT, true, NULL);
}

static ssize_t inject_write_data(struct fid_ep *ep, const void *buffer, size_t length,
                                 uint64_t data, fi_addr_t to, uint64_t address, uint64_t key) {
  struct iovec iov = {(void *)buffer, length};
  return call(ep, false, &iov, 1, to, address, key, data, FI_INJECT | FI_REMOTE_CQ_DATA, true,
              NULL);
}

struct fi_ops_rma rma_ops = {
    .size = sizeof(struct fi_ops_rma),
    .read = read_buffer,
    .readv = read_vector,
    .readmsg = read_message,
    .write = write_buffer,
    .writev = write_vector,
    .writemsg = write_message,
    .inject = inject_write,
    .writedata = write_data,
    .injectdata = inject_write_data,
};
