/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * MPI's operations. Between the ranks, data are packed. Whether an operation is short depends on the packed bytes
 * alone, which MPI requires to be equal on all ranks; their datatypes may differ.
 */
#include "coll.h"

#include <mpi.h>

#include "ompi/datatype/ompi_datatype.h"

static size_t bytes_of(int count, const struct ompi_datatype_t *type) { return (size_t)count * type->super.size; }

static bool is_packed(int count, const struct ompi_datatype_t *type) {
  return opal_datatype_is_contiguous_memory_layout(&type->super, count);
}

static int pack(const void *from, int count, const struct ompi_datatype_t *type, unsigned char *to, size_t bytes) {
  if (!is_packed(count, type))
    return ompi_datatype_sndrcv(from, count, type, to, (int)bytes, MPI_PACKED);
  memcpy(to, (const char *)from + type->super.true_lb, bytes);
  return MPI_SUCCESS;
}

/* Waits for a rank, and unpacks what it has stored from `offset` on. */
static int unpack(vicinity_coll_t *coll, int rank, size_t offset, void *to, int count,
                  const struct ompi_datatype_t *type) {
  size_t bytes = bytes_of(count, type);
  vicinity_coll_await(coll, rank);
  if (is_packed(count, type))
    return vicinity_coll_read(coll, rank, offset, (char *)to + type->super.true_lb, bytes);
  int result = vicinity_coll_read(coll, rank, offset, coll->scratch, bytes);
  return result == MPI_SUCCESS
             ? ompi_datatype_sndrcv(coll->scratch, (int)bytes, MPI_PACKED, to, count, type)
             : result;
}

/* Returns a part of a buffer, of which each has so many elements. */
static void *part(const void *buffer, int number, int count, const struct ompi_datatype_t *type) {
  return (char *)buffer + (ptrdiff_t)number * count * (type->super.ub - type->super.lb);
}

int vicinity_barrier(struct ompi_communicator_t *comm, mca_coll_base_module_t *module) {
  vicinity_coll_t *coll = (vicinity_coll_t *)module;
  if (!vicinity_coll_fits(coll, comm, 0))
    return coll->barrier.call(comm, coll->barrier.module);
  vicinity_coll_begin(coll);
  vicinity_coll_post(coll);
  for (int i = 0; i < coll->size; i++)
    vicinity_coll_await(coll, i);
  return vicinity_coll_end(coll, MPI_SUCCESS);
}

int vicinity_allgather(const void *from, int count, struct ompi_datatype_t *type, void *to, int to_count,
                       struct ompi_datatype_t *to_type, struct ompi_communicator_t *comm,
                       mca_coll_base_module_t *module) {
  vicinity_coll_t *coll = (vicinity_coll_t *)module;
  size_t bytes = bytes_of(to_count, to_type);
  if (bytes == 0 || !vicinity_coll_fits(coll, comm, bytes * (size_t)(coll->size - 1)))
    return coll->allgather.call(from, count, type, to, to_count, to_type, comm, coll->allgather.module);
  unsigned char *own = vicinity_coll_begin(coll);
  int result = from == MPI_IN_PLACE ? pack(part(to, coll->rank, to_count, to_type), to_count, to_type, own, bytes)
                                    : pack(from, count, type, own, bytes);
  vicinity_coll_post(coll);
  for (int i = 0; result == MPI_SUCCESS && i < coll->size; i++)
    if (i != coll->rank || from != MPI_IN_PLACE)
      result = unpack(coll, i, 0, part(to, i, to_count, to_type), to_count, to_type);
  return vicinity_coll_end(coll, result);
}

/* The block has no bytes of a rank for itself. */
static size_t place(int to, int from, size_t bytes) { return (size_t)(to < from ? to : to - 1) * bytes; }

