/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Matching: receives in the order in which they were posted, messages in the order of arrival. */
#include "engine.h"

#include <arpa/inet.h>
#include <endian.h>

static bool source_fits(endpoint_t *endpoint, fi_addr_t source, const peer_t *peer) {
  if (source == FI_ADDR_UNSPEC)
    return true;
  const address_t *address = address_at(endpoint->addresses, source);
  return address != NULL && be64toh(address->nic) == peer->nic &&
         ntohl(address->endpoint) == peer->id;
}

static bool tag_fits(uint64_t tag, uint64_t wanted, uint64_t ignore) {
  return ((tag ^ wanted) & ~ignore) == 0;
}

static operation_t *find_posted(endpoint_t *endpoint, matching_t *matching,
                                const message_t *message) {
  operation_t *operation;
  TAILQ_FOREACH (operation, &matching->posted, link)
    if (tag_fits(message->tag, operation->tag, operation->ignore) &&
        source_fits(endpoint, operation->source, message->peer))
      break;
  return operation;
}

/* Returns the operation that receives the next message of a multi-receive buffer. */
static operation_t *part_of(operation_t *parent, matching_t *matching, size_t length) {
  endpoint_t *endpoint = parent->endpoint;
  size_t room = parent->length - parent->taken;
  operation_t *part = new_operation(endpoint, OPERATION_RECEIVE);
  if (part == NULL)
    return NULL;
  if (length > room)
    length = room;
  struct iovec iov = {(char *)parent->buffer + parent->taken, length};
  set_memory(part, &iov, 1);
  part->context = parent->context;
  part->flags = parent->flags;
  part->silent = parent->silent;
  part->parent = parent;
  parent->pieces++;
  parent->taken += length;
  if (parent->length - parent->taken < endpoint->multi_min || parent->taken == parent->length) {
    TAILQ_REMOVE(&matching->posted, parent, link);
    parent->linked = false;
  }
  return part;
}

/* Gives a message to a receive that is in no list any more. */
static void give(endpoint_t *endpoint, operation_t *operation, const message_t *message) {
  size_t fits = message->length < operation->length ? message->length : operation->length;
  operation->peer = message->peer;
  operation->tag = message->tag;
  operation->data = message->data;
  operation->has_data = message->has_data;
  operation->excess = message->length - fits;
  if (!message->offer) {
    operation->taken = fill_memory(operation, message->bytes, fits);
    finish(operation, operation->excess > 0 ? FI_ETRUNC : 0);
    return;
  }
  operation->kind = OPERATION_FETCH;
  operation->confirms = message->confirms;
  operation->answered = message->operation;
  uint64_t words[] = {message->operation, operation_number(operation), fits};
  if (fits == 0) {
    finish(operation, operation->excess > 0 ? FI_ETRUNC : 0);
  } else if (message->peer->lost) {
    finish(operation, FI_ECONNRESET);
    return;
  } else if (receive_bytes(operation, fits) != 0) {
    finish(operation, FI_EIO);
    return;
  }
  send_reply(endpoint, message->peer, PACKET_ACCEPT, 3, words);
}

static bool keep(endpoint_t *endpoint, matching_t *matching, const message_t *message) {
  size_t length = message->offer ? 0 : message->length;
  unexpected_t *kept = malloc(sizeof *kept + length);
  (void)endpoint;
  if (kept == NULL)
    return false;
  *kept = (unexpected_t){
      .peer = message->peer,
      .offer = message->offer,
      .confirms = message->confirms,
      .has_data = message->has_data,
      .tag = message->tag,
      .data = message->data,
      .operation = message->operation,
      .length = message->length,
  };
  if (length > 0)
    memcpy(kept->bytes, message->bytes, length);
  message->peer->unexpected += length + UNEXPECTED_OVERHEAD;
  TAILQ_INSERT_TAIL(&matching->unexpected, kept, link);
  return true;
}

bool message_arrived(endpoint_t *endpoint, const message_t *message) {
  matching_t *matching = message->tagged ? &endpoint->tagged : &endpoint->messages;
  operation_t *operation = find_posted(endpoint, matching, message);
  if (operation == NULL)
    return keep(endpoint, matching, message);
  if (operation->multi) {
    operation = part_of(operation, matching, message->length);
    if (operation == NULL)
      return false;
  } else {
    TAILQ_REMOVE(&matching->posted, operation, link);
    operation->linked = false;
  }
  give(endpoint, operation, message);
  return true;
}

unexpected_t *find_unexpected(endpoint_t *endpoint, matching_t *matching, fi_addr_t source,
                              uint64_t tag, uint64_t ignore) {
  unexpected_t *message;
  TAILQ_FOREACH (message, &matching->unexpected, link)
    if (tag_fits(message->tag, tag, ignore) && source_fits(endpoint, source, message->peer))
      break;
  return message;
}

static void free_unexpected(unexpected_t *message) {
  message->peer->unexpected -= (message->offer ? 0 : message->length) + UNEXPECTED_OVERHEAD;
  free(message);
}

void receive_unexpected(endpoint_t *endpoint, unexpected_t *kept, operation_t *operation) {
  message_t message = {
      .peer = kept->peer,
      .offer = kept->offer,
      .confirms = kept->confirms,
      .has_data = kept->has_data,
      .tag = kept->tag,
      .data = kept->data,
      .operation = kept->operation,
      .bytes = kept->bytes,
      .length = kept->length,
  };
  give(endpoint, operation, &message);
  free_unexpected(kept);
}

void drop_unexpected(endpoint_t *endpoint, unexpected_t *message) {
  if (message->offer)
    send_reply(endpoint, message->peer, PACKET_ACCEPT, 3, (uint64_t[]){message->operation, 0, 0});
  free_unexpected(message);
}

bool match_arrived(endpoint_t *endpoint, matching_t *matching, operation_t *operation) {
  for (;;) {
    unexpected_t *message =
        find_unexpected(endpoint, matching, operation->source, operation->tag, operation->ignore);
    if (message == NULL)
      return false;
    TAILQ_REMOVE(&matching->unexpected, message, link);
    if (!operation->multi) {
      receive_unexpected(endpoint, message, operation);
      return true;
    }
    operation_t *part = part_of(operation, matching, message->length);
    if (part == NULL) {
      TAILQ_INSERT_HEAD(&matching->unexpected, message, link);
      return true;
    }
    bool full = !operation->linked;
    receive_unexpected(endpoint, message, part);
    if (full)
      return true;
  }
}

void fail_receives(endpoint_t *endpoint, matching_t *matching, fi_addr_t source, int error) {
  operation_t *operation, *next;
  (void)endpoint;
  for (operation = TAILQ_FIRST(&matching->posted); operation != NULL; operation = next) {
    next = TAILQ_NEXT(operation, link);
    if (operation->source != source)
      continue;
    TAILQ_REMOVE(&matching->posted, operation, link);
    operation->linked = false;
    if (operation->multi && operation->pieces > 0)
      continue;
    finish(operation, error);
  }
}
