/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The memory of MPI_Alloc_mem and MPI_Win_allocate: on the heap of this VM or host, where the peers of its trust
   group can access it. The components for them (mpool.c, osc.c) find this table in that for transfers. */
#include "vicinity.h"

/* A block begins at a page. */
#define HEAP_ALIGNMENT 4096

static void *heap_alloc(size_t length, size_t alignment) {
  void *memory = NULL;
  if (alignment > HEAP_ALIGNMENT ||
      vicinity_mx.heap_alloc(vicinity_plane.endpoint, length, &memory) != MX_SUCCESS)
    memory = NULL;
  if (memory == NULL)
    VICINITY_EXPLAIN("%zu bytes that MPI allocates are ordinary memory: there is no heap that peers can "
                     "access, or it has no room", length);
  return memory;
}

static void heap_free(void *memory) {
  uint32_t done;
  vicinity_mx.heap_free(memory, &done);
}

static bool heap_has(void *memory, size_t length) {
  mx_heap_handle_t handle;
  uint32_t on_heap = 0;
  vicinity_mx.heap_handle(memory, length, &handle, &on_heap);
  return on_heap;
}

const vicinity_heap_t vicinity_heap = {VICINITY_HEAP_VERSION, heap_alloc, heap_free, heap_has};
