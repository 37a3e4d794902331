/* MX_PARAM_SERIALIZED: endpoints of programs that make one call at a time. */
#include <pthread.h>
#include <sys/time.h>

#include "check.h"

#define OPENED 1200

static mx_param_t serialized = {.key = MX_PARAM_SERIALIZED, .val.unexp_queue_max = 1};
static mx_param_t not_serialized = {.key = MX_PARAM_SERIALIZED, .val.unexp_queue_max = 0};
static mx_endpoint_t endpoint;
static volatile sig_atomic_t refused;

/* A call of the same thread within another one: the endpoint is in use. */
static void interrupt(int signal) {
  (void)signal;
  mx_return_t code = mx_wakeup(endpoint);
  CHECK(code == MX_SUCCESS || code == MX_BUSY);
  refused |= code == MX_BUSY;
}

static void wait_once(mx_request_t *request, uint32_t milliseconds) {
  mx_status_t status;
  uint32_t result = 7;
  OK(mx_wait(endpoint, request, milliseconds, &status, &result));
  CHECK(result == 0);
}

static void a_call_beside_another_is_refused(void) {
  char byte;
  struct sigaction action = {.sa_handler = interrupt};
  struct itimerval often = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
  endpoint = open_with(1, &serialized, 1);
  mx_request_t request = post(endpoint, &byte, 1, 1, MX_MATCH_MASK_NONE);
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
  while (!refused)
    wait_once(&request, 50);
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
  /* The endpoint still works. */
  wait_once(&request, 1);
  OK(mx_wakeup(endpoint));
}

static void *send_to_itself(void *argument) {
  mx_endpoint_addr_t own;
  char byte = 7;
  (void)argument;
  OK(mx_get_endpoint_addr(endpoint, &own));
  CHECK(send_to(endpoint, own, &byte, 1, 1).code == MX_STATUS_SUCCESS);
  return NULL;
}

/* Also the thread that closes the endpoint is not the one that opened it. */
static void *close_it(void *argument) {
  (void)argument;
  OK(mx_close_endpoint(endpoint));
  return NULL;
}

static void threads_may_call_one_after_the_other(void *(*call)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, call, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

static void closed_endpoints_are_not_found(void) {
  mx_endpoint_t first = open_with(2, &serialized, 1), kept = open_with(3, &not_serialized, 1);
  mx_endpoint_addr_t own;
  OK(mx_close_endpoint(first));
  for (int i = 0; i < OPENED; i++) {
    mx_endpoint_t other = open_with(2, i % 3 ? &serialized : &not_serialized, 1);
    CHECK(other != first && other != kept);
    RETURNS(MX_BAD_ENDPOINT, mx_wakeup(first));
    OK(mx_get_endpoint_addr(kept, &own));
    OK(mx_close_endpoint(other));
    RETURNS(MX_BAD_ENDPOINT, mx_close_endpoint(other));
  }
  OK(mx_close_endpoint(kept));
}

int main(void) {
  begin();
  a_call_beside_another_is_refused();
  threads_may_call_one_after_the_other(send_to_itself);
  threads_may_call_one_after_the_other(close_it);
  closed_endpoints_are_not_found();
  OK(mx_finalize());
  RETURNS(MX_NOT_INITIALIZED, mx_wakeup(endpoint));
  return 0;
}
