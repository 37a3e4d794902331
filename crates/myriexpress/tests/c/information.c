/* Section 5: mx_get_info, and the mapper state that Open MPI reads. */
#include "check.h"

static mx_endpoint_t endpoint;

/* A number, with and without an endpoint, and with a buffer that is too small. */
static uint32_t number(mx_get_info_key_t key) {
  uint32_t one = 77, two = 78, board = 0;
  OK(mx_get_info(NULL, key, &board, sizeof board, &one, sizeof one));
  OK(mx_get_info(endpoint, key, NULL, 0, &two, sizeof two));
  CHECK(one == two);
  RETURNS(MX_BAD_INFO_LENGTH, mx_get_info(NULL, key, NULL, 0, &one, 3));
  RETURNS(MX_BAD_INFO_VAL, mx_get_info(NULL, key, NULL, 0, NULL, 4));
  return one;
}

int main(void) {
  alarm(HANG);
  begin();
  endpoint = open_at(1);
  uint32_t board = 1;
  uint64_t ids[3] = {7, 7, 7};
  char labels[8][MX_MAX_STR_LEN], text[MX_MAX_STR_LEN + 1];
  uint32_t values[8], before[8];
  CHECK(number(MX_NIC_COUNT) == 1);
  CHECK(number(MX_MAX_NATIVE_ENDPOINTS) >= 32);
  CHECK(number(MX_NATIVE_REQUESTS) == 0xffffffff);
  CHECK(number(MX_PORT_COUNT) == 1);
  CHECK(number(MX_PIO_SEND_MAX) == 128);
  CHECK(number(MX_COPY_SEND_MAX) == 32768);
  CHECK(number(MX_NET_TYPE) == MX_NET_ETHER);
  CHECK(number(MX_LINE_SPEED) == MX_SPEED_OPEN_MX);
  CHECK((int32_t)number(MX_NUMA_NODE) == -1);
  /* The list of NIC ids ends with a zero, which must fit into the buffer. */
  RETURNS(MX_BAD_INFO_LENGTH, mx_get_info(NULL, MX_NIC_IDS, NULL, 0, ids, 8));
  OK(mx_get_info(NULL, MX_NIC_IDS, NULL, 0, ids, sizeof ids));
  CHECK(ids[0] == own_nic() && ids[1] == 0 && ids[2] == 7);
  uint32_t count = number(MX_COUNTERS_COUNT);
  CHECK(count > 0 && count <= 8);
  RETURNS(MX_BAD_INFO_LENGTH, mx_get_info(NULL, MX_COUNTERS_LABELS, NULL, 0, labels, 128 * count - 1));
  OK(mx_get_info(NULL, MX_COUNTERS_LABELS, NULL, 0, labels, sizeof labels));
  OK(mx_get_info(endpoint, MX_COUNTERS_VALUES, NULL, 0, before, sizeof before));
  mx_endpoint_addr_t own;
  OK(mx_get_endpoint_addr(endpoint, &own));
  OK(mx_isend(endpoint, NULL, 0, own, 0, NULL, NULL));
  OK(mx_get_info(endpoint, MX_COUNTERS_VALUES, NULL, 0, values, sizeof values));
  CHECK(!strcmp(labels[0], "sends started") && values[0] == before[0] + 1);
  uint8_t small = 0;
  OK(mx_get_info(NULL, MX_COUNTERS_VALUES, &small, sizeof small, before, sizeof before));
  CHECK(before[0] == values[0]);
  for (mx_get_info_key_t key = MX_PRODUCT_CODE; key <= MX_SERIAL_NUMBER; key++) {
    memset(text, 'x', sizeof text);
    OK(mx_get_info(NULL, key, NULL, 0, text, MX_MAX_STR_LEN));
    CHECK(strlen(text) > 0 && strlen(text) < MX_MAX_STR_LEN && text[MX_MAX_STR_LEN] == 'x');
    RETURNS(MX_BOARD_UNKNOWN, mx_get_info(NULL, key, &board, sizeof board, text, MX_MAX_STR_LEN));
    RETURNS(MX_BAD_INFO_LENGTH, mx_get_info(NULL, key, NULL, 0, text, 2));
  }
  RETURNS(MX_BAD_INFO_KEY, mx_get_info(NULL, 0, NULL, 0, text, sizeof text));
  RETURNS(MX_BAD_INFO_KEY, mx_get_info(NULL, 17, NULL, 0, text, sizeof text));
  /* Open MPI derives the id of its network from the mapper state. */
  mx_endpt_handle_t handle = MX__INVALID_HANDLE;
  mx_mapper_state_t state;
  OK(mx_open_board(0, &handle));
  CHECK(handle != MX__INVALID_HANDLE);
  OK(mx__get_mapper_state(handle, &state));
  CHECK(state.num_hosts == 1 && state.network_configured);
  uint64_t mac = 0;
  for (int i = 0; i < 6; i++)
    mac = mac << 8 | state.mapper_mac[i];
  CHECK(mac == own_nic());
  RETURNS(MX_BOARD_UNKNOWN, mx_open_board(1, &handle));
  RETURNS(MX_BOARD_UNKNOWN, mx__get_mapper_state(7, &state));
  CHECK(mx__regcache_clean(text, sizeof text) == 0);
  CHECK(MX_U32((uint64_t)1 << 32) == 1 && MX_L32(((uint64_t)1 << 32) + 5) == 5);
  CHECK(MX_U32((uint32_t)9) == 0);
  OK(mx_close_endpoint(endpoint));
  OK(mx_finalize());
  return 0;
}
