/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The target of RMA: carries out what peers request. Nothing here calls Open MPI, so it may run inside
   of any call of libmyriexpress. */
#include "rma.h"

#include "../copy.h"

#include <stdatomic.h>

#define FETCH(name, type)                                                                          \
  static type name(_Atomic type *at, uint32_t op, type operand) {                                  \
    switch (op) {                                                                                  \
    case MCA_BTL_ATOMIC_ADD:                                                                       \
      return atomic_fetch_add(at, operand);                                                        \
    case MCA_BTL_ATOMIC_AND:                                                                       \
      return atomic_fetch_and(at, operand);                                                        \
    case MCA_BTL_ATOMIC_OR:                                                                        \
      return atomic_fetch_or(at, operand);                                                         \
    case MCA_BTL_ATOMIC_XOR:                                                                       \
      return atomic_fetch_xor(at, operand);                                                        \
    default:                                                                                       \
      return atomic_exchange(at, operand);                                                         \
    }                                                                                              \
  }

FETCH(fetch_64, uint64_t)
FETCH(fetch_32, uint32_t)

static uint64_t swap(void *at, bool narrow, const uint64_t *operands) {
  if (narrow) {
    uint32_t found = (uint32_t)operands[0];
    atomic_compare_exchange_strong((_Atomic uint32_t *)at, &found, (uint32_t)operands[1]);
    return found;
  }
  uint64_t found = operands[0];
  atomic_compare_exchange_strong((_Atomic uint64_t *)at, &found, operands[1]);
  return found;
}

bool vicinity_is_fetch(uint32_t op) {
  return op == MCA_BTL_ATOMIC_ADD || op == MCA_BTL_ATOMIC_AND || op == MCA_BTL_ATOMIC_OR ||
         op == MCA_BTL_ATOMIC_XOR || op == MCA_BTL_ATOMIC_SWAP;
}

static bool atomic(const vicinity_rma_request_t *request, uint64_t *value) {
  bool narrow = request->flags & MCA_BTL_ATOMIC_FLAG_32BIT;
  uint64_t width = narrow ? sizeof(uint32_t) : sizeof(uint64_t);
  void *at = vicinity_allowed(request, width, MCA_BTL_REG_FLAG_REMOTE_ATOMIC);
  if (at == NULL || request->address % width != 0)
    return false;
  if (request->kind == VICINITY_SWAP) {
    *value = swap(at, narrow, request->operands);
    return true;
  }
  if (!vicinity_is_fetch(request->op))
    return false;
  *value = narrow ? fetch_32(at, request->op, (uint32_t)request->operands[0])
                  : fetch_64(at, request->op, request->operands[0]);
  return true;
}

bool vicinity_carry_out(const vicinity_rma_request_t *request, const void *bytes, size_t length,
                        uint64_t *value) {
  bool done = false;
  *value = 0;
  OPAL_THREAD_LOCK(&vicinity_module.region_lock);
  if (request->kind == VICINITY_PUT) {
    void *to = vicinity_allowed(request, length, MCA_BTL_REG_FLAG_REMOTE_WRITE);
    done = to != NULL;
    if (done)
      vicinity_copy(to, bytes, length);
  } else if (request->kind == VICINITY_FETCH || request->kind == VICINITY_SWAP) {
    done = atomic(request, value);
  }
  OPAL_THREAD_UNLOCK(&vicinity_module.region_lock);
  return done;
}

const void *vicinity_readable(const vicinity_rma_request_t *request) {
  OPAL_THREAD_LOCK(&vicinity_module.region_lock);
  const void *from = vicinity_allowed(request, request->length, MCA_BTL_REG_FLAG_REMOTE_READ);
  OPAL_THREAD_UNLOCK(&vicinity_module.region_lock);
  return request->length > UINT32_MAX ? NULL : from;
}

/* Sends a region's bytes to a peer that has posted a receive for them. If the peer has ended, its watch
   says so. Long ones are synchronous, so that they are offered: ob1 had them fetched because there was no credit
   (regions.c), and the answer to an offer grants credits. */
static bool send_bytes(mx_endpoint_addr_t to, const vicinity_rma_request_t *request) {
  const void *from = vicinity_readable(request);
  if (from == NULL)
    return false;
  mx_segment_t segment = {(void *)from, (uint32_t)request->length};
  bool is_long = request->length > VICINITY_IN_PLACE_MAX;
  (is_long ? vicinity_mx.issend : vicinity_mx.isend)(vicinity_plane.endpoint, &segment, 1, to,
                                                     VICINITY_RMA_DATA | request->id, NULL, NULL);
  return true;
}

void vicinity_requested(mx_endpoint_addr_t source, const void *data, size_t length) {
  vicinity_rma_request_t request;
  vicinity_rma_answer_t answer = {0};
  bool done = false;
  /* A message has no alignment, and its bytes are in memory that the peer can write. */
  if (length >= sizeof request) {
    memcpy(&request, data, sizeof request);
    const void *bytes = (const unsigned char *)data + sizeof request;
    done = request.kind == VICINITY_GET
               ? send_bytes(source, &request)
               : vicinity_carry_out(&request, bytes, length - sizeof request, &answer.value);
  }
  if (!done) {
    vicinity_fail(NULL, "it accessed memory that this process has not registered");
    return;
  }
  answer.id = request.id;
  if (request.kind != VICINITY_GET && request.id != VICINITY_NO_ANSWER)
    vicinity_post(source, VICINITY_RMA_ANSWER, &answer, sizeof answer, NULL, 0);
}
