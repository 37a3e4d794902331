/* Section 6.4: size classes, segments, and messages of an endpoint to itself. */
#include "check.h"

static unsigned char out[200000], in[200000];

/* Splits a buffer into segments of odd lengths at odd addresses, some of them empty. */
static uint32_t split(unsigned char *memory, uint32_t length, mx_segment_t *list,
                    uint32_t count) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t piece = i % 5 == 4 ? 0 : length / count | 1;
    if (i == count - 1 || piece > length - at)
      piece = length - at;
    list[i].segment_ptr = piece ? memory + at : NULL;
    list[i].segment_length = piece;
    at += piece;
  }
  return at;
}

static const uint32_t lengths[] = {5, 47, 48, 49, 1000, 32768, 32769, 199000};
#define LENGTHS (sizeof lengths / sizeof *lengths)

static void sender(void) {
  side_t s = open_side(1, 2);
  mx_segment_t list[257] = {{NULL, 0}};
  mx_request_t request;
  mx_status_t status;
  fill(out + 1, sizeof out - 1, 9);
  for (unsigned i = 0; i < LENGTHS; i++) {
    CHECK(split(out + 1, lengths[i], list, 256) == lengths[i]);
    OK(mx_isend(s.endpoint, list, 256, s.peer, i, NULL, &request));
    CHECK(finish(s.endpoint, &request).xfer_length == lengths[i]);
  }
  OK(mx_isend(s.endpoint, NULL, 0, s.peer, 100, NULL, &request));
  CHECK(finish(s.endpoint, &request).msg_length == 0);
  RETURNS(MX_BAD_SEG_CNT, mx_isend(s.endpoint, list, 257, s.peer, 0, NULL, &request));
  RETURNS(MX_BAD_SEG_LIST, mx_isend(s.endpoint, NULL, 1, s.peer, 0, NULL, &request));
  list[0].segment_ptr = NULL;
  list[0].segment_length = 1;
  RETURNS(MX_BAD_SEG_MEM, mx_isend(s.endpoint, list, 1, s.peer, 0, NULL, &request));
  /* A send of up to 32 KiB completes before the receive. A longer one does not, nor does mx_issend. */
  barrier(s.endpoint, s.peer);
  send_to(s.endpoint, s.peer, out, 32768, 200);
  mx_request_t large = start(s.endpoint, s.peer, out, 32769, 201);
  mx_request_t synchronous = start_sync(s.endpoint, s.peer, out, 1, 202);
  for (int i = 0; i < 5000; i++)
    CHECK(!is_done(s.endpoint, &large, &status) && !is_done(s.endpoint, &synchronous, &status));
  uint32_t result;
  OK(mx_ibuffered(s.endpoint, &large, &result));
  CHECK(result == 0);
  OK(mx_buffered(s.endpoint, &large, 10, &result));
  CHECK(result == 0);
  send_to(s.endpoint, s.peer, out, 0, 203);
  OK(mx_buffered(s.endpoint, &large, MX_INFINITE, &result));
  CHECK(result == 1);
  finish(s.endpoint, &large);
  finish(s.endpoint, &synchronous);
  close_side(s);
}

static void receiver(void) {
  side_t s = open_side(2, 1);
  mx_segment_t list[256];
  mx_request_t request;
  for (unsigned i = 0; i < LENGTHS; i++) {
    memset(in, 0, sizeof in);
    CHECK(split(in + 1, lengths[i], list, 251) == lengths[i]);
    OK(mx_irecv(s.endpoint, list, 251, i, MX_MATCH_MASK_NONE, NULL, &request));
    CHECK(finish(s.endpoint, &request).xfer_length == lengths[i]);
    CHECK(is_filled(in + 1, lengths[i], 9) && in[lengths[i] + 1] == 0);
  }
  OK(mx_irecv(s.endpoint, NULL, 0, 100, MX_MATCH_MASK_NONE, NULL, &request));
  CHECK(finish(s.endpoint, &request).code == MX_STATUS_SUCCESS);
  barrier(s.endpoint, s.peer);
  receive(s.endpoint, in, 0, 203, MX_MATCH_MASK_NONE);
  for (uint64_t match = 200; match < 203; match++)
    receive(s.endpoint, in, 32769, match, MX_MATCH_MASK_NONE);
  close_side(s);
}

/* A message of an endpoint to itself completes when it is received, whatever its size. */
static void alone(void) {
  begin();
  mx_endpoint_t endpoint = open_at(1);
  mx_endpoint_addr_t own;
  mx_status_t status;
  OK(mx_get_endpoint_addr(endpoint, &own));
  fill(out, sizeof out, 4);
  for (unsigned i = 0; i < LENGTHS; i++) {
    mx_request_t sent = start(endpoint, own, out, lengths[i], i);
    CHECK(!is_done(endpoint, &sent, &status));
    status = receive(endpoint, in, sizeof in, i, MX_MATCH_MASK_NONE);
    CHECK(status.msg_length == lengths[i] && is_filled(in, lengths[i], 4));
    CHECK(!memcmp(&status.source, &own, sizeof own));
    CHECK(finish(endpoint, &sent).xfer_length == lengths[i]);
  }
  OK(mx_close_endpoint(endpoint));
  OK(mx_finalize());
}

int main(void) {
  alone();
  return both(sender, receiver);
}
