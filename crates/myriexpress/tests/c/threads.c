/* Section 6.5: threads on one endpoint, timeouts of waits, mx_wakeup, and disabled progress. */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "check.h"

#define THREADS 8
#define ROUNDS 200

static mx_endpoint_t endpoint;
static mx_endpoint_addr_t peer;

static void *run(void *argument) {
  uint64_t match = (uint64_t)(uintptr_t)argument;
  uint64_t out, in;
  for (uint64_t round = 0; round < ROUNDS; round++) {
    mx_request_t request = post(endpoint, &in, sizeof in, match, MX_MATCH_MASK_NONE);
    out = match << 32 | round;
    mx_status_t status = send_to(endpoint, peer, &out, sizeof out, match);
    CHECK(status.code == MX_STATUS_SUCCESS);
    status = finish(endpoint, &request);
    CHECK(status.match_info == match && in == (match << 32 | round));
  }
  return NULL;
}

/* Each thread exchanges messages with the thread of the same number on the other side. */
static void threads(uint32_t own, uint32_t other) {
  side_t s = open_side(own, other);
  endpoint = s.endpoint;
  peer = s.peer;
  pthread_t list[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    CHECK(!pthread_create(&list[i], NULL, run, (void *)i));
  for (int i = 0; i < THREADS; i++)
    CHECK(!pthread_join(list[i], NULL));
  close_side(s);
}

static void parent(void) { threads(1, 2); }
static void child(void) { threads(2, 1); }

/* Threads that wait, one in each of the blocking calls. */
static int in_call;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void arrive(void) {
  pthread_mutex_lock(&lock);
  in_call++;
  pthread_mutex_unlock(&lock);
}

static void *sleeper(void *argument) {
  mx_request_t request, other;
  mx_status_t status;
  uint32_t result = 7;
  char byte;
  request = post(endpoint, &byte, 1, 1000, MX_MATCH_MASK_NONE);
  arrive();
  switch ((uintptr_t)argument) {
  case 0:
    OK(mx_wait(endpoint, &request, MX_INFINITE, &status, &result));
    CHECK(request != NULL);
    break;
  case 1:
    OK(mx_wait_any(endpoint, MX_INFINITE, 0, 0, &status, &result));
    break;
  case 2:
    OK(mx_peek(endpoint, MX_INFINITE, &other, &result));
    break;
  case 3:
    OK(mx_probe(endpoint, MX_INFINITE, 0, 0, &status, &result));
    break;
  default:
    /* Endpoint 5 is open, but no thread makes progress on it. */
    RETURNS(MX_TIMEOUT, mx_connect(endpoint, own_nic(), 5, KEY, MX_INFINITE, &peer));
    result = 0;
  }
  CHECK(result == 0);
  OK(mx_cancel(endpoint, &request, &result));
  CHECK(result == 1);
  return NULL;
}

#define SLEEPERS 5

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Takes any completed request. None of the program's requests completes. */
static int over;

static void *taker(void *unused) {
  mx_status_t status;
  mx_request_t request;
  uint32_t result;
  while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST)) {
    OK(mx_wait_any(endpoint, 1, 0, 0, &status, &result));
    CHECK(result == 0);
    OK(mx_ipeek(endpoint, &request, &result));
    CHECK(result == 0);
  }
  return unused;
}

/* Makes progress on an endpoint. */
static void *answerer(void *argument) {
  while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST))
    OK(mx_progress(*(mx_endpoint_t *)argument));
  return NULL;
}

static void connects(void) {
  mx_endpoint_addr_t addr;
  pthread_t threads[2];
  mx_endpoint_t other = open_at(6);
  CHECK(!pthread_create(&threads[0], NULL, taker, NULL));
  CHECK(!pthread_create(&threads[1], NULL, answerer, &other));
  for (int i = 0; i < 50; i++) {
    mx_return_t code;
    /* The other side may not have detected yet that the last connection ended. */
    do
      code = mx_connect(endpoint, own_nic(), 6, KEY, MX_INFINITE, &addr);
    while (code == MX_NO_RESOURCES);
    OK(code);
    OK(mx_disconnect(endpoint, addr));
  }
  __atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
  CHECK(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL));
  OK(mx_close_endpoint(other));
}

static void alone(void) {
  begin();
  endpoint = open_at(4);
  connects();
  mx_endpoint_t silent = open_at(5);
  pthread_t list[SLEEPERS];
  for (uintptr_t i = 0; i < SLEEPERS; i++)
    CHECK(!pthread_create(&list[i], NULL, sleeper, (void *)i));
  int all = 0;
  while (!all) {
    pthread_mutex_lock(&lock);
    all = in_call == SLEEPERS;
    pthread_mutex_unlock(&lock);
    usleep(1000);
  }
  /* A later mx_wakeup wakes a thread that is not in its call yet. */
  for (int i = 0; i < SLEEPERS; i++)
    while (pthread_tryjoin_np(list[i], NULL)) {
      OK(mx_wakeup(endpoint));
      usleep(10000);
    }
  /* A timeout is no error, and does not come early. */
  char byte;
  uint32_t result = 7;
  mx_status_t status;
  mx_request_t request = post(endpoint, &byte, 1, 1, MX_MATCH_MASK_NONE);
  double start = now();
  OK(mx_wait(endpoint, &request, 30, &status, &result));
  CHECK(result == 0 && request != NULL && now() - start >= 0.03);
  result = 7;
  OK(mx_wait_any(endpoint, 1, 0, 0, &status, &result));
  CHECK(result == 0);
  result = 7;
  OK(mx_probe(endpoint, 1, 0, 0, &status, &result));
  CHECK(result == 0);
  mx_request_t peeked = NULL;
  result = 7;
  OK(mx_peek(endpoint, 1, &peeked, &result));
  CHECK(result == 0 && peeked == NULL);
  /* Nothing matches while progress is disabled. The calls that disable it nest. */
  mx_endpoint_addr_t own;
  OK(mx_get_endpoint_addr(endpoint, &own));
  OK(mx_disable_progression(endpoint));
  OK(mx_disable_progression(endpoint));
  OK(mx_reenable_progression(endpoint));
  OK(mx_wait(endpoint, &request, 5, &status, &result));
  CHECK(result == 0);
  OK(mx_reenable_progression(endpoint));
  send_to(endpoint, own, &byte, 1, 1);
  finish(endpoint, &request);
  OK(mx_close_endpoint(silent));
  OK(mx_close_endpoint(endpoint));
  OK(mx_finalize());
}

int main(void) {
  alone();
  return both(parent, child);
}
