/* Section 7: what MPICH's netmod for MX relies on: mx_iconnect, context ids, context pointers of peers,
   many segments, mx_test_any for all requests, progress disabled around its queue, and a handler. */
#include "check.h"

#define TYPE_SHIFT 62
#define EAGER_TYPE 1ull
#define CONNECT_TYPE 2ull
#define PIECES 256
#define PIECE 300

static mx_endpoint_t endpoint;
static int connected, large_ones;
static unsigned char out[PIECES * PIECE], in[PIECES * PIECE];
static mx_request_t posted;
/* The data of the process for its peer. */
static struct connection { int answered; } connection;

static mx_unexp_handler_action_t handler(void *context, mx_endpoint_addr_t source, uint64_t match,
                                         uint32_t length, void *data) {
  CHECK(context == &connection);
  switch (match >> TYPE_SHIFT) {
  case CONNECT_TYPE:
    CHECK(length == 4 && !memcmp(data, "name", 4));
    OK(mx_set_endpoint_addr_context(source, &connection));
    connected++;
    return MX_RECV_FINISHED;
  case EAGER_TYPE:
    if (data == NULL && length == PIECES * PIECE) {
      /* Posts a receive for exactly this message. */
      posted = post(endpoint, in, length, match, ~0ull);
      large_ones++;
    }
    return MX_RECV_CONTINUE;
  default:
    return MX_RECV_CONTINUE;
  }
}

static void side(uint32_t own, uint32_t other) {
  mx_param_t ids = {.key = MX_PARAM_CONTEXT_ID};
  ids.val.context_id.bits = 2;
  ids.val.context_id.shift = TYPE_SHIFT;
  mx_request_t request;
  mx_status_t status;
  uint32_t result, limit;
  void *kept;
  putenv("MX_DISABLE_SHARED=1");
  putenv("MX_DISABLE_SELF=1");
  begin();
  endpoint = open_with(own, &ids, 1);
  OK(mx_register_unexp_handler(endpoint, handler, &connection));
  OK(mx_get_info(endpoint, MX_COPY_SEND_MAX, NULL, 0, &limit, sizeof limit));
  CHECK(limit == 32768);
  /* mx_test_any finds the connect by its match value, like other requests. */
  mx_endpoint_addr_t peer;
  for (;;) {
    OK(mx_iconnect(endpoint, own_nic(), other, KEY, CONNECT_TYPE << TYPE_SHIFT | own, &connection, &request));
    do
      OK(mx_test_any(endpoint, CONNECT_TYPE << TYPE_SHIFT, 3ull << TYPE_SHIFT, &status, &result));
    while (!result);
    CHECK(status.context == &connection);
    if (status.code == MX_STATUS_SUCCESS)
      break;
    CHECK(status.code == MX_STATUS_ENDPOINT_CLOSED);
    usleep(1000);
  }
  peer = status.source;
  CHECK(status.match_info == (CONNECT_TYPE << TYPE_SHIFT | own));
  send_to(endpoint, peer, "name", 4, CONNECT_TYPE << TYPE_SHIFT);
  while (!connected)
    OK(mx_progress(endpoint));
  OK(mx_get_endpoint_addr_context(peer, &kept));
  CHECK(kept == &connection);
  /* A message of many segments. The handler does not run while progress is off. */
  barrier(endpoint, peer);
  OK(mx_disable_progression(endpoint));
  mx_segment_t list[PIECES];
  fill(out, sizeof out, own);
  for (int i = 0; i < PIECES; i++) {
    list[i].segment_ptr = out + i * PIECE;
    list[i].segment_length = PIECE;
  }
  OK(mx_isend(endpoint, list, PIECES, peer, EAGER_TYPE << TYPE_SHIFT | 5, out, &request));
  int before = large_ones;
  for (int i = 0; i < 1000; i++)
    OK(mx_progress(endpoint));
  CHECK(large_ones == before);
  OK(mx_reenable_progression(endpoint));
  /* Sends and receives, in the order of their completion. */
  for (int left = 2; left > 0; left--) {
    do
      OK(mx_wait_any(endpoint, 50, 0, 0, &status, &result));
    while (!result);
    CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == sizeof out);
    CHECK(status.context == out || status.context == in);
  }
  CHECK(large_ones == 1 && is_filled(in, sizeof in, other));
  OK(mx_register_unexp_handler(endpoint, NULL, NULL));
  barrier(endpoint, peer);
  OK(mx_close_endpoint(endpoint));
  OK(mx_finalize());
}

static void parent(void) { side(1, 2); }
static void child(void) { side(2, 1); }

int main(void) { return both(parent, child); }
