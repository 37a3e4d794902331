/* A poll in which the handler takes a message counts as one that finds something: the program does not yield its processor
   as one whose polls find nothing. */
#include <sched.h>

#include "check.h"

#define MESSAGES 200000

static unsigned yields, taken;

/* In place of the C library's function, for the library as well. */
int sched_yield(void) {
  yields++;
  return 0;
}

static mx_unexp_handler_action_t handler(void *context, mx_endpoint_addr_t source, uint64_t match, uint32_t length,
                                         void *data) {
  (void)source, (void)match, (void)length, (void)data;
  CHECK(context == &taken);
  taken++;
  return MX_RECV_FINISHED;
}

int main(void) {
  uint32_t found;
  mx_status_t status;
  begin();
  mx_endpoint_t endpoint = open_at(1);
  mx_endpoint_addr_t own = connect_to(endpoint, 1);
  OK(mx_register_unexp_handler(endpoint, handler, &taken));
  yields = 0;
  for (unsigned i = 0; i < MESSAGES; i++) {
    OK(mx_isend(endpoint, NULL, 0, own, 1, NULL, NULL));
    OK(mx_test_any(endpoint, 0, 0, &status, &found));
    CHECK(!found && taken == i + 1);
  }
  CHECK(yields == 0);
  /* Polls that find nothing yield at times. */
  for (unsigned i = 0; i < MESSAGES; i++)
    OK(mx_test_any(endpoint, 0, 0, &status, &found));
  CHECK(yields > 0);
  OK(mx_close_endpoint(endpoint));
  OK(mx_finalize());
  return 0;
}
