/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Arriving packets: they are checked here, and handled in the order in which a peer sent them.
 *
 * A packet that cannot be handled at once stays in the plane. That is so if its peer has used up
 * what it may make this process keep, or if the packet arrives outside of progress(). Replies
 * overtake such packets, because the peer's own operations may wait for them.
 */
#include "engine.h"

__thread endpoint_t *handling;

/* All packets, and those of a peer. The words of match values are explained in wire.h. */
#define PACKET_MASK (MATCH_BYTES | MATCH_WATCH)
#define HASH_MASK ((uint64_t)0xffffffff << 16)

static bool is_reply(uint64_t match) {
  return (match & 0xff) == PACKET_ACCEPT || (match & 0xff) == PACKET_DONE;
}

static bool is_over(const peer_t *peer) {
  return peer->unexpected > UNEXPECTED_MAX || peer->replies > REPLIES_MAX;
}

static void accepted(endpoint_t *endpoint, peer_t *peer, const uint64_t *words) {
  operation_t *operation = operation_of(endpoint, words[0]);
  if (operation == NULL || operation->peer != peer || !operation->wants_reply ||
      operation->accepted ||
      (operation->kind != OPERATION_OFFER && operation->kind != OPERATION_WRITE_OFFER) ||
      words[2] > operation->length) {
    complain(peer, "it accepts what was not offered");
    return;
  }
  operation->accepted = true;
  operation->wants_reply = operation->confirms && words[2] > 0;
  if (words[2] == 0) {
    finish_if_done(operation);
    return;
  }
  shorten_memory(operation, words[2]);
  if (send_bytes(operation, words[1] & ~MATCH_BYTES) != 0) {
    operation->error = FI_EIO;
    operation->wants_reply = false;
    finish_if_done(operation);
  }
}

static void done(endpoint_t *endpoint, peer_t *peer, const uint64_t *words) {
  operation_t *operation = operation_of(endpoint, words[0]);
  if (operation == NULL || operation->peer != peer || !operation->wants_reply ||
      (operation->kind == OPERATION_OFFER && !operation->accepted)) {
    complain(peer, "it answers what was not asked");
    return;
  }
  operation->wants_reply = false;
  operation->error = words[1] > INT32_MAX ? FI_EIO : (int)words[1];
  if (operation->kind == OPERATION_READ) {
    uint32_t cancelled = 0;
    if (operation->requests > 0 && operation->length > 0 &&
        mx.cancel(endpoint->mx, &operation->request, &cancelled) == MX_SUCCESS && cancelled)
      operation->requests--;
    /* A peer that reports success must have sent the bytes. */
    if (operation->error == 0 && operation->length > 0)
      operation->error = FI_EIO;
  }
  finish_if_done(operation);
}

static bool message(endpoint_t *endpoint, peer_t *peer, bool offer, unsigned flags,
                    const uint64_t *words, const char *bytes, size_t length) {
  uint64_t reply = 0;
  message_t message = {.peer = peer,
                       .tagged = flags & FLAG_TAGGED,
                       .offer = offer,
                       .has_data = flags & FLAG_DATA,
                       .bytes = bytes,
                       .length = length};
  if (message.tagged)
    message.tag = *words++;
  if (message.has_data)
    message.data = *words++;
  if (offer || (flags & FLAG_REPLY))
    reply = *words++;
  if (offer) {
    message.operation = reply;
    message.confirms = flags & FLAG_REPLY;
    message.length = *words;
    if (message.length > MESSAGE_MAX)
      return false;
  }
  if (!message_arrived(endpoint, &message))
    return false;
  if (!offer && (flags & FLAG_REPLY))
    send_reply(endpoint, peer, PACKET_DONE, 2, (uint64_t[]){reply, 0});
  return true;
}

/* Returns the number of words of a packet, or -1 if there is no such packet. */
static int words_of(unsigned kind, unsigned flags) {
  int optional = !!(flags & FLAG_TAGGED) + !!(flags & FLAG_DATA);
  bool reply = flags & FLAG_REPLY;
  switch (kind) {
  case PACKET_MESSAGE:
    return optional + reply;
  case PACKET_OFFER:
    return optional + 2;
  case PACKET_WRITE:
    return flags & ~FLAG_DATA ? -1 : optional + 3;
  case PACKET_WRITE_OFFER:
    return flags & ~FLAG_DATA ? -1 : optional + 4;
  case PACKET_READ:
    return flags ? -1 : 4;
  case PACKET_ACCEPT:
    return flags ? -1 : 3;
  case PACKET_DONE:
    return flags ? -1 : 2;
  default:
    return -1;
  }
}

