/* With a progress thread, the send of a large message completes while the receiver computes and
 * makes no calls. */
#include "check.h"

#define LENGTH 1000000
#define LIMIT 60000

static unsigned char out[LENGTH], in[LENGTH];
static int sent[2];

static void sender(void) {
  side_t side = open_side(1, 2);
  for (unsigned round = 0; round < 3; round++) {
    mx_status_t status;
    uint32_t result;
    char byte = 0;
    fill(out, LENGTH, round);
    mx_request_t request = start(side.endpoint, side.peer, out, LENGTH, round);
    OK(mx_wait(side.endpoint, &request, LIMIT, &status, &result));
    CHECK(result == 1 && status.code == MX_STATUS_SUCCESS && status.xfer_length == LENGTH);
    CHECK(write(sent[1], &byte, 1) == 1);
    barrier(side.endpoint, side.peer);
  }
  close_side(side);
}

static void receiver(void) {
  side_t side = open_side(2, 1);
  for (unsigned round = 0; round < 3; round++) {
    mx_status_t status;
    char byte;
    mx_request_t request = post(side.endpoint, in, LENGTH, round, MX_MATCH_MASK_NONE);
    /* This process makes no calls until the send has completed. */
    CHECK(read(sent[0], &byte, 1) == 1);
    status = finish(side.endpoint, &request);
    CHECK(status.code == MX_STATUS_SUCCESS && is_filled(in, LENGTH, round));
    barrier(side.endpoint, side.peer);
  }
  close_side(side);
}

int main(void) {
  CHECK(!setenv("VICINITY_PROGRESS_THREAD", "1", 1));
  CHECK(!pipe(sent));
  return both(sender, receiver);
}
