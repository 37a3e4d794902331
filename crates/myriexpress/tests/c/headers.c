/* Sections 2 to 5: the names, constants and layouts in the headers. abi.c checks the library in the same
   way, for programs that were compiled with the original's headers. */
#include <stddef.h>

#include "check.h"
#include "mx_internals/mx__fops.h"
#include "mx_raw.h"

#define IS(name, value) _Static_assert((name) == (value), #name)

IS(MX_API, 0x301);
IS(MX_MAX_STR_LEN, 128);
IS(MX_MAX_HOSTNAME_LEN, 80);
IS(MX_SIZEOF_ADDR, 16);
IS(MX_INFINITE, 0);
IS(MX_MAX_SEGMENTS, 256);
IS(MX_MATCH_MASK_NONE, UINT64_MAX);
IS(MX_CONTEXT_ID_BITS_MAX, 16);
IS(MX_ANY_NIC, UINT32_MAX);
IS(MX_ANY_ENDPOINT, UINT32_MAX);
IS(MX_HAS_ICONNECT_V2, 1);
IS(MX__INVALID_HANDLE, -1);
#ifndef MX_HAS_NET_TYPE
#error "MX_HAS_NET_TYPE"
#endif
/* Defined, and empty. */
_Static_assert(sizeof((char[]){"" MX_HAS_NET_TYPE}) == 1, "MX_HAS_NET_TYPE");

IS(MX_SUCCESS, 0);
IS(MX_BAD_BAD_BAD, 1);
IS(MX_FAILURE, 2);
IS(MX_ALREADY_INITIALIZED, 3);
IS(MX_NOT_INITIALIZED, 4);
IS(MX_NO_DEV, 5);
IS(MX_NO_DRIVER, 6);
IS(MX_NO_PERM, 7);
IS(MX_BOARD_UNKNOWN, 8);
IS(MX_BAD_ENDPOINT, 9);
IS(MX_BAD_SEG_LIST, 10);
IS(MX_BAD_SEG_MEM, 11);
IS(MX_BAD_SEG_CNT, 12);
IS(MX_BAD_REQUEST, 13);
IS(MX_BAD_MATCH_MASK, 14);
IS(MX_NO_RESOURCES, 15);
IS(MX_BAD_ADDR_LIST, 16);
IS(MX_BAD_ADDR_COUNT, 17);
IS(MX_BAD_ROOT, 18);
IS(MX_NOT_COMPLETED, 19);
IS(MX_BUSY, 20);
IS(MX_BAD_INFO_KEY, 21);
IS(MX_BAD_INFO_VAL, 22);
IS(MX_BAD_NIC, 23);
IS(MX_BAD_PARAM_LIST, 24);
IS(MX_BAD_PARAM_NAME, 25);
IS(MX_BAD_PARAM_VAL, 26);
IS(MX_BAD_HOSTNAME_ARGS, 27);
IS(MX_HOST_NOT_FOUND, 28);
IS(MX_REQUEST_PENDING, 29);
IS(MX_TIMEOUT, 30);
IS(MX_NO_MATCH, 31);
IS(MX_BAD_ENDPOINT_ID, 32);
IS(MX_CONNECTION_FAILED, 33);
IS(MX_BAD_CONNECTION_KEY, 34);
IS(MX_BAD_INFO_LENGTH, 35);
IS(MX_NIC_NOT_FOUND, 36);
IS(MX_BAD_KERNEL_VERSION, 37);
IS(MX_BAD_LIB_VERSION, 38);
IS(MX_NIC_DEAD, 39);
IS(MX_CANCEL_NOT_SUPPORTED, 40);
IS(MX_CLOSE_IN_HANDLER, 41);
IS(MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK, 42);
IS(MX_NOT_SUPPORTED_WITH_CONTEXT_ID, 43);

IS(MX_STATUS_SUCCESS, 0);
IS(MX_STATUS_PENDING, 1);
IS(MX_STATUS_BUFFERED, 2);
IS(MX_STATUS_REJECTED, 3);
IS(MX_STATUS_TIMEOUT, 4);
IS(MX_STATUS_TRUNCATED, 5);
IS(MX_STATUS_CANCELLED, 6);
IS(MX_STATUS_ENDPOINT_UNKNOWN, 7);
IS(MX_STATUS_ENDPOINT_CLOSED, 8);
IS(MX_STATUS_ENDPOINT_UNREACHABLE, 9);
IS(MX_STATUS_BAD_SESSION, 10);
IS(MX_STATUS_BAD_KEY, 11);
IS(MX_STATUS_BAD_ENDPOINT, 12);
IS(MX_STATUS_BAD_RDMAWIN, 13);
IS(MX_STATUS_ABORTED, 14);
IS(MX_STATUS_EVENTQ_FULL, 15);
IS(MX_STATUS_NO_RESOURCES, 16);

IS(MX_PARAM_ERROR_HANDLER, 0);
IS(MX_PARAM_UNEXP_QUEUE_MAX, 1);
IS(MX_PARAM_CONTEXT_ID, 2);
IS(MX_PARAM_HANDLER_DATA, 0x5601);
IS(MX_RECV_CONTINUE, 0);
IS(MX_RECV_FINISHED, 1);
IS(MX_SPEED_2G, 0);
IS(MX_SPEED_10G, 1);
IS(MX_SPEED_OPEN_MX, 2);
IS(MX_NET_MYRI, 0);
IS(MX_NET_ETHER, 1);

