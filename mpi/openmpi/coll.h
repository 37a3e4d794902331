/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Short collective operations over the heaps of the ranks' VMs: coll.c makes a module for each communicator,
 * coll_exchange.c moves bytes between its ranks, and coll_operations.c makes MPI's operations of that.
 *
 *   rank 0                          rank 1                          rank 2
 *   block on its heap               block on its heap               block on its heap
 *   ┌───────────────────┐           ┌───────────────────┐           ┌───────────────────┐
 *   │ posted, done      │           │ posted, done      │           │ posted, done      │
 *   │ bytes of an       │ ◀──reads──│ bytes of an       │           │ bytes of an       │
 *   │ operation, twice  │ ◀──reads──┼───────────────────┼───────────│ operation, twice  │
 *   └───────────────────┘           └───────────────────┘           └───────────────────┘
 *
 * Each rank stores what it contributes in its own block and then the number of the operation in `posted`. It reads
 * what the others contribute from their blocks, as soon as it finds that number there. So an operation has one step.
 * A rank writes in no block but its own.
 */
#ifndef COLL_VICINITY_H
#define COLL_VICINITY_H

#include "plane.h"

#include "ompi/communicator/communicator.h"
#include "ompi/mca/coll/coll.h"

#include <stdatomic.h>

/* The heap gives memory in units of this length. A block has one. */
#define VICINITY_BLOCK 65536

/* Bytes of an operation that a rank stores for others, and that it reads from others, at most. */
#define VICINITY_COLL_BYTES ((VICINITY_BLOCK - 128) / 2)

/* Ranks of a communicator, at most: a rank looks at each of the others. */
#define VICINITY_COLL_RANKS 64

typedef struct {
  _Alignas(64) _Atomic uint64_t posted; /* the number of the last operation whose bytes are here */
  _Alignas(64) _Atomic uint64_t done;   /* the number of the last operation that this rank has ended */
  unsigned char bytes[2][VICINITY_COLL_BYTES]; /* of the operations with even and odd numbers */
} vicinity_block_t;

_Static_assert(sizeof(vicinity_block_t) == VICINITY_BLOCK, "a block is a unit of the heap");

/* A rank, as it describes itself to the others. */
typedef struct {
  uint64_t ready; /* whether it has a block */
  mx_heap_handle_t block;
  const vicinity_peer_t *peer; /* its reader's; not sent */
} vicinity_rank_t;

typedef enum { VICINITY_UNDECIDED, VICINITY_IN_USE, VICINITY_NOT_USED } vicinity_decision_t;

/* The function and the module that had an operation before. */
#define VICINITY_BEFORE(operation)                                                                                     \
  struct {                                                                                                             \
    mca_coll_base_module_##operation##_fn_t call;                                                                      \
    mca_coll_base_module_t *module;                                                                                    \
  } operation

/* A communicator. */
typedef struct {
  mca_coll_base_module_t super;
  VICINITY_BEFORE(allgather);
  VICINITY_BEFORE(allreduce);
  VICINITY_BEFORE(alltoall);
  VICINITY_BEFORE(barrier);
  vicinity_decision_t decision;
  int rank, size;
  vicinity_rank_t *ranks;
  const vicinity_heap_t *heap;
  uint64_t number; /* of the present or last operation */
  vicinity_block_t *block;
  unsigned char *scratch; /* of VICINITY_COLL_BYTES */
} vicinity_coll_t;

/* coll_peers.c: the peer as which a rank is reached, at the PML of this package if the job has that one, and at the component for transfers
   otherwise; NULL if it is not reached. */
const vicinity_peer_t *vicinity_coll_peer(struct ompi_communicator_t *comm, int rank);

/* coll_exchange.c */

/* Whether the ranks exchange so many bytes through their heaps: those that a rank stores for others, or reads from
   others. Decides that for the communicator if it is its first operation. All ranks call it, and have the same
   result. */
bool vicinity_coll_fits(vicinity_coll_t *coll, struct ompi_communicator_t *comm, size_t bytes);

/* Begins an operation. Returns where the bytes for the others belong. */
unsigned char *vicinity_coll_begin(vicinity_coll_t *coll);

/* Lets the others read these bytes. */
void vicinity_coll_post(vicinity_coll_t *coll);

/* Waits until the rank has stored its bytes. */
void vicinity_coll_await(vicinity_coll_t *coll, int rank);

/* Copies bytes that a rank has stored, this one or another one after vicinity_coll_await. Returns a code of MPI. */
int vicinity_coll_read(vicinity_coll_t *coll, int rank, size_t offset, void *bytes, size_t length);

/* Ends an operation with this code of MPI: this rank reads nothing of it any more. Returns the code. */
int vicinity_coll_end(vicinity_coll_t *coll, int result);

/* Frees the block. */
void vicinity_coll_stop(vicinity_coll_t *coll);

/* coll_operations.c */
int vicinity_allgather(const void *from, int count, struct ompi_datatype_t *type, void *to, int to_count,
                       struct ompi_datatype_t *to_type, struct ompi_communicator_t *comm,
                       mca_coll_base_module_t *module);
int vicinity_allreduce(const void *from, void *to, int count, struct ompi_datatype_t *type, struct ompi_op_t *op,
                       struct ompi_communicator_t *comm, mca_coll_base_module_t *module);
int vicinity_alltoall(const void *from, int count, struct ompi_datatype_t *type, void *to, int to_count,
                      struct ompi_datatype_t *to_type, struct ompi_communicator_t *comm,
                      mca_coll_base_module_t *module);
int vicinity_barrier(struct ompi_communicator_t *comm, mca_coll_base_module_t *module);

#endif
