/* A program that asks for a thread of progress computes while its receive is filled: the sender of
 * a large message is done before it calls again. */
#include "check.h"

#define LENGTH 1000000
#define LIMIT 60000

static unsigned char out[LENGTH], in[LENGTH];
static int told[2];

static void sender(void) {
  side_t side = join(1, 2);
  for (unsigned round = 0; round < 3; round++) {
    mx_status_t status;
    uint32_t result;
    char byte = 0;
    fill(out, LENGTH, round);
    mx_request_t request = start(side.endpoint, side.peer, out, LENGTH, round);
    OK(mx_wait(side.endpoint, &request, LIMIT, &status, &result));
    CHECK(result == 1 && status.code == MX_STATUS_SUCCESS && status.xfer_length == LENGTH);
    CHECK(write(told[1], &byte, 1) == 1);
    meet(side.endpoint, side.peer);
  }
  leave(side);
}

static void receiver(void) {
  side_t side = join(2, 1);
  for (unsigned round = 0; round < 3; round++) {
    mx_status_t status;
    char byte;
    mx_request_t request = post(side.endpoint, in, LENGTH, round, MX_MATCH_MASK_NONE);
    /* Nothing is called until the sender is done. */
    CHECK(read(told[0], &byte, 1) == 1);
    status = finish(side.endpoint, &request);
    CHECK(status.code == MX_STATUS_SUCCESS && is_filled(in, LENGTH, round));
    meet(side.endpoint, side.peer);
  }
  leave(side);
}

int main(void) {
  CHECK(!setenv("VICINITY_PROGRESS_THREAD", "1", 1));
  CHECK(!pipe(told));
  return both(sender, receiver);
}
