/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The memory of MPI_Alloc_mem, MPI_Win_allocate and short collective operations: on the heap of this VM or host, where
   the peers of its trust group can access it. The components for them (mpool.c, osc.c, coll.c) find this table in the BTL, and
   in the PML where that is in use. */
#include "plane.h"

/* A block begins at a page. */
#define HEAP_ALIGNMENT 4096

static void *heap_alloc(size_t length, size_t alignment) {
  void *memory = NULL;
  if (alignment > HEAP_ALIGNMENT ||
      vicinity_mx.heap_alloc(vicinity_plane.endpoint, length, &memory) != MX_SUCCESS)
    return NULL;
  return memory;
}

static void heap_free(void *memory) {
  uint32_t done;
  vicinity_mx.heap_free(memory, &done);
}

static bool heap_has(void *memory, size_t length, mx_heap_handle_t *handle) {
  uint32_t on_heap = 0;
  vicinity_mx.heap_handle(memory, length, handle, &on_heap);
  return on_heap;
}

static bool heap_look(const vicinity_peer_t *peer, const mx_heap_handle_t *handle, uint64_t offset, uint64_t least,
                      uint64_t *value) {
  uint32_t done = 0;
  return vicinity_mx.heap_look(vicinity_plane.endpoint, peer->address, handle, offset, least, value, &done) ==
             MX_SUCCESS &&
         done;
}

static bool heap_get(const vicinity_peer_t *peer, const mx_heap_handle_t *handle, uint64_t offset, void *bytes,
                     uint64_t length) {
  uint32_t done = 0;
  return vicinity_mx.heap_get(vicinity_plane.endpoint, peer->address, handle, offset, bytes, length, &done) ==
             MX_SUCCESS &&
         done;
}

const vicinity_heap_t vicinity_heap = {
    .version = VICINITY_HEAP_VERSION,
    .alloc = heap_alloc,
    .free = heap_free,
    .has = heap_has,
    .member = vicinity_read_member,
    .look = heap_look,
    .get = heap_get,
};
