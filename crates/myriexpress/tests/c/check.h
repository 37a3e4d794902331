/* Shared code of the programs: two processes with an endpoint each, and checks that end the process. */
#ifndef CHECK_H
#define CHECK_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mx_extensions.h"
#include "mx_io.h"
#include "mx_internals/mx__driver_interface.h"
#include "myriexpress.h"

#define UNUSED __attribute__((unused))

/* No program takes this long, so a process that still runs is stuck. */
#define HANG 300

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);          \
      _exit(1);                                                                \
    }                                                                          \
  } while (0)

#define RETURNS(expected, call)                                                \
  do {                                                                         \
    mx_return_t code_ = (call);                                                \
    if (code_ != (expected)) {                                                 \
      fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, code_, \
              mx_strerror(code_));                                             \
      _exit(1);                                                                \
    }                                                                          \
  } while (0)

#define OK(call) RETURNS(MX_SUCCESS, call)

#define KEY 0x1234

/* Initializes the library so that calls return errors. */
UNUSED static void begin(void) {
  mx_set_error_handler(MX_ERRORS_RETURN);
  OK(mx_init());
}

UNUSED static uint64_t own_nic(void) {
  uint64_t nic;
  OK(mx_board_number_to_nic_id(0, &nic));
  return nic;
}

UNUSED static mx_endpoint_t open_with(uint32_t id, mx_param_t *params,
                                      uint32_t count) {
  mx_endpoint_t endpoint;
  OK(mx_open_endpoint(0, id, KEY, params, count, &endpoint));
  return endpoint;
}

UNUSED static mx_endpoint_t open_at(uint32_t id) {
  return open_with(id, NULL, 0);
}

/* Connects to a peer that may not have started yet. */
UNUSED static mx_endpoint_addr_t connect_to(mx_endpoint_t endpoint,
                                            uint32_t id) {
  mx_endpoint_addr_t addr;
  mx_return_t code;
  do {
    code = mx_connect(endpoint, own_nic(), id, KEY, MX_INFINITE, &addr);
    if (code == MX_CONNECTION_FAILED)
      usleep(1000);
  } while (code == MX_CONNECTION_FAILED);
  OK(code);
  return addr;
}

UNUSED static mx_status_t finish(mx_endpoint_t endpoint,
                                 mx_request_t *request) {
  mx_status_t status;
  uint32_t result = 0;
  OK(mx_wait(endpoint, request, MX_INFINITE, &status, &result));
  CHECK(result == 1 && *request == NULL);
  return status;
}

UNUSED static mx_request_t post(mx_endpoint_t endpoint, void *memory,
                                uint32_t length, uint64_t match,
                                uint64_t mask) {
  mx_segment_t segment = {memory, length};
  mx_request_t request;
  OK(mx_irecv(endpoint, &segment, 1, match, mask, memory, &request));
  CHECK(request != NULL);
  return request;
}

UNUSED static mx_status_t receive(mx_endpoint_t endpoint, void *memory,
                                  uint32_t length, uint64_t match,
                                  uint64_t mask) {
  mx_request_t request = post(endpoint, memory, length, match, mask);
  return finish(endpoint, &request);
}

UNUSED static mx_request_t start(mx_endpoint_t endpoint, mx_endpoint_addr_t to,
                                 void *memory, uint32_t length,
                                 uint64_t match) {
  mx_segment_t segment = {memory, length};
  mx_request_t request;
  OK(mx_isend(endpoint, &segment, 1, to, match, memory, &request));
  CHECK(request != NULL);
  return request;
}

UNUSED static mx_request_t start_sync(mx_endpoint_t endpoint,
                                      mx_endpoint_addr_t to, void *memory,
                                      uint32_t length, uint64_t match) {
  mx_segment_t segment = {memory, length};
  mx_request_t request;
  OK(mx_issend(endpoint, &segment, 1, to, match, memory, &request));
  CHECK(request != NULL);
  return request;
}

UNUSED static mx_status_t send_to(mx_endpoint_t endpoint, mx_endpoint_addr_t to,
                                  void *memory, uint32_t length,
                                  uint64_t match) {
  mx_request_t request = start(endpoint, to, memory, length, match);
  return finish(endpoint, &request);
}

UNUSED static int is_done(mx_endpoint_t endpoint, mx_request_t *request,
                          mx_status_t *status) {
  uint32_t result = 7;
  OK(mx_test(endpoint, request, status, &result));
  CHECK(result <= 1);
  return (int)result;
}

/* A barrier of both sides. */
#define BARRIER 0xffffffff00000000u
UNUSED static void barrier(mx_endpoint_t endpoint, mx_endpoint_addr_t peer) {
  char byte = 0;
  mx_request_t request = start_sync(endpoint, peer, &byte, 1, BARRIER);
  char other;
  CHECK(receive(endpoint, &other, 1, BARRIER, MX_MATCH_MASK_NONE).code ==
        MX_STATUS_SUCCESS);
  finish(endpoint, &request);
}

UNUSED static void fill(unsigned char *memory, uint32_t length, unsigned seed) {
  for (uint32_t at = 0; at < length; at++)
    memory[at] = (unsigned char)(at * 31 + seed);
}

UNUSED static int is_filled(const unsigned char *memory, uint32_t length,
                            unsigned seed) {
  for (uint32_t at = 0; at < length; at++)
    if (memory[at] != (unsigned char)(at * 31 + seed))
      return 0;
  return 1;
}

/* Runs a and b in a process each. The first failure ends the program. */
UNUSED static int both(void (*a)(void), void (*b)(void)) {
  pid_t parent = getpid();
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(getppid() == parent);
    alarm(HANG);
    b();
    exit(0);
  }
  alarm(HANG);
  a();
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}

/* Makes two connected endpoints: 1 in the parent, 2 in the child. */
typedef struct {
  mx_endpoint_t endpoint;
  mx_endpoint_addr_t peer;
} side_t;

UNUSED static side_t open_side_with(uint32_t own, uint32_t other, mx_param_t *params,
                               uint32_t count) {
  side_t side;
  begin();
  side.endpoint = open_with(own, params, count);
  side.peer = connect_to(side.endpoint, other);
  barrier(side.endpoint, side.peer);
  return side;
}

UNUSED static side_t open_side(uint32_t own, uint32_t other) {
  return open_side_with(own, other, NULL, 0);
}

/* A barrier at the end of a test: no side closes its endpoint before the other has completed. */
UNUSED static void close_side(side_t side) {
  barrier(side.endpoint, side.peer);
  OK(mx_close_endpoint(side.endpoint));
  OK(mx_finalize());
}

#endif
