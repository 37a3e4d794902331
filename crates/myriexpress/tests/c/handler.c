/* Section 6.6: the handler of unexpected messages. */
#include <pthread.h>

#include "check.h"

static unsigned char out[100000], in[100000], posted_in[100000];

static const uint32_t lengths[] = {0, 8, 48, 49, 128, 4096, 4097, 32768, 32769, 100000};
#define LENGTHS (sizeof lengths / sizeof *lengths)

#define KEEP 0x10000
#define POST 0x20000
#define DROP 0x30000
#define SYNC 0x40000

static void sender(void) {
  side_t s = open_side(1, 2);
  fill(out, sizeof out, 5);
  for (unsigned i = 0; i < LENGTHS; i++) {
    for (uint64_t what = KEEP; what <= SYNC; what += 0x10000) {
      mx_request_t request =
          what == SYNC ? start_sync(s.endpoint, s.peer, out, lengths[i], what | i)
                       : start(s.endpoint, s.peer, out, lengths[i], what | i);
      mx_status_t status = finish(s.endpoint, &request);
      /* A dropped message that was not buffered has 0 bytes in its status. */
      int unreceived = what == SYNC || (what == DROP && lengths[i] > 32768);
      CHECK(status.xfer_length == (unreceived ? 0 : lengths[i]));
    }
    /* The receiver's handler posts one receive for each message. */
    barrier(s.endpoint, s.peer);
  }
  close_side(s);
}

static side_t r;
static uint64_t seen;
static int marker;
static mx_request_t posted;

static mx_unexp_handler_action_t handler(void *context, mx_endpoint_addr_t source,
                                         uint64_t match, uint32_t length, void *data) {
  mx_status_t status;
  uint32_t result = 7;
  CHECK(context == &marker);
  if (match == BARRIER)
    return MX_RECV_CONTINUE;
  CHECK(!memcmp(&source, &r.peer, sizeof source));
  uint64_t kind = match & ~0xffffull;
  unsigned i = match & 0xffff;
  /* Messages arrive in order, once each. */
  CHECK(seen == i * 4 + (kind >> 16) - 1);
  seen++;
  CHECK(length == lengths[i]);
  if (length <= 4096 && kind != SYNC)
    CHECK(length == 0 || (data != NULL && is_filled(data, length, 5)));
  else
    CHECK(data == NULL);
  /* A handler cannot close the endpoint, and a wait in it times out. */
  RETURNS(MX_CLOSE_IN_HANDLER, mx_close_endpoint(r.endpoint));
  OK(mx_iprobe(r.endpoint, match, MX_MATCH_MASK_NONE, &status, &result));
  CHECK(result == 0);
  OK(mx_probe(r.endpoint, MX_INFINITE, match, MX_MATCH_MASK_NONE, &status, &result));
  CHECK(result == 0);
  if (kind == POST)
    posted = post(r.endpoint, posted_in, sizeof posted_in, match, MX_MATCH_MASK_NONE);
  return kind == DROP || kind == SYNC ? MX_RECV_FINISHED : MX_RECV_CONTINUE;
}

static void receiver(void) {
  begin();
  r.endpoint = open_at(2);
  OK(mx_register_unexp_handler(r.endpoint, handler, &marker));
  r.peer = connect_to(r.endpoint, 1);
  barrier(r.endpoint, r.peer);
  mx_status_t status;
  uint32_t result;
  for (unsigned i = 0; i < LENGTHS; i++) {
    memset(in, 0, sizeof in);
    do
      OK(mx_probe(r.endpoint, MX_INFINITE, KEEP | i, MX_MATCH_MASK_NONE, &status, &result));
    while (!result);
    status = receive(r.endpoint, in, sizeof in, KEEP | i, MX_MATCH_MASK_NONE);
    CHECK(status.xfer_length == lengths[i] && is_filled(in, lengths[i], 5));
    while (seen < i * 4 + 2)
      OK(mx_progress(r.endpoint));
    status = finish(r.endpoint, &posted);
    CHECK(status.match_info == (uint64_t)(POST | i) && status.xfer_length == lengths[i]);
    CHECK(is_filled(posted_in, lengths[i], 5));
    memset(posted_in, 0, sizeof posted_in);
    while (seen < i * 4 + 4)
      OK(mx_progress(r.endpoint));
    for (uint64_t gone = DROP; gone <= SYNC; gone += SYNC - DROP) {
      OK(mx_iprobe(r.endpoint, gone | i, MX_MATCH_MASK_NONE, &status, &result));
      CHECK(result == 0);
    }
    barrier(r.endpoint, r.peer);
  }
  /* A posted receive takes the message before the handler. */
  OK(mx_register_unexp_handler(r.endpoint, NULL, NULL));
  close_side(r);
}

/* While a handler runs, no second handler runs and no thread makes progress. */
static mx_endpoint_t one;
static int inside, entered, done;

static mx_unexp_handler_action_t slow(void *context, mx_endpoint_addr_t source, uint64_t match,
                                      uint32_t length, void *data) {
  (void)context, (void)source, (void)match, (void)length, (void)data;
  CHECK(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) == 1);
  __atomic_add_fetch(&entered, 1, __ATOMIC_SEQ_CST);
  usleep(2000);
  __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  return MX_RECV_FINISHED;
}

static void *progress(void *unused) {
  while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST))
    OK(mx_progress(one));
  return unused;
}

static void alone(void) {
  begin();
  one = open_at(3);
  mx_endpoint_addr_t own;
  OK(mx_get_endpoint_addr(one, &own));
  OK(mx_register_unexp_handler(one, slow, NULL));
  pthread_t threads[3];
  for (int i = 0; i < 3; i++)
    CHECK(!pthread_create(&threads[i], NULL, progress, NULL));
  for (uint64_t i = 0; i < 20; i++)
    send_to(one, own, out, 10, i);
  done = 1;
  for (int i = 0; i < 3; i++)
    CHECK(!pthread_join(threads[i], NULL));
  CHECK(entered == 20);
  OK(mx_close_endpoint(one));
  OK(mx_finalize());
}

int main(void) {
  alone();
  return both(receiver, sender);
}
