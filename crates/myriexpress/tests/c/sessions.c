/* Sections 6.3 and 6.7: endpoints that are closed, killed and reopened. Section 2: connects. */
#include "check.h"

static char byte;
static unsigned char big[100000];

/* Closes its endpoint, opens it again, and is killed. */
static void victim(void) {
  side_t s = open_side(2, 1);
  barrier(s.endpoint, s.peer);
  OK(mx_close_endpoint(s.endpoint));
  s.endpoint = open_at(2);
  s.peer = connect_to(s.endpoint, 1);
  /* Messages to the old address do not arrive. */
  receive(s.endpoint, &byte, 1, 1, MX_MATCH_MASK_NONE);
  mx_status_t status;
  uint32_t result;
  OK(mx_iprobe(s.endpoint, 0, 0, &status, &result));
  CHECK(result == 0);
  send_to(s.endpoint, s.peer, &byte, 1, 2);
  receive(s.endpoint, &byte, 1, 3, MX_MATCH_MASK_NONE);
  kill(getpid(), SIGKILL);
}

static void survivor(void) {
  side_t s = open_side(1, 2);
  mx_request_t pending = start_sync(s.endpoint, s.peer, &byte, 1, 9);
  mx_request_t large = start(s.endpoint, s.peer, big, sizeof big, 9);
  barrier(s.endpoint, s.peer);
  mx_status_t status = finish(s.endpoint, &pending);
  CHECK(status.code == MX_STATUS_ENDPOINT_CLOSED);
  CHECK(finish(s.endpoint, &large).code == MX_STATUS_ENDPOINT_CLOSED);
  /* After the reopening, the old address belongs to an old session. */
  mx_endpoint_addr_t now = connect_to(s.endpoint, 2);
  status = send_to(s.endpoint, s.peer, &byte, 1, 1);
  CHECK(status.code == MX_STATUS_BAD_SESSION);
  uint64_t nic;
  uint32_t id, before, after;
  OK(mx_decompose_endpoint_addr2(s.peer, &nic, &id, &before));
  OK(mx_decompose_endpoint_addr2(now, &nic, &id, &after));
  CHECK(nic == own_nic() && id == 2 && before != after);
  send_to(s.endpoint, now, &byte, 1, 1);
  receive(s.endpoint, &byte, 1, 2, MX_MATCH_MASK_NONE);
  /* After the kill, all requests for that peer complete. */
  pending = start_sync(s.endpoint, now, &byte, 1, 9);
  send_to(s.endpoint, now, &byte, 1, 3);
  CHECK(finish(s.endpoint, &pending).code == MX_STATUS_ENDPOINT_CLOSED);
  OK(mx_close_endpoint(s.endpoint));
  OK(mx_finalize());
}

