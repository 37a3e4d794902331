/*
 * The raw interface, for programs that discover the routes of a Myrinet. This library has no routes:
 * each call fails with MX_FAILURE.
 */
#ifndef MX_RAW_H
#define MX_RAW_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MX_RAW_POLL_SUPPORTED 1
#define MX_SET_ROUTE_TAKES_MAGID 1
#define MX_HAS_RAW_LINE_SPEED 1
#define MX_HAS_RAW_SET_NIC_REPLY_INFO 1

#define MX_DEAD_RECOVERABLE_SRAM_PARITY_ERROR 10
#define MX_DEAD_SRAM_PARITY_ERROR 11
#define MX_DEAD_WATCHDOG_TIMEOUT 12
#define MX_DEAD_COMMAND_TIMEOUT 13
#define MX_DEAD_ENDPOINT_CLOSE_TIMEOUT 14
#define MX_DEAD_ROUTE_UPDATE_TIMEOUT 15
#define MX_DEAD_PCI_PARITY_ERROR 16
#define MX_DEAD_PCI_MASTER_ABORT 17

typedef struct mx_raw_endpoint *mx_raw_endpoint_t;

typedef enum {
  MX_RAW_NO_EVENT = 0,
  MX_RAW_SEND_COMPLETE = 1,
  MX_RAW_RECV_COMPLETE = 2
} mx_raw_status_t;

typedef enum {
  MX_HOST_GM = 1,
  MX_HOST_XM = 2,
  MX_HOST_MX = 3,
  MX_HOST_MXVM = 4
} mx_host_type_t;

mx_return_t mx_raw_open_endpoint(uint32_t board, mx_param_t *params,
                                 uint32_t count, mx_raw_endpoint_t *endpoint);
mx_return_t mx_raw_close_endpoint(mx_raw_endpoint_t endpoint);
mx_return_t mx_raw_send(mx_raw_endpoint_t endpoint, uint32_t port, void *route,
                        uint32_t route_length, void *buffer, uint32_t length,
                        void *context);
mx_return_t mx_raw_next_event(mx_raw_endpoint_t endpoint, uint32_t *port,
                              void **context, void *buffer, uint32_t *length,
                              uint32_t timeout_ms, mx_raw_status_t *status);

#ifdef __cplusplus
}
#endif

#endif
