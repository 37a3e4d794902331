/* The environment variables of the original: one makes errors non-fatal. The others concern transports
 * that this library does not have, and are ignored. */
#include "check.h"

#define LONGEST 100000

static unsigned char out[LONGEST], in[LONGEST];

static const char *const variables[][2] = {
    {"MX_ERRORS_ARE_FATAL", "0"},      {"MX_VERBOSE", "1"},
    {"MX_DISABLE_SELF", "1"},          {"MX_DISABLE_SHMEM", "1"},
    {"MX_MAX_RETRIES", "1"},           {"MX_ZOMBIE_SEND", "1"},
    {"MX_IMM_ACK", "4"},               {"MX_RCACHE", "2"},
    {"OMX_VERBOSE", "1"},              {"OMX_DISABLE_SELF", "1"},
    {"OMX_DISABLE_SHARED", "1"},       {"OMX_RNDV_THRESHOLD", "64"},
    {"OMX_SHARED_RNDV_THRESHOLD", "64"}, {"OMX_WAITSPIN", "1"},
    {"OMX_CTXIDS", "4"},               {"OMX_ANY_ENDPOINT", "1"},
    {"OMX_CONNECT_POLLALL", "1"},
};

static side_t open_with_environment(uint32_t own, uint32_t other) {
  side_t side;
  mx_endpoint_t second;
  OK(mx_init());
  side.endpoint = open_at(own);
  /* The program has set no error handler. */
  RETURNS(MX_BUSY, mx_open_endpoint(0, own, KEY, NULL, 0, &second));
  side.peer = connect_to(side.endpoint, other);
  barrier(side.endpoint, side.peer);
  return side;
}

static void one(void) {
  side_t side = open_with_environment(1, 2);
  const uint32_t lengths[] = {8, 100, 5000, LONGEST};
  for (unsigned at = 0; at < 4; at++) {
    fill(out, lengths[at], at);
    CHECK(send_to(side.endpoint, side.peer, out, lengths[at], at).code ==
          MX_STATUS_SUCCESS);
  }
  close_side(side);
}

static void other(void) {
  side_t side = open_with_environment(2, 1);
  const uint32_t lengths[] = {8, 100, 5000, LONGEST};
  for (unsigned at = 0; at < 4; at++) {
    CHECK(receive(side.endpoint, in, lengths[at], at, MX_MATCH_MASK_NONE).code ==
          MX_STATUS_SUCCESS);
    CHECK(is_filled(in, lengths[at], at));
  }
  /* A message to the endpoint itself. */
  mx_endpoint_addr_t self = connect_to(side.endpoint, 2);
  mx_request_t request = start(side.endpoint, self, out, 8, 9);
  CHECK(receive(side.endpoint, in, 8, 9, MX_MATCH_MASK_NONE).code ==
        MX_STATUS_SUCCESS);
  CHECK(finish(side.endpoint, &request).code == MX_STATUS_SUCCESS);
  close_side(side);
}

int main(void) {
  for (unsigned at = 0; at < sizeof variables / sizeof *variables; at++)
    CHECK(!setenv(variables[at][0], variables[at][1], 1));
  return both(one, other);
}