static void handle(endpoint_t *endpoint, peer_t *peer, uint64_t match, uint32_t length,
                   const char *data) {
  unsigned kind = match & 0xff, flags = match >> 8 & 0xff;
  int count = flags > (FLAG_TAGGED | FLAG_DATA | FLAG_REPLY) ? -1 : words_of(kind, flags);
  size_t used = count < 0 ? 0 : (size_t)count * sizeof(uint64_t);
  uint64_t words[WORDS_MAX];
  bool has_bytes = kind == PACKET_MESSAGE || kind == PACKET_WRITE;
  if (count < 0 || length < used || (length > used && !has_bytes)) {
    complain(peer, "a packet has another length or kind");
    return;
  }
  memcpy(words, data, used);
  const char *bytes = data + used;
  size_t rest = length - used;
  switch (kind) {
  case PACKET_MESSAGE:
  case PACKET_OFFER:
    if (!message(endpoint, peer, kind == PACKET_OFFER, flags, words, bytes, rest))
      complain(peer, "a message is too long, or there is no memory for it");
    break;
  case PACKET_WRITE:
  case PACKET_WRITE_OFFER:
    write_arrived(endpoint, peer, kind == PACKET_WRITE_OFFER, flags, words, bytes, rest);
    break;
  case PACKET_READ:
    read_arrived(endpoint, peer, words);
    break;
  case PACKET_ACCEPT:
    accepted(endpoint, peer, words);
    break;
  case PACKET_DONE:
    done(endpoint, peer, words);
    break;
  }
}

mx_unexp_handler_action_t arrived(void *context, mx_endpoint_addr_t source, uint64_t match,
                                  uint32_t length, void *data) {
  endpoint_t *endpoint = context;
  if (match & MATCH_WATCH)
    return MX_RECV_CONTINUE;
  /* Bytes that no operation waits for (any more), and what is longer than PACKET_MAX or
   * synchronous. */
  if ((match & MATCH_BYTES) || (data == NULL && length > 0))
    return MX_RECV_FINISHED;
  if (handling != endpoint || endpoint->postponed > 0) {
    endpoint->postponed++;
    if (handling != endpoint)
      mx.wakeup(endpoint->mx);
    return MX_RECV_CONTINUE;
  }
  peer_t *peer = peer_of(endpoint, source);
  if (peer == NULL)
    return MX_RECV_FINISHED;
  if ((match & HASH_MASK) != (uint64_t)peer->hash << 16) {
    complain(peer, "it uses the address of another peer");
    return MX_RECV_FINISHED;
  }
  if (!is_reply(match) && (peer->held > 0 || is_over(peer))) {
    peer->held++;
    endpoint->held++;
    return MX_RECV_CONTINUE;
  }
  handle(endpoint, peer, match, length, data);
  return MX_RECV_FINISHED;
}

/* Takes the first packet with this match value out of the plane and handles it. Returns false if
   there is none. */
static bool take(endpoint_t *endpoint, uint64_t match, uint64_t mask, peer_t *only) {
  static __thread char data[PACKET_MAX];
  mx_segment_t segment = {data, sizeof data};
  mx_request_t request;
  mx_status_t status;
  uint32_t found = 0;
  if (mx.iprobe(endpoint->mx, match, mask, &status, &found) != MX_SUCCESS || !found ||
      mx.irecv(endpoint->mx, &segment, 1, match, mask, NULL, &request) != MX_SUCCESS)
    return false;
  /* The packet is in the plane's queue, so the receive has completed. */
  if (mx.test(endpoint->mx, &request, &status, &found) != MX_SUCCESS || !found) {
    mx.cancel(endpoint->mx, &request, &found);
    return false;
  }
  peer_t *peer = peer_of(endpoint, status.source);
  if (peer != NULL && peer->held > 0) {
    peer->held--;
    endpoint->held--;
  } else if (endpoint->postponed > 0) {
    endpoint->postponed--;
  }
  bool own = peer != NULL && (status.match_info & HASH_MASK) == (uint64_t)peer->hash << 16;
  if (own && status.code == MX_STATUS_SUCCESS && (only == NULL || only == peer))
    handle(endpoint, peer, status.match_info, status.xfer_length, data);
  return true;
}

void take_held(endpoint_t *endpoint) {
  endpoint_t *before = handling;
  /* What arrives meanwhile is behind these packets. */
  handling = NULL;
  while (endpoint->postponed > 0 && take(endpoint, 0, PACKET_MASK, NULL))
    continue;
  for (int i = 0; i < 64 && endpoint->held > 0; i++) {
    peer_t *peer;
    LIST_FOREACH (peer, &endpoint->peers[i], link)
      while (peer->held > 0 && !is_over(peer) &&
             take(endpoint, (uint64_t)peer->hash << 16, PACKET_MASK | HASH_MASK, peer))
        continue;
  }
  handling = before;
}
