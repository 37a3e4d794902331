/* Calls of this library only, for programs that match messages themselves. */
#include "check.h"

static unsigned char out[100000], in[100000];

static const uint32_t lengths[] = {0, 7, 8, 24, 48, 49, 4096, 32768, 32769, 100000};
#define LENGTHS (sizeof lengths / sizeof *lengths)
#define ROUNDS 20

/* Two messages of at most 24 bytes share a cache line if their match values have 16 bits. */
static uint64_t match_of(unsigned i) { return i / LENGTHS % 4 == 0 ? i + 65536 : i; }

/* Sends a message of at most 24 bytes in words. */
static uint32_t inject_words(side_t s, uint32_t length, uint64_t match) {
  uint64_t words[3] = {0};
  uint32_t sent = 7;
  memcpy(words, out, length);
  OK(mx_inject_words(s.endpoint, words, length, s.peer, match, &sent));
  return sent;
}

/* Sends a message in up to SEGMENTS segments, the first ones of different lengths; returns whether it left at once. */
#define SEGMENTS 4
static uint32_t inject(side_t s, uint32_t length, uint64_t match) {
  mx_segment_t segments[SEGMENTS];
  uint32_t count = match / LENGTHS % (SEGMENTS + 1), sent = 7, at = 0;
  if (length <= 24 && count % 2 == 0)
    return inject_words(s, length, match);
  if (count == 0 && length > 0)
    count = 1;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t rest = length - at, part = i + 1 < count ? rest / 3 : rest;
    segments[i] = (mx_segment_t){part > 0 ? out + at : NULL, part};
    at += part;
  }
  OK(mx_inject(s.endpoint, segments, count, s.peer, match, &sent));
  CHECK(sent <= 1);
  return sent;
}

static void sender(void) {
  side_t s = open_side(1, 2);
  uint32_t sent;
  fill(out, sizeof out, 5);
  for (uint32_t count = 1; count <= SEGMENTS; count++) {
    mx_segment_t segments[SEGMENTS] = {{out, 1}, {out, 1}, {out, 1}, {out, 1}};
    segments[count - 1].segment_ptr = NULL;
    RETURNS(MX_BAD_SEG_MEM, mx_inject(s.endpoint, segments, count, s.peer, 1, &sent));
    segments[count - 1].segment_length = UINT32_MAX;
    RETURNS(count > 1 ? MX_BAD_SEG_LIST : MX_BAD_SEG_MEM, mx_inject(s.endpoint, segments, count, s.peer, 1, &sent));
    RETURNS(MX_BAD_SEG_LIST, mx_inject(s.endpoint, NULL, count, s.peer, 1, &sent));
  }
  const uint64_t words[3] = {0};
  RETURNS(MX_BAD_SEG_LIST, mx_inject_words(s.endpoint, words, 25, s.peer, 1, &sent));
  RETURNS(MX_BAD_SEG_LIST, mx_inject_words(s.endpoint, NULL, 8, s.peer, 1, &sent));
  RETURNS(MX_BAD_ENDPOINT, mx_inject_words(NULL, words, 8, s.peer, 1, &sent));
  for (unsigned i = 0; i < ROUNDS * LENGTHS; i++) {
    uint32_t length = lengths[i % LENGTHS];
    if (inject(s, length, match_of(i))) {
      CHECK(length <= 32768);
      continue;
    }
    mx_request_t request = start(s.endpoint, s.peer, out, length, match_of(i));
    finish(s.endpoint, &request);
  }
  mx_request_t request = start_sync(s.endpoint, s.peer, out, 8, ROUNDS * LENGTHS);
  CHECK(finish(s.endpoint, &request).xfer_length == 8);
  barrier(s.endpoint, s.peer);
  close_side(s);
}

/* At most so many messages at once, in turn; the library may return fewer. */
static const uint32_t at_once[] = {1, 3, 100};
#define AT_ONCE_MAX 100

static uint32_t next(mx_endpoint_t endpoint, mx_unexpected_t *messages) {
  static unsigned calls;
  uint32_t most = at_once[calls++ % 3], found = 0;
  while (!found)
    OK(mx_next_unexpected(endpoint, messages, most, &found));
  CHECK(found <= most);
  return found;
}

static void take(side_t r, const mx_unexpected_t *message, uint32_t number, unsigned i) {
  uint32_t length = lengths[i % LENGTHS];
  CHECK(message->match_info == match_of(i) && message->length == length);
  CHECK(!memcmp(&message->source, &r.peer, sizeof r.peer));
  if (message->data != NULL)
    CHECK(is_filled(message->data, length, 5));
  /* A receiver that may not read the sender's memory has granted credits. */
  CHECK(message->data != NULL ? length <= 65536 : length > 32768);
  if (message->data != NULL && i % 3 != 0)
    return;
  memset(in, 0, sizeof in);
  mx_request_t request = post(r.endpoint, in, sizeof in, match_of(i), MX_MATCH_MASK_NONE);
  OK(mx_keep_unexpected(r.endpoint, number));
  mx_status_t status = finish(r.endpoint, &request);
  CHECK(status.xfer_length == length && is_filled(in, length, 5));
}

static void receiver(void) {
  mx_unexpected_t messages[AT_ONCE_MAX];
  mx_param_t parameters[] = {{.key = MX_PARAM_IN_PLACE, .val.unexp_queue_max = 1},
                             {.key = MX_PARAM_SERIALIZED, .val.unexp_queue_max = 1}};
  side_t r = open_side_with(2, 1, parameters, 2);
  OK(mx_keep_unexpected(r.endpoint, 0)); /* there is none */
  for (unsigned i = 0; i < ROUNDS * LENGTHS;) {
    uint32_t found = next(r.endpoint, messages);
    for (uint32_t number = 0; number < found; number++)
      take(r, &messages[number], number, i++);
  }
  CHECK(next(r.endpoint, messages) == 1);
  CHECK(messages->length == 8 && messages->data == NULL);
  OK(mx_keep_unexpected(r.endpoint, 0));
  mx_request_t request = post(r.endpoint, in, sizeof in, messages->match_info, MX_MATCH_MASK_NONE);
  CHECK(finish(r.endpoint, &request).xfer_length == 8);
  barrier(r.endpoint, r.peer);
  close_side(r);
}

int main(void) { return both(receiver, sender); }