int vicinity_alltoall(const void *from, int count, struct ompi_datatype_t *type, void *to, int to_count,
                      struct ompi_datatype_t *to_type, struct ompi_communicator_t *comm,
                      mca_coll_base_module_t *module) {
  vicinity_coll_t *coll = (vicinity_coll_t *)module;
  size_t bytes = bytes_of(to_count, to_type);
  if (bytes == 0 || !vicinity_coll_fits(coll, comm, bytes * (size_t)(coll->size - 1)))
    return coll->alltoall.call(from, count, type, to, to_count, to_type, comm, coll->alltoall.module);
  unsigned char *own = vicinity_coll_begin(coll);
  int result = MPI_SUCCESS;
  bool in_place = from == MPI_IN_PLACE;
  if (in_place)
    from = to, count = to_count, type = to_type;
  for (int i = 0; result == MPI_SUCCESS && i < coll->size; i++)
    if (i != coll->rank)
      result = pack(part(from, i, count, type), count, type, own + place(i, coll->rank, bytes), bytes);
  vicinity_coll_post(coll);
  if (result == MPI_SUCCESS && !in_place)
    result = ompi_datatype_sndrcv(part(from, coll->rank, count, type), count, type,
                                  part(to, coll->rank, to_count, to_type), to_count, to_type);
  for (int i = 0; result == MPI_SUCCESS && i < coll->size; i++)
    if (i != coll->rank)
      result = unpack(coll, i, place(coll->rank, i, bytes), part(to, i, to_count, to_type), to_count, to_type);
  return vicinity_coll_end(coll, result);
}

/* Elements of an array. */
typedef struct {
  int first, count;
} range_t;

/* Combines these elements of the ranks' data in the ranks' order, so that the results of all ranks are the same, and
   those of an operation that is not commutative are right: from the last rank on, since `to` becomes data (operation)
   `to`. */
static int combine(vicinity_coll_t *coll, range_t of, void *to, struct ompi_datatype_t *type, struct ompi_op_t *op) {
  ptrdiff_t gap, span = opal_datatype_span(&type->super, of.count, &gap);
  size_t offset = bytes_of(of.first, type);
  char *memory = malloc((size_t)span);
  int result = memory == NULL ? MPI_ERR_NO_MEM : unpack(coll, coll->size - 1, offset, to, of.count, type);
  for (int i = coll->size - 2; result == MPI_SUCCESS && i >= 0; i--) {
    result = unpack(coll, i, offset, memory - gap, of.count, type);
    if (result == MPI_SUCCESS)
      result = PMPI_Reduce_local(memory - gap, to, of.count, type, op);
  }
  free(memory);
  return result;
}

/* The elements that a rank combines for all. */
static range_t share(int rank, int size, int count) {
  int each = count / size, more = count % size;
  return (range_t){.first = rank * each + (rank < more ? rank : more), .count = each + (rank < more)};
}

/* Lets the others read the elements that this rank has combined, and reads theirs. */
static int gather_shares(vicinity_coll_t *coll, void *to, int count, const struct ompi_datatype_t *type) {
  range_t own = share(coll->rank, coll->size, count);
  int result = pack(part(to, own.first, 1, type), own.count, type, vicinity_coll_begin(coll),
                    bytes_of(own.count, type));
  vicinity_coll_post(coll);
  for (int i = 0; result == MPI_SUCCESS && i < coll->size; i++) {
    range_t of = share(i, coll->size, count);
    if (i != coll->rank)
      result = unpack(coll, i, 0, part(to, of.first, 1, type), of.count, type);
  }
  return vicinity_coll_end(coll, result);
}

/* If a rank would read too much, it combines a share of the elements for all instead. That is a second step. */
int vicinity_allreduce(const void *from, void *to, int count, struct ompi_datatype_t *type, struct ompi_op_t *op,
                       struct ompi_communicator_t *comm, mca_coll_base_module_t *module) {
  vicinity_coll_t *coll = (vicinity_coll_t *)module;
  size_t bytes = bytes_of(count, type), all = bytes * (size_t)(coll->size - 1);
  bool shared = all > VICINITY_COLL_BYTES && count >= coll->size;
  if (bytes == 0 || !vicinity_coll_fits(coll, comm, shared ? bytes : all))
    return coll->allreduce.call(from, to, count, type, op, comm, coll->allreduce.module);
  int result = pack(from == MPI_IN_PLACE ? to : from, count, type, vicinity_coll_begin(coll), bytes);
  vicinity_coll_post(coll);
  range_t own = shared ? share(coll->rank, coll->size, count) : (range_t){0, count};
  if (result == MPI_SUCCESS)
    result = combine(coll, own, part(to, own.first, 1, type), type, op);
  result = vicinity_coll_end(coll, result);
  /* After a failure, too: the others wait for this rank. */
  int gathered = shared ? gather_shares(coll, to, count, type) : MPI_SUCCESS;
  return result == MPI_SUCCESS ? gathered : result;
}
