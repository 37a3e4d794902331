/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Put, get and atomic operations (RMA), which MPI's one-sided operations between VMs need (osc/rdma).
 *
 *   origin                                       target
 *   put:    requests with up to 32 KiB each ───▶ copied into the region     ──▶ answer to the last
 *   get:    a receive is posted, then request ──▶ the region's bytes are sent, in place
 *   atomic: request ───────────────────────────▶ the processor's operation  ──▶ answer with the value
 *
 * The target's process carries requests out in its next call of MPI. It compares each request with the
 * regions that it has registered and their rights. A request beyond them ends the job.
 *
 * A region in memory of MPI_Alloc_mem is on the heap of the target's VM, which the members of the trust
 * group can access: there the origin carries the operation out itself, without a request (direct.c).
 */
#ifndef BTL_VICINITY_RMA_H
#define BTL_VICINITY_RMA_H

#include "vicinity.h"

/* Open MPI copies handles to peers as bytes, also with its own messages. */
struct mca_btl_base_registration_handle_t {
  uint64_t base;
  uint64_t length;
  uint64_t key;
  uint32_t flags; /* MCA_BTL_REG_FLAG_* */
  uint32_t on_heap; /* whether `heap` names the region */
  mx_heap_handle_t heap;
};

enum { VICINITY_PUT = 1, VICINITY_GET, VICINITY_FETCH, VICINITY_SWAP };

/* A request. Both sides have one byte order, because all are processes of hosts of one kind. */
typedef struct {
  uint32_t kind;
  uint32_t id; /* the origin's operation; of a put, VICINITY_NO_ANSWER but for the last fragment */
  uint64_t key;
  uint64_t address;
  uint64_t length; /* of a get; a put has its bytes behind the request */
  uint32_t op;     /* of an atomic operation: mca_btl_base_atomic_op_t */
  uint32_t flags;  /* MCA_BTL_ATOMIC_FLAG_* */
  uint64_t operands[2];
} vicinity_rma_request_t;

typedef struct {
  uint32_t id;
  uint32_t reserved;
  uint64_t value; /* what was in memory before an atomic operation */
} vicinity_rma_answer_t;

#define VICINITY_NO_ANSWER UINT32_MAX

/* Bytes of a put in one message. The target's handler gets messages of this length whole. */
#define VICINITY_RMA_BYTES (VICINITY_IN_PLACE_MAX - sizeof(vicinity_rma_request_t))

/* regions.c */
struct mca_btl_base_registration_handle_t *
vicinity_register(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer, void *base,
                  size_t size, uint32_t flags);
int vicinity_deregister(mca_btl_base_module_t *btl,
                        struct mca_btl_base_registration_handle_t *handle);
/* Returns the request's memory, or NULL if no region has it with this right. The caller holds
   region_lock. */
void *vicinity_allowed(const vicinity_rma_request_t *request, uint64_t length, uint32_t access);

/* direct.c: the origin, without the target. Each returns false if it did nothing, or if a request has to
   do it again. */
bool vicinity_put_direct(struct mca_btl_base_endpoint_t *peer, const void *bytes, uint64_t address,
                         const struct mca_btl_base_registration_handle_t *region, size_t length);
bool vicinity_get_direct(struct mca_btl_base_endpoint_t *peer, void *bytes, uint64_t address,
                         const struct mca_btl_base_registration_handle_t *region, size_t length);
bool vicinity_fetch_direct(struct mca_btl_base_endpoint_t *peer, void *before, uint64_t address,
                           const struct mca_btl_base_registration_handle_t *region,
                           mca_btl_base_atomic_op_t op, uint64_t operand, size_t width);
bool vicinity_swap_direct(struct mca_btl_base_endpoint_t *peer, void *before, uint64_t address,
                          const struct mca_btl_base_registration_handle_t *region, uint64_t compare,
                          uint64_t value, size_t width);

/* rma.c: the origin */
int vicinity_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                 void *local_address, uint64_t remote_address,
                 struct mca_btl_base_registration_handle_t *local_handle,
                 struct mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags,
                 int order, mca_btl_base_rdma_completion_fn_t callback, void *context, void *data);
int vicinity_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                 void *local_address, uint64_t remote_address,
                 struct mca_btl_base_registration_handle_t *local_handle,
                 struct mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags,
                 int order, mca_btl_base_rdma_completion_fn_t callback, void *context, void *data);
int vicinity_fetch(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                   void *local_address, uint64_t remote_address,
                   struct mca_btl_base_registration_handle_t *local_handle,
                   struct mca_btl_base_registration_handle_t *remote_handle,
                   mca_btl_base_atomic_op_t op, uint64_t operand, int flags, int order,
                   mca_btl_base_rdma_completion_fn_t callback, void *context, void *data);
int vicinity_swap(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                  void *local_address, uint64_t remote_address,
                  struct mca_btl_base_registration_handle_t *local_handle,
                  struct mca_btl_base_registration_handle_t *remote_handle, uint64_t compare,
                  uint64_t value, int flags, int order, mca_btl_base_rdma_completion_fn_t callback,
                  void *context, void *data);
/* Sends a message of this component; returns false if the peer is lost. */
bool vicinity_post(mx_endpoint_addr_t to, uint64_t match, const void *head, size_t size,
                   const void *bytes, size_t length);

/* rma_target.c */
/* Whether a target carries this operation out (mca_btl_base_atomic_op_t). */
bool vicinity_is_fetch(uint32_t op);
/* Carries out a put or an atomic operation; returns false if it is not allowed. */
bool vicinity_carry_out(const vicinity_rma_request_t *request, const void *bytes, size_t length,
                        uint64_t *value);
/* Returns the memory that a get may read, or NULL. */
const void *vicinity_readable(const vicinity_rma_request_t *request);

#endif
