/* Section 7: what NetPIPE's module for MX relies on. */
#include "check.h"

static unsigned char memory[1 << 20], copy[1 << 20];

static void side(uint32_t own, uint32_t other, int first) {
  mx_endpoint_t endpoint;
  mx_endpoint_addr_t peer;
  mx_request_t request;
  mx_status_t status;
  uint32_t result;
  uint64_t nic;
  char name[MX_MAX_HOSTNAME_LEN + 2];
  mx_set_error_handler(MX_ERRORS_RETURN);
  OK(mx_init());
  CHECK(!gethostname(name, MX_MAX_HOSTNAME_LEN));
  strcat(name, ":0");
  OK(mx_hostname_to_nic_id(name, &nic));
  OK(mx_open_endpoint(0, own, 0x14072010, NULL, 0, &endpoint));
  while (mx_connect(endpoint, nic, other, 0x14072010, MX_INFINITE, &peer) != MX_SUCCESS)
    usleep(1000);
  /* Synchronization by empty messages without a segment list. */
  OK(mx_isend(endpoint, NULL, 0, peer, 1, NULL, &request));
  OK(mx_wait(endpoint, &request, MX_INFINITE, &status, &result));
  OK(mx_irecv(endpoint, NULL, 0, 1, ~0ull, NULL, &request));
  OK(mx_wait(endpoint, &request, MX_INFINITE, &status, &result));
  CHECK(result == 1 && status.code == MX_STATUS_SUCCESS);
  /* Ping-pong with wildcard receives that are posted before the send. */
  for (uint32_t length = 1; length <= sizeof memory; length *= 4)
    for (int repeat = 0; repeat < 10; repeat++) {
      mx_segment_t in = {copy, length}, out = {memory, length};
      fill(memory, length, (unsigned)repeat);
      OK(mx_irecv(endpoint, &in, 1, 0, 0, NULL, &request));
      if (first) {
        mx_request_t sent;
        OK(mx_isend(endpoint, &out, 1, peer, 2, NULL, &sent));
        OK(mx_wait(endpoint, &sent, MX_INFINITE, &status, &result));
      }
      do
        OK(mx_test(endpoint, &request, &status, &result));
      while (!result);
      CHECK(status.xfer_length == length && is_filled(copy, length, (unsigned)repeat));
      if (!first) {
        OK(mx_isend(endpoint, &out, 1, peer, 2, NULL, &request));
        OK(mx_wait(endpoint, &request, MX_INFINITE, &status, &result));
      }
    }
  side_t s = {endpoint, peer};
  close_side(s);
}

static void parent(void) { side(1, 2, 1); }
static void child(void) { side(2, 1, 0); }

int main(void) { return both(parent, child); }
