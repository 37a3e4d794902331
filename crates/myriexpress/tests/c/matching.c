/* Section 6.1: matching of messages and receives, and its order. */
#include "check.h"

#define ALL MX_MATCH_MASK_NONE

static const uint32_t lengths[] = {1, 32, 33, 128, 129, 4096, 32768, 32769, 200000};
#define KINDS (sizeof lengths / sizeof *lengths)

static unsigned char out[KINDS * 2][200000];
static unsigned char in[200000];

static void sender(void) {
  side_t s = open_side(1, 2);
  mx_request_t requests[2 * KINDS];
  /* 1: the mask selects bits. */
  send_to(s.endpoint, s.peer, out[0], 1, 0x1234);
  send_to(s.endpoint, s.peer, out[0], 1, 0x5674);
  barrier(s.endpoint, s.peer);
  /* 2: receives match in the order of posting. */
  barrier(s.endpoint, s.peer);
  send_to(s.endpoint, s.peer, out[0], 1, 0x11);
  send_to(s.endpoint, s.peer, out[0], 2, 0x11);
  barrier(s.endpoint, s.peer);
  /* 3: messages of a pair match in the order of sending, of every size and call. */
  for (unsigned i = 0; i < KINDS; i++) {
    fill(out[2 * i], lengths[i], 2 * i);
    fill(out[2 * i + 1], 8, 2 * i + 1);
    requests[2 * i] = i % 2 ? start(s.endpoint, s.peer, out[2 * i], lengths[i], 5)
                            : start_sync(s.endpoint, s.peer, out[2 * i], lengths[i], 5);
    requests[2 * i + 1] = start(s.endpoint, s.peer, out[2 * i + 1], 8, 5);
  }
  barrier(s.endpoint, s.peer);
  for (unsigned i = 0; i < 2 * KINDS; i++) {
    mx_status_t status = finish(s.endpoint, &requests[i]);
    CHECK(status.code == MX_STATUS_SUCCESS && status.context == out[i]);
  }
  close_side(s);
}

static void receiver(void) {
  side_t s = open_side(2, 1);
  mx_status_t status;
  uint32_t result;
  char first[4], second[4];
  /* 1 */
  status = receive(s.endpoint, first, 4, 0x5600, 0xff00);
  CHECK(status.match_info == 0x5674);
  status = receive(s.endpoint, first, 4, 0x4, 0xf);
  CHECK(status.match_info == 0x1234);
  barrier(s.endpoint, s.peer);
  /* 2: the wildcard receive was posted first, so it gets the first message. */
  mx_request_t wild = post(s.endpoint, first, 4, 0, 0xffffffff00000000u);
  mx_request_t exact = post(s.endpoint, second, 4, 0x11, ALL);
  barrier(s.endpoint, s.peer);
  CHECK(finish(s.endpoint, &wild).msg_length == 1);
  CHECK(finish(s.endpoint, &exact).msg_length == 2);
  barrier(s.endpoint, s.peer);
  /* 2 and 3: probes and receives find the oldest message first. */
  for (unsigned i = 0; i < 2 * KINDS; i++) {
    uint32_t length = i % 2 ? 8 : lengths[i / 2];
    OK(mx_probe(s.endpoint, MX_INFINITE, 5, ALL, &status, &result));
    CHECK(result == 1 && status.msg_length == length);
    CHECK(status.xfer_length == length && status.match_info == 5);
    status = receive(s.endpoint, in, sizeof in, 5, ALL);
    CHECK(status.msg_length == length && is_filled(in, length, i));
  }
  barrier(s.endpoint, s.peer);
  /* 4: the same rule holds for mx_test_any. */
  RETURNS(MX_BAD_MATCH_MASK, mx_test_any(s.endpoint, 3, 2, &status, &result));
  RETURNS(MX_BAD_MATCH_MASK, mx_wait_any(s.endpoint, 1, 3, 2, &status, &result));
  RETURNS(MX_BAD_MATCH_MASK, mx_iprobe(s.endpoint, 3, 2, &status, &result));
  RETURNS(MX_BAD_MATCH_MASK, mx_probe(s.endpoint, 1, 3, 2, &status, &result));
  close_side(s);
}

int main(void) { return both(sender, receiver); }
