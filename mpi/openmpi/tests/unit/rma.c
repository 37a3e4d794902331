/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A peer that lies: RMA requests of any kind, key, place and length. Valid requests are made first, and
 * fields of them are changed, so that most of the requests reach the checks behind the first one. No
 * byte outside of the regions, and none in a region without the right, may change or be sent.
 */
#include "rma.h"

#include <assert.h>
#include <stdio.h>

enum { BYTES = 4096, REGIONS = 3, ROUNDS = 1000000 };

vicinity_module_t vicinity_module;
vicinity_plane_t vicinity_plane;
vicinity_mx_t vicinity_mx;

const char vicinity_name[] = "test";

int vicinity_stream(void) { return -1; }

static unsigned char memory[BYTES], before[BYTES];
static struct mca_btl_base_registration_handle_t *regions[REGIONS];
static const uint32_t rights[REGIONS] = {
    MCA_BTL_REG_FLAG_ACCESS_ANY, MCA_BTL_REG_FLAG_REMOTE_READ | MCA_BTL_REG_FLAG_LOCAL_WRITE,
    MCA_BTL_REG_FLAG_REMOTE_WRITE};
static long refused, carried_out, answers, sent;

void vicinity_fail(struct opal_proc_t *proc, const char *reason) {
  (void)proc, (void)reason;
  refused++;
}

bool vicinity_post(mx_endpoint_addr_t to, uint64_t match, const void *head, size_t size,
                   const void *bytes, size_t length) {
  (void)to, (void)head, (void)bytes;
  assert(match == VICINITY_RMA_ANSWER && size == sizeof(vicinity_rma_answer_t) && length == 0);
  answers++;
  return true;
}

/* Whether a region with this right has all these bytes. */
static bool inside(const unsigned char *at, uint64_t length, uint32_t right) {
  for (int i = 0; i < REGIONS; i++) {
    const unsigned char *base = (const unsigned char *)(uintptr_t)regions[i]->base;
    if ((rights[i] & right) == right && at >= base && at + length <= base + regions[i]->length)
      return true;
  }
  return false;
}

static mx_return_t send_checked(mx_endpoint_t endpoint, mx_segment_t *segments, uint32_t count,
                        mx_endpoint_addr_t to, uint64_t match, void *context,
                        mx_request_t *request) {
  (void)endpoint, (void)count, (void)to, (void)match, (void)context, (void)request;
  assert(inside(segments->segment_ptr, segments->segment_length, MCA_BTL_REG_FLAG_REMOTE_READ));
  sent++;
  return MX_SUCCESS;
}

static mx_return_t in_no_block(const void *base, uint64_t length, mx_heap_handle_t *handle,
                               uint32_t *found) {
  (void)base, (void)length, (void)handle;
  *found = 0;
  return MX_SUCCESS;
}

static uint64_t random_number(void) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

/* A number that is near a limit, or any. */
static uint64_t strange(void) {
  static const uint64_t limits[] = {0, 1, 4, 8, BYTES, UINT32_MAX, INT32_MAX, UINT64_MAX};
  uint64_t number = limits[random_number() % 8];
  switch (random_number() % 3) {
  case 0:
    return number;
  case 1:
    return number + random_number() % 16 - 8;
  default:
    return random_number();
  }
}

static vicinity_rma_request_t valid(size_t *length) {
  const struct mca_btl_base_registration_handle_t *region = regions[random_number() % REGIONS];
  uint64_t offset = random_number() % region->length & ~(uint64_t)7;
  *length = random_number() % (region->length - offset + 1);
  return (vicinity_rma_request_t){.kind = (uint32_t)(random_number() % 5),
                                  .id = (uint32_t)random_number(),
                                  .key = region->key,
                                  .address = region->base + offset,
                                  .length = *length,
                                  .op = random_number() % 2 ? MCA_BTL_ATOMIC_ADD
                                                            : (uint32_t)random_number() % 64,
                                  .flags = (uint32_t)random_number() % 2,
                                  .operands = {random_number(), random_number()}};
}

static void mutate(vicinity_rma_request_t *request, size_t *length) {
  switch (random_number() % 6) {
  case 0:
    request->key = random_number() % 2 ? request->key ^ 1u << random_number() % 32 : strange();
    break;
  case 1:
    request->address += strange();
    break;
  case 2:
    request->length = strange();
    break;
  case 3:
    *length = random_number() % BYTES;
    break;
  case 4:
    request->kind = (uint32_t)strange();
    break;
  default:
    break; /* as it is */
  }
}

