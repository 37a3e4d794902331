/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI's chapter on collective communication. */
#include "check.h"

void collectives(void) {
  int *all = malloc((size_t)size * sizeof(int)), *out = malloc((size_t)size * sizeof(int));
  for (int round = 0; round < 20; round++) {
    int root = round % size, value = rank == root ? 1000 + round : -1, sum, scan, part;
    MPI_Bcast(&value, 1, MPI_INT, root, WORLD);
    CHECK(value == 1000 + round);
    value = rank + round;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, WORLD);
    CHECK(sum == size * (size - 1) / 2 + size * round);
    sum = -1;
    MPI_Reduce(&value, &sum, 1, MPI_INT, MPI_MAX, root, WORLD);
    CHECK(rank != root || sum == size - 1 + round);
    MPI_Scan(&rank, &scan, 1, MPI_INT, MPI_SUM, WORLD);
    CHECK(scan == rank * (rank + 1) / 2);
    MPI_Gather(&value, 1, MPI_INT, all, 1, MPI_INT, root, WORLD);
    for (int i = 0; rank == root && i < size; i++)
      CHECK(all[i] == i + round);
    MPI_Scatter(all, 1, MPI_INT, &part, 1, MPI_INT, root, WORLD);
    CHECK(part == value);
    MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, WORLD);
    for (int i = 0; i < size; i++) {
      CHECK(all[i] == i + round);
      out[i] = rank * 100 + i;
    }
    MPI_Alltoall(out, 1, MPI_INT, all, 1, MPI_INT, WORLD);
    for (int i = 0; i < size; i++)
      CHECK(all[i] == i * 100 + rank);
    MPI_Reduce_scatter_block(out, &part, 1, MPI_INT, MPI_SUM, WORLD);
    CHECK(part == size * (size - 1) / 2 * 100 + size * rank);
  }
  free(all), free(out);
}

void large_collectives(void) {
  size_t length = 1 << 18, total = length * (size_t)size;
  unsigned char *out = malloc(total), *in = malloc(total);
  for (int i = 0; i < size; i++)
    fill(out + length * (size_t)i, length, (unsigned)(rank * size + i));
  MPI_Alltoall(out, (int)length, MPI_BYTE, in, (int)length, MPI_BYTE, WORLD);
  for (int i = 0; i < size; i++)
    CHECK(is_filled(in + length * (size_t)i, length, (unsigned)(i * size + rank)));
  fill(in, length, rank == 0 ? 9 : 0);
  MPI_Bcast(in, (int)length, MPI_BYTE, 0, WORLD);
  CHECK(is_filled(in, length, 9));
  double *numbers = malloc(sizeof(double) * length), *sums = malloc(sizeof(double) * length);
  for (size_t i = 0; i < length; i++)
    numbers[i] = (double)i + rank;
  MPI_Allreduce(numbers, sums, (int)length, MPI_DOUBLE, MPI_SUM, WORLD);
  for (size_t i = 0; i < length; i++)
    CHECK(sums[i] == (double)i * size + size * (size - 1) / 2);
  free(out), free(in), free(numbers), free(sums);
}

/* Different lengths for each rank, and none for some. */
void uneven_collectives(void) {
  int *counts = malloc((size_t)size * sizeof(int)), *places = malloc((size_t)size * sizeof(int));
  int total = 0, sum;
  for (int i = 0; i < size; i++) {
    counts[i] = i * 3000;
    places[i] = total;
    total += counts[i];
  }
  int *all = malloc((size_t)(total + 1) * sizeof(int)), *out = malloc((size_t)total * sizeof(int));
  for (int i = 0; i < counts[rank]; i++)
    out[i] = rank * 100000 + i;
  MPI_Allgatherv(out, counts[rank], MPI_INT, all, counts, places, MPI_INT, WORLD);
  for (int i = 0; i < size; i++)
    for (int j = 0; j < counts[i]; j++)
      CHECK(all[places[i] + j] == i * 100000 + j);
  int *back = malloc((size_t)(counts[rank] + 1) * sizeof(int));
  MPI_Scatterv(all, counts, places, MPI_INT, back, counts[rank], MPI_INT, size - 1, WORLD);
  CHECK(memcmp(back, out, (size_t)counts[rank] * sizeof(int)) == 0);
  sum = rank;
  MPI_Exscan(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, WORLD);
  CHECK(rank == 0 || sum == rank * (rank - 1) / 2);
  free(counts), free(places), free(all), free(out), free(back);
}

static void add(void *in, void *result, int *count, MPI_Datatype *type) {
  (void)type;
  for (int i = 0; i < *count; i++)
    ((int *)result)[i] += ((int *)in)[i];
}

/* Several operations at a time, and an operation of the program. */
void nonblocking_collectives(void) {
  enum { LENGTH = 20000 };
  static int sums[LENGTH], numbers[LENGTH], copies[LENGTH];
  MPI_Request requests[4];
  MPI_Op op;
  int own = rank, all;
  for (int i = 0; i < LENGTH; i++) {
    numbers[i] = rank + i;
    copies[i] = rank == 1 ? i : 0;
  }
  MPI_Op_create(add, 1, &op);
  MPI_Iallreduce(numbers, sums, LENGTH, MPI_INT, op, WORLD, &requests[0]);
  MPI_Ibcast(copies, LENGTH, MPI_INT, 1, WORLD, &requests[1]);
  MPI_Iallreduce(&own, &all, 1, MPI_INT, MPI_SUM, WORLD, &requests[2]);
  MPI_Ibarrier(WORLD, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  CHECK(all == size * (size - 1) / 2);
  for (int i = 0; i < LENGTH; i++)
    CHECK(sums[i] == all + size * i && copies[i] == i);
  MPI_Op_free(&op);
}
