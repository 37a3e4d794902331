/* An endpoint that sends a message to itself. By default, an error ends the process. */
#include <myriexpress.h>
#include <stdio.h>

int main(void) {
  char sent[] = "hello", received[sizeof sent];
  mx_segment_t source = {sent, sizeof sent}, target = {received, sizeof received};
  mx_endpoint_t endpoint;
  mx_endpoint_addr_t own;
  mx_request_t send, receive;
  mx_status_t status;
  uint32_t completed;

  mx_init();
  mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 77, NULL, 0, &endpoint);
  mx_get_endpoint_addr(endpoint, &own);
  mx_irecv(endpoint, &target, 1, 5, MX_MATCH_MASK_NONE, NULL, &receive);
  mx_isend(endpoint, &source, 1, own, 5, NULL, &send);
  mx_wait(endpoint, &receive, MX_INFINITE, &status, &completed);
  mx_wait(endpoint, &send, MX_INFINITE, &status, &completed);
  puts(received);
  mx_close_endpoint(endpoint);
  mx_finalize();
  return 0;
}
