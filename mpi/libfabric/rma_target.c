/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reads and writes that peers start. Each is compared with the regions of the domain. */
#include "engine.h"

#include "../copy.h"

static void refuse(endpoint_t *endpoint, peer_t *peer, uint64_t number, int error) {
  send_reply(endpoint, peer, PACKET_DONE, 2, (uint64_t[]){number, (uint64_t)error});
}

/* Prepares an operation that a peer has asked for, on this memory. */
static operation_t *prepare(endpoint_t *endpoint, enum operation_kind kind, peer_t *peer,
                            region_t *region, char *memory, uint64_t length) {
  struct iovec iov = {memory, length};
  operation_t *operation = new_operation(endpoint, kind);
  if (operation == NULL)
    return NULL;
  set_memory(operation, &iov, 1);
  operation->peer = peer;
  operation->region = region;
  region->users++;
  peer->replies++;
  return operation;
}

static void receive_write(endpoint_t *endpoint, peer_t *peer, region_t *region, char *memory,
                          uint64_t length, bool has_data, uint64_t data, uint64_t number) {
  operation_t *operation = prepare(endpoint, OPERATION_STORE, peer, region, memory, length);
  if (operation == NULL) {
    refuse(endpoint, peer, number, FI_ENOMEM);
    return;
  }
  operation->has_data = has_data;
  operation->data = data;
  operation->confirms = true;
  operation->answered = number;
  uint64_t words[] = {number, operation_number(operation), length};
  if (receive_bytes(operation, length) != 0) {
    finish(operation, FI_EIO);
    refuse(endpoint, peer, number, FI_ENOMEM);
    return;
  }
  send_reply(endpoint, peer, PACKET_ACCEPT, 3, words);
}

void write_arrived(endpoint_t *endpoint, peer_t *peer, bool offer, unsigned flags,
                   const uint64_t *words, const char *bytes, size_t length) {
  bool has_data = flags & FLAG_DATA;
  uint64_t data = has_data ? *words++ : 0;
  uint64_t number = words[0], key = words[1], address = words[2];
  uint64_t size = offer ? words[3] : length;
  region_t *region = NULL;
  char *memory = region_memory(endpoint->domain, key, address, size, FI_REMOTE_WRITE, &region);
  if (memory == NULL || size > MESSAGE_MAX || (offer && size == 0)) {
    refuse(endpoint, peer, number, FI_EACCES);
    return;
  }
  if (offer) {
    receive_write(endpoint, peer, region, memory, size, has_data, data, number);
    return;
  }
  vicinity_copy(memory, bytes, length);
  counter_t *counter = endpoint->counters[COUNT_REMOTE_WRITE];
  if (counter != NULL)
    __atomic_add_fetch(&counter->value, 1, __ATOMIC_ACQ_REL);
  if (has_data)
    report_remote_write(endpoint, peer, data, length);
  send_reply(endpoint, peer, PACKET_DONE, 2, (uint64_t[]){number, 0});
}

void read_arrived(endpoint_t *endpoint, peer_t *peer, const uint64_t *words) {
  uint64_t number = words[0], key = words[1], address = words[2], length = words[3];
  region_t *region = NULL;
  char *memory = region_memory(endpoint->domain, key, address, length, FI_REMOTE_READ, &region);
  if (memory == NULL || length > MESSAGE_MAX) {
    refuse(endpoint, peer, number, FI_EACCES);
    return;
  }
  if (length == 0) {
    refuse(endpoint, peer, number, 0);
    return;
  }
  operation_t *operation = prepare(endpoint, OPERATION_ANSWER, peer, region, memory, length);
  if (operation == NULL)
    refuse(endpoint, peer, number, FI_ENOMEM);
  else if (send_bytes(operation, number & ~MATCH_BYTES) != 0)
    finish(operation, FI_EIO);
}