IS(MX_NIC_COUNT, 1);
IS(MX_NIC_IDS, 2);
IS(MX_MAX_NATIVE_ENDPOINTS, 3);
IS(MX_NATIVE_REQUESTS, 4);
IS(MX_COUNTERS_COUNT, 5);
IS(MX_COUNTERS_LABELS, 6);
IS(MX_COUNTERS_VALUES, 7);
IS(MX_PRODUCT_CODE, 8);
IS(MX_PART_NUMBER, 9);
IS(MX_SERIAL_NUMBER, 10);
IS(MX_PORT_COUNT, 11);
IS(MX_PIO_SEND_MAX, 12);
IS(MX_COPY_SEND_MAX, 13);
IS(MX_NUMA_NODE, 14);
IS(MX_NET_TYPE, 15);
IS(MX_LINE_SPEED, 16);

IS(MX_RAW_NO_EVENT, 0);
IS(MX_RAW_SEND_COMPLETE, 1);
IS(MX_RAW_RECV_COMPLETE, 2);
IS(MX_RAW_POLL_SUPPORTED, 1);
IS(MX_SET_ROUTE_TAKES_MAGID, 1);
IS(MX_HAS_RAW_LINE_SPEED, 1);
IS(MX_HAS_RAW_SET_NIC_REPLY_INFO, 1);
IS(MX_DEAD_RECOVERABLE_SRAM_PARITY_ERROR, 10);
IS(MX_DEAD_SRAM_PARITY_ERROR, 11);
IS(MX_DEAD_WATCHDOG_TIMEOUT, 12);
IS(MX_DEAD_COMMAND_TIMEOUT, 13);
IS(MX_DEAD_ENDPOINT_CLOSE_TIMEOUT, 14);
IS(MX_DEAD_ROUTE_UPDATE_TIMEOUT, 15);
IS(MX_DEAD_PCI_PARITY_ERROR, 16);
IS(MX_DEAD_PCI_MASTER_ABORT, 17);
IS(MX_HOST_GM, 1);
IS(MX_HOST_XM, 2);
IS(MX_HOST_MX, 3);
IS(MX_HOST_MXVM, 4);

IS(sizeof(mx_return_t), 4);
IS(sizeof(mx_status_code_t), 4);
IS(sizeof(mx_param_key_t), 4);
IS(sizeof(mx_get_info_key_t), 4);
IS(sizeof(mx_endpoint_t), 8);
IS(sizeof(mx_request_t), 8);
IS(sizeof(mx_endpt_handle_t), 4);
IS(sizeof(mx_endpoint_addr_t), MX_SIZEOF_ADDR);
IS(_Alignof(mx_endpoint_addr_t), 8);
IS(sizeof(mx_segment_t), 16);
IS(offsetof(mx_segment_t, segment_length), 8);
IS(sizeof(mx_param_t), 16);
IS(offsetof(mx_param_t, val), 8);
IS(offsetof(mx_param_t, val.context_id.bits), 8);
IS(offsetof(mx_param_t, val.context_id.shift), 9);
IS(sizeof(mx_status_t), 48);
IS(offsetof(mx_status_t, code), 0);
IS(offsetof(mx_status_t, source), 8);
IS(offsetof(mx_status_t, match_info), 24);
IS(offsetof(mx_status_t, msg_length), 32);
IS(offsetof(mx_status_t, xfer_length), 36);
IS(offsetof(mx_status_t, context), 40);
IS(sizeof(mx_mapper_state_t), 36);
IS(offsetof(mx_mapper_state_t, board_number), 0);
IS(offsetof(mx_mapper_state_t, mapper_mac), 4);
IS(offsetof(mx_mapper_state_t, iport), 10);
IS(offsetof(mx_mapper_state_t, map_version), 12);
IS(offsetof(mx_mapper_state_t, num_hosts), 16);
IS(offsetof(mx_mapper_state_t, network_configured), 20);
IS(offsetof(mx_mapper_state_t, routes_valid), 24);
IS(offsetof(mx_mapper_state_t, level), 28);
IS(offsetof(mx_mapper_state_t, flags), 32);

/* Functions that are not implemented can be linked, and fail. */
int main(void) {
  mx_raw_endpoint_t endpoint = NULL;
  mx_raw_status_t status;
  uint32_t port, length = 0;
  void *context;
  alarm(HANG);
  begin();
  RETURNS(MX_FAILURE, mx_raw_open_endpoint(0, NULL, 0, &endpoint));
  RETURNS(MX_FAILURE, mx_raw_send(endpoint, 0, NULL, 0, NULL, 0, NULL));
  RETURNS(MX_FAILURE, mx_raw_next_event(endpoint, &port, &context, NULL, &length, 0, &status));
  RETURNS(MX_FAILURE, mx_raw_close_endpoint(endpoint));
  OK(mx_finalize());
  return 0;
}
