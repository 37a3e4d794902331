/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Peers that send what no provider sends. They know the address and the key, as a rank of the job
   does. The second process has two endpoints of MX beside that of libfabric: the crook, with which
   the first process exchanges messages, and its accomplice, whom the crook tells all numbers. */
#include "fabric.h"

#include <arpa/inet.h>
#include <endian.h>

#include "../wire.h"
#include "mx_extensions.h"
#include "myriexpress.h"

#define SIZE (1 << 20)

typedef struct {
  uint32_t format, endpoint;
  uint64_t nic;
  uint32_t key, reserved;
} card_t;

typedef struct {
  mx_endpoint_t endpoint;
  mx_endpoint_addr_t target;
  uint32_t hash;
  card_t card;
} liar_t;

static uint32_t hash_of(uint64_t nic, uint32_t id) {
  uint64_t mixed = (nic * 0x9e3779b97f4a7c15 + id) * 0xff51afd7ed558ccd;
  return (uint32_t)(mixed >> 32);
}

static liar_t open_liar(const card_t *to) {
  liar_t liar;
  mx_endpoint_addr_t own;
  uint64_t nic;
  uint32_t id, key = ntohl(to->key);
  CHECK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 0, NULL, 0, &liar.endpoint) == MX_SUCCESS);
  CHECK(mx_get_endpoint_addr(liar.endpoint, &own) == MX_SUCCESS);
  CHECK(mx_decompose_endpoint_addr(own, &nic, &id) == MX_SUCCESS);
  liar.hash = hash_of(nic, id);
  liar.card = (card_t){to->format, htonl(id), htobe64(nic), 0, 0};
  CHECK(mx_connect(liar.endpoint, be64toh(to->nic), ntohl(to->endpoint), key + 1, 5000,
                   &liar.target) == MX_BAD_CONNECTION_KEY);
  CHECK(mx_connect(liar.endpoint, be64toh(to->nic), ntohl(to->endpoint), key, 5000, &liar.target) ==
        MX_SUCCESS);
  return liar;
}

static void lie(liar_t *liar, uint64_t match, const void *bytes, size_t length) {
  mx_segment_t segment = {(void *)bytes, (uint32_t)length};
  mx_request_t request;
  mx_status_t status;
  uint32_t done = 0;
  CHECK(mx_isend(liar->endpoint, &segment, 1, liar->target, match, NULL, &request) == MX_SUCCESS);
  CHECK(mx_wait(liar->endpoint, &request, 10000, &status, &done) == MX_SUCCESS && done);
}

static void lie_words(liar_t *liar, unsigned flags, unsigned kind, uint64_t one, uint64_t two,
                      uint64_t three, unsigned count) {
  uint64_t words[] = {one, two, three};
  lie(liar, MATCH_PACKET(liar->hash, flags, kind), words, count * sizeof *words);
}

/* Returns a word of the next packet of this kind. */
static uint64_t receive_word(liar_t *liar, unsigned kind, unsigned word) {
  uint64_t words[4096];
  mx_segment_t segment = {words, sizeof words};
  mx_request_t request;
  mx_status_t status;
  uint32_t done = 0;
  CHECK(mx_irecv(liar->endpoint, &segment, 1, kind, MATCH_BYTES | MATCH_WATCH | 0xff, NULL,
                 &request) == MX_SUCCESS);
  CHECK(mx_wait(liar->endpoint, &request, 10000, &status, &done) == MX_SUCCESS && done);
  return words[word];
}

/* Packets of all kinds, lengths, flags, with words of all sizes. */
static void lie_in_every_way(liar_t *liar) {
  static uint64_t words[8192];
  unsigned random = 1;
  for (unsigned kind = 0; kind < 10; kind++)
    for (unsigned flags = 0; flags < 17; flags++)
      for (size_t length = 0; length <= 48; length += 4) {
        for (int i = 0; i < 6; i++) {
          random = random * 1103515245 + 12345;
          words[i] = random % 3 == 0 ? random % 16 : (uint64_t)random << (random % 40);
        }
        lie(liar, MATCH_PACKET(liar->hash, flags, kind), words, length);
      }
  lie(liar, MATCH_PACKET(liar->hash, 0, PACKET_MESSAGE), words, 60000);
  mx_segment_t segment = {words, 16};
  CHECK(mx_issend(liar->endpoint, &segment, 1, liar->target,
                  MATCH_PACKET(liar->hash, FLAG_TAGGED, PACKET_MESSAGE), NULL, NULL) == MX_SUCCESS);
  for (uint64_t number = 0; number < 64; number++)
    lie(liar, MATCH_BYTES | number, words, 8);
}

/* The two processes take turns: one of them says that it is done, and waits. */
static void say_done(void) { tell("d", 1); }

static void wait_done(void) {
  char byte;
  hear(&byte, 1);
}

