/* Section 7: what Open MPI's btl/mx relies on: active messages by a handler that gets the data,
   fragments that are received in place, and sends that are forgotten. */
#include "check.h"

#define FRAGMENTS 300
#define SMALL 2000
#define LARGE 60000

static side_t s;
static int received, others;
static unsigned char out[LARGE], in[LARGE];

static mx_unexp_handler_action_t active(void *context, mx_endpoint_addr_t source, uint64_t match,
                                        uint32_t length, void *data) {
  (void)context, (void)source;
  if (match == BARRIER || match == 0x02) {
    others++;
    return MX_RECV_CONTINUE;
  }
  CHECK(match == 0x01 && length == SMALL && data != NULL);
  CHECK(is_filled(data, length, (unsigned)received & 0xff));
  received++;
  /* The handler sends an answer and forgets the request. */
  OK(mx_isend(s.endpoint, NULL, 0, s.peer, 0x03, NULL, NULL));
  return MX_RECV_FINISHED;
}

static void begin_side(uint32_t own, uint32_t other, mx_unexp_handler_t handler) {
  uint32_t value = 0, board = 0;
  char product[MX_MAX_STR_LEN];
  begin();
  s.endpoint = open_at(own);
  OK(mx_register_unexp_handler(s.endpoint, handler, NULL));
  OK(mx_get_info(s.endpoint, MX_LINE_SPEED, &board, sizeof board, &value, sizeof value));
  OK(mx_get_info(s.endpoint, MX_PRODUCT_CODE, &board, sizeof board, product, sizeof product));
  OK(mx_get_info(s.endpoint, MX_NET_TYPE, &board, sizeof board, &value, sizeof value));
  CHECK(value == MX_NET_ETHER);
  s.peer = connect_to(s.endpoint, other);
  barrier(s.endpoint, s.peer);
}

static void sender(void) {
  mx_request_t request;
  mx_segment_t segment = {out, SMALL};
  uint32_t result;
  begin_side(1, 2, NULL);
  for (int i = 0; i < FRAGMENTS; i++) {
    fill(out, SMALL, (unsigned)i & 0xff);
    OK(mx_isend(s.endpoint, &segment, 1, s.peer, 0x01, NULL, &request));
    /* A send that is buffered is forgotten. */
    OK(mx_ibuffered(s.endpoint, &request, &result));
    if (result)
      OK(mx_forget(s.endpoint, &request));
    else
      finish(s.endpoint, &request);
  }
  fill(out, LARGE, 77);
  send_to(s.endpoint, s.peer, out, LARGE, 0x02);
  for (int i = 0; i < FRAGMENTS; i++)
    receive(s.endpoint, NULL, 0, 0x03, MX_MATCH_MASK_NONE);
  close_side(s);
}

static void receiver(void) {
  begin_side(2, 1, active);
  mx_status_t status = receive(s.endpoint, in, LARGE, 0x02, MX_MATCH_MASK_NONE);
  /* This message was sent last. */
  CHECK(status.code == MX_STATUS_SUCCESS && received == FRAGMENTS);
  CHECK(is_filled(in, LARGE, 77));
  close_side(s);
}

int main(void) { return both(receiver, sender); }
