/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Bytes from each rank to each, through the blocks on their heaps.
 *
 * Why two buffers are enough. A rank stores the bytes of operation n + 2 where those of n were. It does so after it
 * has ended n + 1, so after it has found that each rank has posted n + 1. A rank posts n + 1 after it has ended n, so
 * after it has read all bytes of n. Nobody reads them later.
 *
 * The bytes of a peer are stored before its `posted`, which has release order, and heap->look has acquire order. So
 * they are read complete. A peer's `posted` is n or n + 1 while this rank reads the bytes of n: the peer cannot end
 * n + 1 before this rank has posted it.
 *
 * Why no block is read after its end. A rank frees its block after it has found that each rank has ended the last
 * operation (`done`). If a rank's memory is gone, this rank has ended it as well.
 *
 * The other VMs of the group can write the blocks. No length and no place is taken from them.
 */
#include "coll.h"
#include "vicinity.h"

#include "opal/runtime/opal_progress.h"

/* Allocates this rank's block, and describes it. */
static void describe(vicinity_coll_t *coll, vicinity_rank_t *own) {
  coll->heap = vicinity_find_heap();
  if (coll->heap == NULL)
    return;
  coll->scratch = malloc(VICINITY_COLL_BYTES);
  coll->block = coll->heap->alloc(sizeof *coll->block, 1);
  if (coll->scratch == NULL || coll->block == NULL ||
      !coll->heap->has(coll->block, sizeof *coll->block, &own->block))
    return;
  atomic_init(&coll->block->posted, 0);
  atomic_init(&coll->block->done, 0);
  own->ready = 1;
}

/* Whether all ranks have a block. All find the same. */
static bool are_ready(const vicinity_coll_t *coll) {
  for (int i = 0; i < coll->size; i++)
    if (!coll->ranks[i].ready)
      return false;
  return true;
}

/* Whether this rank can look into the block of each other one. */
static bool reaches_all(vicinity_coll_t *coll, struct ompi_communicator_t *comm) {
  for (int i = 0; i < coll->size; i++) {
    vicinity_rank_t *rank = &coll->ranks[i];
    uint64_t posted;
    if (i == coll->rank)
      continue;
    rank->peer = vicinity_coll_peer(comm, i);
    if (rank->peer == NULL ||
        !coll->heap->look(rank->peer, &rank->block, offsetof(vicinity_block_t, posted), 0, &posted))
      return false;
  }
  return true;
}

/* Has all ranks find out whether they can exchange bytes, by the operations of Open MPI's own modules. */
static bool decide(vicinity_coll_t *coll, struct ompi_communicator_t *comm) {
  vicinity_rank_t own = {.ready = 0};
  describe(coll, &own);
  if (coll->allgather.call(&own, sizeof own, MPI_BYTE, coll->ranks, sizeof own, MPI_BYTE, comm,
                           coll->allgather.module) != MPI_SUCCESS ||
      !are_ready(coll))
    return false;
  /* Nobody posts before all have looked, and nobody frees its block. */
  int reached = reaches_all(coll, comm), all = 0;
  return coll->allreduce.call(&reached, &all, 1, MPI_INT, MPI_MIN, comm, coll->allreduce.module) == MPI_SUCCESS &&
         all;
}

/* Frees what only operations need. */
static void release(vicinity_coll_t *coll) {
  /* After the end of the component that has the heap, the end of the process frees the block. */
  if (coll->block != NULL && vicinity_find_heap() == coll->heap)
    coll->heap->free(coll->block);
  coll->block = NULL;
  free(coll->scratch);
  coll->scratch = NULL;
}

bool vicinity_coll_fits(vicinity_coll_t *coll, struct ompi_communicator_t *comm, size_t bytes) {
  if (bytes > VICINITY_COLL_BYTES)
    return false;
  if (coll->decision == VICINITY_UNDECIDED) {
    /* The operations of other modules may consist of such ones. */
    coll->decision = VICINITY_NOT_USED;
    if (decide(coll, comm))
      coll->decision = VICINITY_IN_USE;
    else
      release(coll);
    if (coll->rank == 0)
      opal_output_verbose(10, opal_btl_base_framework.framework_output,
                          "coll:vicinity: short collective operations of %s %s the heaps of its %d ranks",
                          comm->c_name, coll->decision == VICINITY_IN_USE ? "use" : "cannot use", coll->size);
  }
  return coll->decision == VICINITY_IN_USE;
}

unsigned char *vicinity_coll_begin(vicinity_coll_t *coll) {
  coll->number++;
  return coll->block->bytes[coll->number % 2];
}

void vicinity_coll_post(vicinity_coll_t *coll) {
  atomic_store_explicit(&coll->block->posted, coll->number, memory_order_release);
}

/* Whether a peer's word has reached the number of the present operation. Sets `lost` if the peer's memory is gone. */
static bool has_reached(const vicinity_coll_t *coll, int rank, uint64_t offset, bool *lost) {
  const vicinity_rank_t *other = &coll->ranks[rank];
  uint64_t value = 0;
  *lost = !coll->heap->look(other->peer, &other->block, offset, coll->number, &value);
  return !*lost && (int64_t)(value - coll->number) >= 0;
}

void vicinity_coll_await(vicinity_coll_t *coll, int rank) {
  bool lost;
  /* If the peer is lost, the component for transfers notices that, and ends the job. */
  while (rank != coll->rank && !has_reached(coll, rank, offsetof(vicinity_block_t, posted), &lost))
    opal_progress();
}

int vicinity_coll_read(vicinity_coll_t *coll, int rank, size_t offset, void *bytes, size_t length) {
  const vicinity_rank_t *other = &coll->ranks[rank];
  int buffer = coll->number % 2;
  if (rank == coll->rank) {
    memcpy(bytes, coll->block->bytes[buffer] + offset, length);
    return MPI_SUCCESS;
  }
  offset += offsetof(vicinity_block_t, bytes) + (size_t)buffer * VICINITY_COLL_BYTES;
  return coll->heap->get(other->peer, &other->block, offset, bytes, length) ? MPI_SUCCESS : MPI_ERR_OTHER;
}

int vicinity_coll_end(vicinity_coll_t *coll, int result) {
  /* After a failure it may not have waited for all. */
  for (int i = 0; result != MPI_SUCCESS && i < coll->size; i++)
    vicinity_coll_await(coll, i);
  atomic_store_explicit(&coll->block->done, coll->number, memory_order_release);
  return result;
}

void vicinity_coll_stop(vicinity_coll_t *coll) {
  bool in_use = coll->decision == VICINITY_IN_USE && vicinity_find_heap() == coll->heap;
  for (int i = 0; in_use && i < coll->size; i++) {
    bool lost = false;
    while (i != coll->rank && !has_reached(coll, i, offsetof(vicinity_block_t, done), &lost) && !lost)
      opal_progress();
  }
  release(coll);
}
