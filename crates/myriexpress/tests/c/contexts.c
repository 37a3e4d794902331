/* Section 6.2: context ids. */
#include "check.h"

static mx_param_t param(uint8_t bits, uint8_t shift) {
  mx_param_t param = {.key = MX_PARAM_CONTEXT_ID};
  param.val.context_id.bits = bits;
  param.val.context_id.shift = shift;
  return param;
}

#define IDS 0x00ff000000000000u

static void sender(void) {
  mx_param_t ids = param(8, 48);
  side_t s = open_side_with(1, 2, &ids, 1);
  char byte = 1;
  for (uint64_t id = 0; id < 256; id++)
    send_to(s.endpoint, s.peer, &byte, 1, id << 48 | 7);
  close_side(s);
}

static void receiver(void) {
  mx_param_t ids = param(8, 48);
  side_t s = open_side_with(2, 1, &ids, 1);
  char byte;
  mx_segment_t segment = {&byte, 1};
  mx_request_t request;
  mx_status_t status;
  uint32_t result;
  RETURNS(MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK,
          mx_irecv(s.endpoint, &segment, 1, 7, ~IDS, NULL, &request));
  RETURNS(MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK,
          mx_irecv(s.endpoint, &segment, 1, 0, IDS << 1, NULL, &request));
  for (uint64_t id = 255; id < 256; id--) {
    status = receive(s.endpoint, &byte, 1, id << 48, IDS);
    CHECK(status.match_info == (id << 48 | 7));
  }
  /* mx_test_any and mx_iprobe may select several context ids. */
  request = start(s.endpoint, s.peer, &byte, 1, 0x123);
  OK(mx_wait_any(s.endpoint, MX_INFINITE, 0, 0, &status, &result));
  CHECK(result == 1 && status.match_info == 0x123);
  OK(mx_iprobe(s.endpoint, 7, 0xff, &status, &result));
  CHECK(result == 0);
  close_side(s);
}

static void alone(void) {
  begin();
  mx_endpoint_t endpoint;
  const uint8_t bad[][2] = {{17, 0}, {1, 64}, {16, 49}, {255, 255}};
  for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
    mx_param_t ids = param(bad[i][0], bad[i][1]);
    RETURNS(MX_BAD_PARAM_VAL, mx_open_endpoint(0, 9, KEY, &ids, 1, &endpoint));
  }
  mx_param_t ids = param(MX_CONTEXT_ID_BITS_MAX, 48);
  OK(mx_open_endpoint(0, 9, KEY, &ids, 1, &endpoint));
  OK(mx_close_endpoint(endpoint));
  OK(mx_finalize());
}

int main(void) {
  alone();
  return both(receiver, sender);
}
