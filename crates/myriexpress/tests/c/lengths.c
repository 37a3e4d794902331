/* Section 6.3: the lengths in the statuses of both sides. */
#include "check.h"

static unsigned char out[300000], in[300000];

static const struct {
  uint32_t sent, posted;
  int synchronous, sender_informed;
} cases[] = {
    {8, 8, 0, 0},        {8, 5, 0, 0},      {128, 100, 0, 0},  {32768, 32768, 0, 0},
    {32768, 1000, 0, 0}, {32769, 32769, 0, 1}, {32769, 1000, 0, 1}, {300000, 299999, 0, 1},
    {8, 5, 1, 1},        {32768, 1000, 1, 1},  {8, 8, 1, 1},     {300000, 0, 0, 1},
    {0, 0, 0, 0},        {0, 10, 1, 1},
};
#define CASES (sizeof cases / sizeof *cases)

static void sender(void) {
  side_t s = open_side(1, 2);
  fill(out, sizeof out, 3);
  for (unsigned i = 0; i < CASES; i++) {
    uint32_t sent = cases[i].sent, posted = cases[i].posted;
    mx_request_t request = cases[i].synchronous
                               ? start_sync(s.endpoint, s.peer, out, sent, i)
                               : start(s.endpoint, s.peer, out, sent, i);
    mx_status_t status = finish(s.endpoint, &request);
    int truncated = cases[i].sender_informed && posted < sent;
    CHECK(status.code == (truncated ? MX_STATUS_TRUNCATED : MX_STATUS_SUCCESS));
    CHECK(status.msg_length == sent);
    CHECK(status.xfer_length == (truncated ? posted : sent));
    CHECK(status.match_info == i && status.context == out);
    CHECK(!memcmp(&status.source, &s.peer, sizeof s.peer));
  }
  CHECK(is_filled(out, sizeof out, 3));
  close_side(s);
}

static void receiver(void) {
  side_t s = open_side(2, 1);
  for (unsigned i = 0; i < CASES; i++) {
    uint32_t sent = cases[i].sent, posted = cases[i].posted;
    uint32_t taken = sent < posted ? sent : posted;
    memset(in, 0xee, sizeof in);
    /* The mask ignores the low bits, but the status contains the sender's full value. */
    mx_status_t status = receive(s.endpoint, in, posted, 0, 0xffffffff00000000u);
    CHECK(status.code == (taken < sent ? MX_STATUS_TRUNCATED : MX_STATUS_SUCCESS));
    CHECK(status.msg_length == sent && status.xfer_length == taken);
    CHECK(status.match_info == i && status.context == in);
    CHECK(!memcmp(&status.source, &s.peer, sizeof s.peer));
    CHECK(is_filled(in, taken, 3) && (taken == sizeof in || in[taken] == 0xee));
  }
  close_side(s);
}

int main(void) { return both(sender, receiver); }
