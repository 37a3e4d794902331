/* Section 7: what LIGO's streaming programs rely on: a receiver with short waits, and a sender that
   repeats its connect until a receiver exists, and connects again after the receiver was replaced. */
#include "check.h"

#define BLOCK 100000
static unsigned char block[BLOCK];

static mx_endpoint_addr_t look_for(mx_endpoint_t endpoint) {
  mx_endpoint_addr_t addr;
  while (mx_connect(endpoint, own_nic(), 2, KEY, 1000, &addr) != MX_SUCCESS)
    usleep(1000);
  return addr;
}

static void sender(void) {
  begin();
  mx_endpoint_t endpoint = open_at(1);
  mx_status_t status;
  mx_request_t request;
  uint32_t result;
  int failed = 0;
  OK(mx_set_request_timeout(endpoint, 0, 1000));
  mx_endpoint_addr_t addr = look_for(endpoint);
  for (unsigned number = 0; number < 20;) {
    fill(block, BLOCK, number);
    request = start(endpoint, addr, block, BLOCK, number);
    do
      OK(mx_wait(endpoint, &request, 50, &status, &result));
    while (!result);
    if (status.code == MX_STATUS_SUCCESS) {
      number++;
    } else {
      /* The receiver was replaced. */
      CHECK(strlen(mx_strstatus(status.code)) > 0);
      failed++;
      addr = look_for(endpoint);
    }
  }
  CHECK(failed == 1);
  /* The receiver's answer that it has all blocks. */
  receive(endpoint, block, 1, 100, MX_MATCH_MASK_NONE);
  OK(mx_close_endpoint(endpoint));
  OK(mx_finalize());
}

static unsigned take(mx_endpoint_t endpoint, unsigned number, unsigned end, mx_status_t *status) {
  while (number < end) {
    mx_request_t request = post(endpoint, block, BLOCK, 0, 0);
    uint32_t result;
    do
      OK(mx_wait(endpoint, &request, 50, status, &result));
    while (!result);
    CHECK(status->code == MX_STATUS_SUCCESS && status->match_info == number);
    CHECK(is_filled(block, BLOCK, number));
    number++;
  }
  return number;
}

static void receiver(void) {
  mx_status_t status;
  uint32_t result;
  begin();
  mx_endpoint_t endpoint = open_at(2);
  unsigned number = take(endpoint, 0, 7, &status);
  /* The receiver closes after the next block was announced. */
  OK(mx_probe(endpoint, MX_INFINITE, 0, 0, &status, &result));
  OK(mx_close_endpoint(endpoint));
  endpoint = open_at(2);
  take(endpoint, number, 20, &status);
  mx_endpoint_addr_t back;
  uint64_t nic;
  uint32_t id;
  OK(mx_decompose_endpoint_addr(status.source, &nic, &id));
  OK(mx_connect(endpoint, nic, id, KEY, MX_INFINITE, &back));
  mx_request_t done = start_sync(endpoint, back, block, 1, 100);
  CHECK(finish(endpoint, &done).code == MX_STATUS_SUCCESS);
  OK(mx_close_endpoint(endpoint));
  OK(mx_finalize());
}

int main(void) { return both(sender, receiver); }