static void connects(void) {
  begin();
  mx_endpoint_t one = open_at(1), two = open_at(2), three = open_at(3);
  mx_endpoint_addr_t addr, own;
  uint64_t nic = own_nic();
  uint32_t id, result;
  mx_request_t request;
  mx_status_t status;
  RETURNS(MX_CONNECTION_FAILED, mx_connect(one, nic, 7, KEY, 1000, &addr));
  RETURNS(MX_BAD_ENDPOINT_ID, mx_connect(one, nic, 100000, KEY, 1000, &addr));
  RETURNS(MX_NIC_NOT_FOUND, mx_connect(one, nic ^ 1, 1, KEY, 1000, &addr));
  /* While this thread waits, no thread makes progress on the second endpoint. */
  RETURNS(MX_TIMEOUT, mx_connect(one, nic, 2, KEY, 20, &addr));
  OK(mx_iconnect(one, nic, 7, KEY, 70, &byte, &request));
  status = finish(one, &request);
  CHECK(status.code == MX_STATUS_ENDPOINT_CLOSED && status.match_info == 70);
  CHECK(status.context == &byte);
  OK(mx_iconnect(one, nic, 100000, KEY, 71, &byte, &request));
  CHECK(finish(one, &request).code == MX_STATUS_BAD_ENDPOINT);
  OK(mx_iconnect(one, nic, 2, KEY + 1, 72, &byte, &request));
  while (!is_done(one, &request, &status))
    OK(mx_progress(two));
  CHECK(status.code == MX_STATUS_BAD_KEY);
  /* A timeout for one connect, and for all later ones. */
  OK(mx_iconnect(one, nic, 3, KEY, 73, &byte, &request));
  OK(mx_set_request_timeout(one, request, 10));
  CHECK(finish(one, &request).code == MX_STATUS_TIMEOUT);
  OK(mx_set_request_timeout(one, NULL, 10));
  OK(mx_iconnect(one, nic, 3, KEY, 74, &byte, &request));
  CHECK(finish(one, &request).code == MX_STATUS_TIMEOUT);
  OK(mx_set_request_timeout(one, NULL, MX_INFINITE));
  /* A cancelled connect is not a request any more. */
  OK(mx_iconnect(one, nic, 3, KEY, 75, &byte, &request));
  OK(mx_cancel(one, &request, &result));
  CHECK(result == 1 && request == NULL);
  OK(mx_iconnect(one, nic, 3, KEY, 76, &byte, &request));
  while (!is_done(one, &request, &status))
    OK(mx_progress(three));
  CHECK(status.code == MX_STATUS_SUCCESS && status.match_info == 76);
  OK(mx_test_any(one, 0, 0, &status, &result));
  CHECK(result == 0);
  RETURNS(MX_BAD_CONNECTION_KEY, mx_connect(one, nic, 3, KEY + 1, 1000, &addr));
  /* Context pointers of peers. */
  void *kept = &kept;
  OK(mx_connect(one, nic, 2, KEY, 1000, &addr));
  OK(mx_get_endpoint_addr_context(addr, &kept));
  CHECK(kept == NULL);
  OK(mx_set_endpoint_addr_context(addr, &byte));
  OK(mx_get_endpoint_addr_context(addr, &kept));
  CHECK(kept == &byte);
  /* The receiver may answer to the source after it has connected to it. */
  send_to(one, addr, &byte, 1, 5);
  status = receive(two, &byte, 1, 5, MX_MATCH_MASK_NONE);
  mx_endpoint_addr_t source = status.source;
  OK(mx_decompose_endpoint_addr(source, &nic, &id));
  CHECK(nic == own_nic() && id == 1);
  OK(mx_get_endpoint_addr_context(source, &kept));
  CHECK(kept == NULL);
  OK(mx_set_endpoint_addr_context(source, &byte));
  OK(mx_connect(two, nic, 1, KEY, 1000, &addr));
  OK(mx_get_endpoint_addr_context(addr, &kept));
  CHECK(kept == &byte && !memcmp(&addr, &source, sizeof addr));
  request = start(two, source, &byte, 1, 6);
  finish(two, &request);
  receive(one, &byte, 1, 6, MX_MATCH_MASK_NONE);
  /* The program disconnects the peer. */
  mx_request_t pending = start_sync(two, source, &byte, 1, 6);
  OK(mx_disconnect(two, source));
  CHECK(finish(two, &pending).code != MX_STATUS_SUCCESS);
  /* The endpoint itself. */
  OK(mx_get_endpoint_addr(one, &own));
  OK(mx_decompose_endpoint_addr(own, &nic, &id));
  CHECK(nic == own_nic() && id == 1);
  OK(mx_connect(one, nic, 1, KEY, 1000, &addr));
  CHECK(!memcmp(&addr, &own, sizeof addr));
  OK(mx_close_endpoint(three));
  OK(mx_close_endpoint(two));
  OK(mx_close_endpoint(one));
  OK(mx_finalize());
}

int main(void) {
  connects();
  pid_t child = fork();
  CHECK(child >= 0);
  alarm(HANG);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    victim();
    return 1;
  }
  survivor();
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  return 0;
}
