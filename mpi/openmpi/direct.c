/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The origin of RMA, in memory of the target's heap: no request is sent, and the target takes no part. The
   library compares the place with the heap, and with the block's present owner. So a handle that is wrong,
   or older than its memory, does no harm. */
#include "rma.h"

/* Returns whether the origin may access `length` bytes of the region by itself. While the peer has not
   answered requests, it may not: it would overtake them. */
static bool may_access(struct mca_btl_base_endpoint_t *peer, uint64_t address, uint64_t length,
                       const struct mca_btl_base_registration_handle_t *region, uint32_t access) {
  if (!region->on_heap || (region->flags & access) != access || peer->requests > 0 ||
      peer->plane.proc == opal_proc_local_get())
    return false;
  uint64_t offset = address - region->base;
  return offset <= region->length && length <= region->length - offset;
}

/* Says once of each peer that its memory is accessed here. */
static bool accessed(struct mca_btl_base_endpoint_t *peer, mx_return_t code, uint32_t done) {
  if (code != MX_SUCCESS || !done)
    return false;
  if (!peer->direct) {
    peer->direct = true;
    VICINITY_EXPLAIN("memory of %s on its heap is accessed without its help",
                     OPAL_NAME_PRINT(peer->plane.proc->proc_name));
  }
  return true;
}

bool vicinity_put_direct(struct mca_btl_base_endpoint_t *peer, const void *bytes, uint64_t address,
                         const struct mca_btl_base_registration_handle_t *region, size_t length) {
  uint32_t done = 0;
  if (!may_access(peer, address, length, region, MCA_BTL_REG_FLAG_REMOTE_WRITE))
    return false;
  mx_return_t code = vicinity_mx.heap_put(vicinity_plane.endpoint, peer->plane.address, &region->heap,
                                          address - region->base, bytes, length, &done);
  return accessed(peer, code, done);
}

bool vicinity_get_direct(struct mca_btl_base_endpoint_t *peer, void *bytes, uint64_t address,
                         const struct mca_btl_base_registration_handle_t *region, size_t length) {
  uint32_t done = 0;
  if (!may_access(peer, address, length, region, MCA_BTL_REG_FLAG_REMOTE_READ))
    return false;
  mx_return_t code = vicinity_mx.heap_get(vicinity_plane.endpoint, peer->plane.address, &region->heap,
                                          address - region->base, bytes, length, &done);
  return accessed(peer, code, done);
}

/* Stores the value before an atomic operation where Open MPI wants it. */
static bool fetched(struct mca_btl_base_endpoint_t *peer, mx_return_t code, uint32_t done,
                    uint64_t value, void *before, size_t width) {
  if (!accessed(peer, code, done))
    return false;
  uint32_t half = (uint32_t)value;
  memcpy(before, width == sizeof half ? (void *)&half : (void *)&value, width);
  return true;
}

bool vicinity_fetch_direct(struct mca_btl_base_endpoint_t *peer, void *before, uint64_t address,
                           const struct mca_btl_base_registration_handle_t *region,
                           mca_btl_base_atomic_op_t op, uint64_t operand, size_t width) {
  mx_heap_op_t operation;
  uint64_t value = 0;
  uint32_t done = 0;
  switch (op) {
  case MCA_BTL_ATOMIC_ADD:
    operation = MX_HEAP_ADD;
    break;
  case MCA_BTL_ATOMIC_AND:
    operation = MX_HEAP_AND;
    break;
  case MCA_BTL_ATOMIC_OR:
    operation = MX_HEAP_OR;
    break;
  case MCA_BTL_ATOMIC_XOR:
    operation = MX_HEAP_XOR;
    break;
  case MCA_BTL_ATOMIC_SWAP:
    operation = MX_HEAP_SWAP;
    break;
  default:
    return false;
  }
  if (!may_access(peer, address, width, region, MCA_BTL_REG_FLAG_REMOTE_ATOMIC))
    return false;
  mx_return_t code =
      vicinity_mx.heap_fetch(vicinity_plane.endpoint, peer->plane.address, &region->heap, address - region->base,
                             (uint32_t)width, operation, operand, &value, &done);
  return fetched(peer, code, done, value, before, width);
}

bool vicinity_swap_direct(struct mca_btl_base_endpoint_t *peer, void *before, uint64_t address,
                          const struct mca_btl_base_registration_handle_t *region, uint64_t compare,
                          uint64_t value, size_t width) {
  uint64_t found = 0;
  uint32_t done = 0;
  if (!may_access(peer, address, width, region, MCA_BTL_REG_FLAG_REMOTE_ATOMIC))
    return false;
  mx_return_t code = vicinity_mx.heap_compare_and_swap(
      vicinity_plane.endpoint, peer->plane.address, &region->heap, address - region->base, (uint32_t)width,
      compare, value, &found, &done);
  return fetched(peer, code, done, found, before, width);
}
