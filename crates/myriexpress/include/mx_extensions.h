/* What MX 1.2 added beside its first interface. */
#ifndef MX_EXTENSIONS_H
#define MX_EXTENSIONS_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MX_HAS_ICONNECT_V2 1

typedef enum {
  MX_RECV_CONTINUE = 0, /* look for a receive again, then keep the message */
  MX_RECV_FINISHED = 1  /* the message is not needed any more */
} mx_unexp_handler_action_t;

/*
 * Called for each message that no receive waits for. data is NULL for messages above 4096 bytes
 * and for those of mx_issend. It may post sends and receives; it must not wait, and cannot close
 * the endpoint. Nothing progresses until it returns.
 */
typedef mx_unexp_handler_action_t (*mx_unexp_handler_t)(
    void *context, mx_endpoint_addr_t source, uint64_t match_info,
    uint32_t length, void *data);

mx_return_t mx_register_unexp_handler(mx_endpoint_t endpoint,
                                      mx_unexp_handler_t handler,
                                      void *context);

/* The request's status has the address and the match_info given here. */
mx_return_t mx_iconnect(mx_endpoint_t endpoint, uint64_t nic_id,
                        uint32_t endpoint_id, uint32_t key, uint64_t match_info,
                        void *context, mx_request_t *request);
mx_return_t mx_disconnect(mx_endpoint_t endpoint, mx_endpoint_addr_t addr);
mx_return_t mx_decompose_endpoint_addr2(mx_endpoint_addr_t addr,
                                        uint64_t *nic_id, uint32_t *endpoint_id,
                                        uint32_t *session_id);
mx_return_t mx_set_endpoint_addr_context(mx_endpoint_addr_t addr,
                                         void *context);
mx_return_t mx_get_endpoint_addr_context(mx_endpoint_addr_t addr,
                                         void **context);

/* The request will not be reported; its memory is the library's until the message is through. */
mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t *request);
mx_return_t mx_progress(mx_endpoint_t endpoint);

/* The time that a connect may take; of all to come, when request is NULL. Messages need none: a
   peer that ends is noticed. */
mx_return_t mx_set_request_timeout(mx_endpoint_t endpoint, mx_request_t request,
                                   uint32_t timeout_ms);

int mx__regcache_clean(void *memory, unsigned long length);

#ifdef __cplusplus
}
#endif

#endif
