/* Two members of the message plane or two hosts, each with one process:
   members OWN OTHER ENDPOINT OTHERS-ENDPOINT [other-host]. */
#include "check.h"

static unsigned char out[300000], in[300000];

static const uint32_t lengths[] = {0, 8, 48, 49, 4096, 32768, 32769, 300000};

int main(int count, char **words) {
  CHECK(count == 5 || (count == 6 && !strcmp(words[5], "other-host")));
  alarm(HANG);
  uint32_t own = (uint32_t)atoi(words[3]), other = (uint32_t)atoi(words[4]), id, result;
  uint64_t nic, found;
  char name[MX_MAX_HOSTNAME_LEN];
  mx_endpoint_addr_t peer;
  mx_status_t status;
  mx_return_t code;
  side_t side;
  begin();
  /* The member's name and its host's name lead to the same NIC id. */
  OK(mx_hostname_to_nic_id(words[1], &found));
  CHECK(found == own_nic());
  RETURNS(MX_HOST_NOT_FOUND, mx_hostname_to_nic_id("", &nic));
  OK(mx_hostname_to_nic_id(words[2], &nic));
  CHECK(nic != found);
  OK(mx_nic_id_to_hostname(nic, name));
  /* The name of a host is followed by the number of its board. */
  name[strcspn(name, ":")] = 0;
  CHECK(!strcmp(name, words[2]));
  snprintf(name, sizeof name, "%s:0", words[2]);
  OK(mx_hostname_to_nic_id(name, &found));
  CHECK(found == nic);
  RETURNS(MX_NIC_NOT_FOUND, mx_nic_id_to_board_number(nic, &id));
  side.endpoint = open_at(own);
  /* Without an uplink, every name is taken for a member's until a connect to it fails. */
  if (mx_hostname_to_nic_id("nobody", &found) == MX_SUCCESS)
    RETURNS(MX_NIC_NOT_FOUND, mx_connect(side.endpoint, found, other, KEY, MX_INFINITE, &peer));
  do {
    code = mx_connect(side.endpoint, nic, other, KEY, MX_INFINITE, &peer);
    if (code == MX_CONNECTION_FAILED)
      usleep(1000);
  } while (code == MX_CONNECTION_FAILED);
  OK(code);
  OK(mx_decompose_endpoint_addr(peer, &found, &id));
  CHECK(found == nic && id == other);
  OK(mx_is_on_other_host(side.endpoint, peer, &result));
  CHECK(result == (count == 6));
  /* Without an uplink, or with its interface. */
  OK(mx_needs_uplink(side.endpoint, &result));
  CHECK(result == 0);
  side.peer = peer;
  barrier(side.endpoint, peer);
  if (own < other) {
    /* The other process waits meanwhile. */
    mx_endpoint_t stranger = open_at(own + 10);
    RETURNS(MX_BAD_CONNECTION_KEY, mx_connect(stranger, nic, other, KEY + 1, MX_INFINITE, &peer));
    OK(mx_close_endpoint(stranger));
    peer = side.peer;
  }
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
    for (int synchronous = 0; synchronous < 2; synchronous++) {
      fill(out, lengths[i], i);
      memset(in, 0, sizeof in);
      mx_request_t sent = synchronous ? start_sync(side.endpoint, peer, out, lengths[i], i)
                                      : start(side.endpoint, peer, out, lengths[i], i);
      status = receive(side.endpoint, in, sizeof in, i, MX_MATCH_MASK_NONE);
      CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == lengths[i]);
      CHECK(!memcmp(&status.source, &peer, sizeof peer) && is_filled(in, lengths[i], i));
      CHECK(finish(side.endpoint, &sent).code == MX_STATUS_SUCCESS);
    }
  close_side(side);
  return 0;
}