/* Only bytes that a region lets peers write may have changed. */
static void check_memory(void) {
  for (int i = 0; i < BYTES; i++)
    assert(memory[i] == before[i] ||
           inside(&memory[i], 1, MCA_BTL_REG_FLAG_REMOTE_WRITE) ||
           inside(&memory[i], 1, MCA_BTL_REG_FLAG_REMOTE_ATOMIC));
}

/* What the origin accesses by itself, without a request. */
static struct mca_btl_base_registration_handle_t shared = {
    .base = 1 << 20, .length = BYTES, .flags = MCA_BTL_REG_FLAG_ACCESS_ANY, .on_heap = 1};
static long direct;

static mx_return_t put_checked(mx_endpoint_t endpoint, mx_endpoint_addr_t peer,
                               const mx_heap_handle_t *handle, uint64_t offset, const void *bytes,
                               uint64_t length, uint32_t *done) {
  (void)endpoint, (void)peer, (void)bytes;
  assert(handle == &shared.heap && offset <= BYTES && length <= BYTES - offset);
  direct++;
  *done = 1;
  return MX_SUCCESS;
}

/* An origin accesses only the bytes that the handle names, with the handle's rights, and does not overtake its
   own requests. */
static void access_directly(void) {
  /* The process of the peer is another one, and the line about it was written. */
  struct mca_btl_base_endpoint_t peer = {.plane.proc = NULL, .direct = true};
  vicinity_mx.heap_put = put_checked;
  for (long i = 0; i < ROUNDS; i++) {
    uint64_t address = shared.base + (random_number() % 2 ? random_number() % BYTES : strange());
    size_t length = random_number() % 2 ? random_number() % BYTES : strange();
    bool inside = address >= shared.base && address - shared.base <= BYTES &&
                  length <= BYTES - (address - shared.base);
    assert(vicinity_put_direct(&peer, memory, address, &shared, length) == inside);
  }
  assert(direct > ROUNDS / 10 && direct < ROUNDS / 10 * 9);
  peer.requests = 1;
  assert(!vicinity_put_direct(&peer, memory, shared.base, &shared, 1));
  peer.requests = 0;
  shared.flags = MCA_BTL_REG_FLAG_REMOTE_READ;
  assert(!vicinity_put_direct(&peer, memory, shared.base, &shared, 1));
  shared.flags = MCA_BTL_REG_FLAG_ACCESS_ANY, shared.on_heap = 0;
  assert(!vicinity_put_direct(&peer, memory, shared.base, &shared, 1));
}

int main(void) {
  static unsigned char message[sizeof(vicinity_rma_request_t) + BYTES + 1];
  OBJ_CONSTRUCT(&vicinity_module.region_lock, opal_mutex_t);
  OBJ_CONSTRUCT(&vicinity_module.regions, opal_pointer_array_t);
  vicinity_mx.isend = send_checked;
  vicinity_mx.heap_handle = in_no_block;
  for (int i = 0; i < REGIONS; i++)
    regions[i] = vicinity_register(NULL, NULL, memory + 1000 * (size_t)i + 64, 900, rights[i]);
  /* A key of a region that has ended names nothing, also if another region has its place. */
  struct mca_btl_base_registration_handle_t *old =
      vicinity_register(NULL, NULL, memory, BYTES, MCA_BTL_REG_FLAG_ACCESS_ANY);
  uint64_t ended = old->key;
  vicinity_deregister(NULL, old);
  old = vicinity_register(NULL, NULL, memory + 3900, 8, MCA_BTL_REG_FLAG_LOCAL_WRITE);
  assert((uint32_t)old->key == (uint32_t)ended && old->key != ended);
  for (long i = 0; i < ROUNDS; i++) {
    mx_endpoint_addr_t source = {0};
    size_t length;
    vicinity_rma_request_t request = valid(&length);
    mutate(&request, &length);
    if (random_number() % 16 == 0)
      request.key = ended;
    /* Messages have no alignment. */
    memcpy(message + 1, &request, sizeof request);
    size_t whole = random_number() % 16 ? sizeof request + length : random_number() % 72;
    long before_refusals = refused;
    vicinity_requested(source, message + 1, whole);
    carried_out += refused == before_refusals;
    if (i % 1000 == 0)
      check_memory();
  }
  check_memory();
  assert(refused > ROUNDS / 10 && carried_out > ROUNDS / 10 && sent > ROUNDS / 50 &&
         answers > ROUNDS / 50);
  access_directly();
  printf("%ld carried out, %ld refused\n", carried_out, refused);
  return 0;
}