static void honest(void) {
  char *bytes = malloc(SIZE), *got = malloc(SIZE), read[8], text[8], from_other[8];
  int contexts[4];
  card_t card;
  fi_addr_t crook;
  size_t length = sizeof card;
  CHECK(fi_getname(&ep->fid, &card, &length) == 0);
  tell(&card, sizeof card);
  wait_done();
  CHECK(is_silent());
  hear(&card, sizeof card);
  CHECK(fi_av_insert(av, &card, 1, &crook, 0, NULL) == 1);
  fill(bytes, SIZE, 1);
  /* The crook receives the packets of these three, and gives their numbers away. */
  POST(fi_tsend(ep, bytes, SIZE, NULL, crook, 1, &contexts[0]));
  POST(fi_write(ep, bytes, 8, NULL, crook, 0, 1, &contexts[1]));
  POST(fi_read(ep, read, 8, NULL, crook, 0, 1, &contexts[2]));
  POST(fi_trecv(ep, from_other, 8, NULL, other, 78, 0, from_other));
  POST(fi_trecv(ep, text, 8, NULL, crook, 77, 0, text));
  say_done();
  wait_done();
  CHECK(is_silent());
  say_done();
  fail(&contexts[2], FI_EIO); /* the accomplice's bytes */
  /* The number of an operation that has ended is not that of the next one. */
  complete(&contexts[1]);
  complete(&contexts[0]);
  POST(fi_write(ep, bytes, 8, NULL, crook, 0, 1, &contexts[1]));
  say_done();
  wait_done();
  CHECK(is_silent());
  /* Bytes that the crook has announced, from its accomplice; and too few of them. */
  for (int i = 0; i < 2; i++) {
    POST(fi_trecv(ep, got, SIZE, NULL, crook, 80, 0, got));
    fail(got, FI_EIO);
  }
  say_done();
  POST(fi_trecv(ep, got, SIZE, NULL, other, 79, 0, got));
  CHECK(complete(got).len == SIZE && is_filled(got, SIZE, 2));
  CHECK(complete(from_other).len == 6 && !strcmp(from_other, "other"));
  say_done();
  wait_done();
  /* The crook's endpoint is closed. */
  for (int left = 2; left > 0;) {
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    ssize_t got_event = fi_cq_read(cq, &entry, 1);
    CHECK(got_event == -FI_EAGAIN || got_event == -FI_EAVAIL);
    if (got_event == -FI_EAVAIL) {
      CHECK(fi_cq_readerr(cq, &error, 0) == 1 && error.err == FI_ECONNRESET);
      CHECK(error.op_context == &contexts[1] || error.op_context == text);
      left--;
    }
  }
  free(got);
  free(bytes);
}

static void crooked(void) {
  static char junk[SIZE];
  card_t card;
  hear(&card, sizeof card);
  mx_set_error_handler(MX_ERRORS_RETURN);
  CHECK(mx_init() == MX_SUCCESS || true);
  liar_t crook = open_liar(&card), accomplice = open_liar(&card);
  lie_in_every_way(&crook);
  say_done();
  tell(&crook.card, sizeof crook.card);
  uint64_t offer = receive_word(&crook, PACKET_OFFER, 1);
  uint64_t write = receive_word(&crook, PACKET_WRITE, 0);
  uint64_t read = receive_word(&crook, PACKET_READ, 0);
  wait_done();
  lie_words(&accomplice, 0, PACKET_DONE, write, 0, 0, 2);
  lie_words(&accomplice, 0, PACKET_DONE, read, 0, 0, 2);
  lie_words(&accomplice, 0, PACKET_ACCEPT, offer, 1, 8, 3);
  lie_words(&crook, 0, PACKET_ACCEPT, offer, 1, SIZE + 1, 3);
  lie_words(&crook, 0, PACKET_DONE, offer, 0, 0, 2);
  lie_words(&crook, FLAG_TAGGED, PACKET_MESSAGE, 78, 0, 0, 1); /* that is expected from another */
  uint64_t tag = 77;
  lie(&crook, MATCH_PACKET(accomplice.hash, FLAG_TAGGED, PACKET_MESSAGE), &tag, 8);
  say_done();
  wait_done();
  lie(&accomplice, MATCH_BYTES | read, junk, 8);
  lie_words(&crook, 0, PACKET_DONE, write, 0, 0, 2);
  lie_words(&crook, 0, PACKET_ACCEPT, offer, 1, 8,
            3); /* no lie: of the message, it wants 8 bytes */
  receive_word(&crook, PACKET_WRITE, 0);
  wait_done();
  lie_words(&crook, 0, PACKET_DONE, write, 0, 0, 2);
  lie_words(&crook, 0, PACKET_DONE, read, 0, 0, 2);
  say_done();
  for (int i = 0; i < 2; i++) {
    lie_words(&crook, FLAG_TAGGED, PACKET_OFFER, 80, 5, SIZE, 3);
    uint64_t fetch = receive_word(&crook, PACKET_ACCEPT, 1);
    lie(i == 0 ? &accomplice : &crook, MATCH_BYTES | fetch, junk, i == 0 ? SIZE : SIZE - 1);
  }
  wait_done();
  fill(junk, SIZE, 2);
  POST(fi_tsend(ep, junk, SIZE, NULL, other, 79, junk));
  complete(junk);
  POST(fi_tinject(ep, "other", 6, other, 78));
  wait_done(); /* the errors of a lost peer could come before what `other` has sent */
  CHECK(mx_close_endpoint(crook.endpoint) == MX_SUCCESS);
  CHECK(mx_close_endpoint(accomplice.endpoint) == MX_SUCCESS);
  say_done();
}

void liar(bool first) {
  if (first)
    honest();
  else
    crooked();
}
