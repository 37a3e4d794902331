/* Section 2: a call with a wrong argument returns the matching code and has no effect. */
#include "check.h"

static int handled;
static mx_return_t last;

static mx_return_t handler(char *text, mx_return_t code) {
  CHECK(text != NULL && *text != 0);
  handled++;
  last = code;
  /* The call returns the result of the handler. */
  return MX_BAD_BAD_BAD;
}

int main(void) {
  mx_endpoint_t endpoint, other;
  mx_endpoint_addr_t addr, no_address;
  mx_request_t request, stale;
  mx_status_t status;
  mx_segment_t segment;
  uint64_t nic;
  uint32_t board, id, result;
  char byte, name[MX_MAX_STR_LEN];
  void *context;
  alarm(HANG);
  /* Before mx_init. */
  CHECK(mx_set_error_handler(MX_ERRORS_RETURN) == MX_ERRORS_ARE_FATAL);
  RETURNS(MX_NOT_INITIALIZED, mx_finalize());
  RETURNS(MX_NOT_INITIALIZED, mx_open_endpoint(0, 1, 0, NULL, 0, &endpoint));
  RETURNS(MX_NOT_INITIALIZED, mx_board_number_to_nic_id(0, &nic));
  RETURNS(MX_NOT_INITIALIZED, mx_hostname_to_nic_id(name, &nic));
  RETURNS(MX_NOT_INITIALIZED, mx_close_endpoint((mx_endpoint_t)&byte));
  RETURNS(MX_BAD_LIB_VERSION, mx__init_api(0));
  RETURNS(MX_BAD_LIB_VERSION, mx__init_api(0x201));
  OK(mx__init_api(0x300));
  RETURNS(MX_ALREADY_INITIALIZED, mx_init());
  OK(mx_finalize());
  OK(mx_init());
  /* Endpoints. */
  mx_param_t param = {.key = 3};
  RETURNS(MX_BOARD_UNKNOWN, mx_open_endpoint(1, 1, 0, NULL, 0, &endpoint));
  RETURNS(MX_BAD_ENDPOINT_ID, mx_open_endpoint(0, 100000, 0, NULL, 0, &endpoint));
  RETURNS(MX_BAD_PARAM_LIST, mx_open_endpoint(0, 1, 0, NULL, 1, &endpoint));
  RETURNS(MX_BAD_PARAM_NAME, mx_open_endpoint(0, 1, 0, &param, 1, &endpoint));
  param.key = MX_PARAM_HANDLER_DATA;
  param.val.unexp_queue_max = 32769;
  RETURNS(MX_BAD_PARAM_VAL, mx_open_endpoint(0, 1, 0, &param, 1, &endpoint));
  param.key = MX_PARAM_UNEXP_QUEUE_MAX;
  param.val.unexp_queue_max = 1000;
  OK(mx_open_endpoint(MX_ANY_NIC, 1, KEY, &param, 1, &endpoint));
  RETURNS(MX_BUSY, mx_open_endpoint(0, 1, 0, NULL, 0, &other));
  OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, KEY, NULL, 0, &other));
  OK(mx_get_endpoint_addr(other, &no_address));
  OK(mx_decompose_endpoint_addr(no_address, &nic, &id));
  CHECK(id == 0);
  OK(mx_is_on_other_host(other, no_address, &result));
  CHECK(result == 0);
  OK(mx_is_reached_by_datagrams(other, no_address, &result));
  CHECK(result == 0);
  OK(mx_use_credit(other, no_address, 65536, &result));
  CHECK(result == 0);
  OK(mx_isend_with_credit(other, NULL, 0, no_address, 1, NULL, NULL, &result));
  CHECK(result == 0);
  RETURNS(MX_BAD_ENDPOINT, mx_use_credit(NULL, no_address, 65536, &result));
  RETURNS(MX_BAD_ENDPOINT, mx_needs_uplink(NULL, &result));
  /* Names. */
  RETURNS(MX_BOARD_UNKNOWN, mx_board_number_to_nic_id(1, &nic));
  OK(mx_board_number_to_nic_id(0, &nic));
  CHECK(nic >> 48 == 0);
  OK(mx_nic_id_to_board_number(nic, &board));
  CHECK(board == 0);
  RETURNS(MX_NIC_NOT_FOUND, mx_nic_id_to_board_number(nic ^ 1, &board));
  memset(name, 'x', sizeof name);
  OK(mx_nic_id_to_hostname(nic, name));
  CHECK(strlen(name) < MX_MAX_HOSTNAME_LEN);
  CHECK(name[MX_MAX_HOSTNAME_LEN] == 'x');
  RETURNS(MX_NIC_NOT_FOUND, mx_nic_id_to_hostname(nic ^ 1, name));
  uint64_t found;
  OK(mx_hostname_to_nic_id(name, &found));
  CHECK(found == nic);
  *strrchr(name, ':') = 0;
  OK(mx_hostname_to_nic_id(name, &found));
  OK(mx_hostname_to_nic_id("localhost", &found));
  RETURNS(MX_HOST_NOT_FOUND, mx_hostname_to_nic_id("localhost:1", &found));
  RETURNS(MX_HOST_NOT_FOUND, mx_hostname_to_nic_id("", &found));
  RETURNS(MX_BAD_HOSTNAME_ARGS, mx_hostname_to_nic_id(NULL, &found));
  /* Addresses. */
  OK(mx_get_endpoint_addr(endpoint, &addr));
  memset(&no_address, 0, sizeof no_address);
  segment.segment_ptr = &byte;
  segment.segment_length = 1;
  RETURNS(MX_BAD_ENDPOINT, mx_isend(endpoint, &segment, 1, no_address, 0, NULL, &request));
  RETURNS(MX_BAD_ENDPOINT, mx_isend(other, &segment, 1, addr, 0, NULL, &request));
  RETURNS(MX_BAD_ENDPOINT, mx_decompose_endpoint_addr(no_address, &nic, &id));
  RETURNS(MX_BAD_ENDPOINT, mx_disconnect(endpoint, no_address));
  RETURNS(MX_BAD_ENDPOINT, mx_set_endpoint_addr_context(no_address, &byte));
  RETURNS(MX_BAD_ENDPOINT, mx_get_endpoint_addr_context(no_address, &context));
  /* Requests. */
  RETURNS(MX_BAD_MATCH_MASK, mx_irecv(endpoint, &segment, 1, 3, 1, NULL, &request));
  request = NULL;
  RETURNS(MX_BAD_REQUEST, mx_test(endpoint, &request, &status, &result));
  RETURNS(MX_BAD_REQUEST, mx_wait(endpoint, &request, 1, &status, &result));
  RETURNS(MX_BAD_REQUEST, mx_cancel(endpoint, &request, &result));
  RETURNS(MX_BAD_REQUEST, mx_forget(endpoint, &request));
  RETURNS(MX_BAD_REQUEST, mx_context(&request, &context));
  RETURNS(MX_BAD_REQUEST, mx_context(NULL, &context));
  request = (mx_request_t)&byte;
  RETURNS(MX_BAD_REQUEST, mx_test(endpoint, &request, &status, &result));
  OK(mx_irecv(endpoint, &segment, 1, 3, 3, &byte, &request));
  OK(mx_context(&request, &context));
  CHECK(context == &byte);
  RETURNS(MX_BAD_REQUEST, mx_ibuffered(endpoint, &request, &result));
  RETURNS(MX_BAD_REQUEST, mx_buffered(endpoint, &request, 1, &result));
  RETURNS(MX_BAD_REQUEST, mx_test(other, &request, &status, &result));
  stale = request;
  OK(mx_cancel(endpoint, &request, &result));
  CHECK(result == 1 && request == NULL);
  RETURNS(MX_BAD_REQUEST, mx_test(endpoint, &stale, &status, &result));
  RETURNS(MX_BAD_REQUEST, mx_cancel(endpoint, &stale, &result));
  /* The handle of the old request does not refer to a new one in the same slot. */
  OK(mx_irecv(endpoint, &segment, 1, 3, 3, NULL, &request));
  RETURNS(MX_BAD_REQUEST, mx_cancel(endpoint, &stale, &result));
  /* A matched receive and a send cannot be cancelled. */
  mx_request_t sent = start(endpoint, addr, &byte, 1, 3);
  OK(mx_cancel(endpoint, &request, &result));
  CHECK(result == 0 && request != NULL);
  RETURNS(MX_BAD_REQUEST, mx_cancel(endpoint, &sent, &result));
  OK(mx_ibuffered(endpoint, &sent, &result));
  CHECK(result == 1);
  finish(endpoint, &sent);
  finish(endpoint, &request);
  /* mx_ipeek does not take the result. */
  OK(mx_ipeek(endpoint, &request, &result));
  CHECK(result == 0);
  /* A request that is forgotten at once, and one that is forgotten later. */
  OK(mx_irecv(endpoint, &segment, 1, 4, 7, NULL, &request));
  OK(mx_isend(endpoint, &segment, 1, addr, 4, NULL, NULL));
  finish(endpoint, &request);
  sent = start_sync(endpoint, addr, &byte, 1, 5);
  OK(mx_forget(endpoint, &sent));
  CHECK(sent == NULL);
  receive(endpoint, &byte, 1, 5, 7);
  OK(mx_test_any(endpoint, 0, 0, &status, &result));
  CHECK(result == 0);
  /* Functions that are not implemented fail. */
  RETURNS(MX_FAILURE, mx_iput(endpoint, &segment, 1, addr, 0, NULL, &request));
  RETURNS(MX_FAILURE, mx_iget(endpoint, &segment, 1, addr, 0, NULL, &request));
  /* Error handlers of the process and of an endpoint. */
  CHECK(mx_set_error_handler(handler) == MX_ERRORS_RETURN);
  RETURNS(MX_BAD_BAD_BAD, mx_board_number_to_nic_id(1, &nic));
  CHECK(handled == 1 && last == MX_BOARD_UNKNOWN);
  CHECK(mx_set_error_handler(MX_ERRORS_RETURN) == handler);
  mx_endpoint_t third;
  param.key = MX_PARAM_ERROR_HANDLER;
  param.val.error_handler = handler;
  OK(mx_open_endpoint(0, 3, KEY, &param, 1, &third));
  RETURNS(MX_BAD_BAD_BAD, mx_cancel(third, &stale, &result));
  CHECK(handled == 2 && last == MX_BAD_REQUEST);
  /* Handles of a closed endpoint, its addresses and its requests are not valid. */
  OK(mx_irecv(endpoint, &segment, 1, 3, 3, NULL, &request));
  OK(mx_close_endpoint(endpoint));
  RETURNS(MX_BAD_ENDPOINT, mx_close_endpoint(endpoint));
  RETURNS(MX_BAD_ENDPOINT, mx_test(endpoint, &request, &status, &result));
  RETURNS(MX_BAD_ENDPOINT, mx_decompose_endpoint_addr(addr, &nic, &id));
  RETURNS(MX_BAD_REQUEST, mx_context(&request, &context));
  RETURNS(MX_BAD_ENDPOINT, mx_wakeup((mx_endpoint_t)&byte));
  /* Every code has a text. */
  for (int code = -1; code < 50; code++) {
    CHECK(mx_strerror((mx_return_t)code) != NULL);
    CHECK(mx_strstatus((mx_status_code_t)code) != NULL);
  }
  OK(mx_finalize());
  RETURNS(MX_NOT_INITIALIZED, mx_close_endpoint(other));
  return 0;
}
