/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Collective operations, communicators, one-sided operations and threads. */
#include "check.h"

#include <pthread.h>

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
  MPI_Request request;
  int sum;
  MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(sum == size * (size - 1) / 2);
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

/* A message of one communicator is not received on another one. */
void communicators(void) {
  MPI_Comm copy, half, between;
  int value = -1, color = rank % 2, part, parts, next = (rank + 1) % size;
  MPI_Request requests[2];
  int in[2] = {-1, -1}, previous = (rank + size - 1) % size, first = 1, second = 2;
  MPI_Comm_dup(WORLD, &copy);
  MPI_Irecv(&in[0], 1, MPI_INT, previous, 5, copy, &requests[0]);
  MPI_Irecv(&in[1], 1, MPI_INT, previous, 5, WORLD, &requests[1]);
  MPI_Send(&second, 1, MPI_INT, next, 5, WORLD);
  MPI_Send(&first, 1, MPI_INT, next, 5, copy);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  CHECK(in[0] == 1 && in[1] == 2);
  MPI_Comm_split(WORLD, color, -rank, &half);
  MPI_Comm_rank(half, &part);
  MPI_Comm_size(half, &parts);
  MPI_Allreduce(&rank, &value, 1, MPI_INT, MPI_MIN, half);
  CHECK(value == color && (part > 0 || rank + 2 >= size) && parts >= 1);
  /* The halves are in reverse order, so the other one's first rank is its highest. */
  int leader = (size - 1) % 2 == color ? size - 2 : size - 1;
  MPI_Intercomm_create(half, 0, WORLD, leader, 6, &between);
  MPI_Barrier(between);
  int other;
  MPI_Comm_remote_size(between, &other);
  CHECK(other + parts == size);
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
  MPI_Comm_free(&copy);
}

/* Fences, locks and an atomic operation on memory of other ranks. */
void one_sided(void) {
  MPI_Win window;
  int *memory, next = (rank + 1) % size, previous = (rank + size - 1) % size, got = -1, one = 1;
  MPI_Win_allocate(100 * sizeof(int), sizeof(int), MPI_INFO_NULL, WORLD, &memory, &window);
  memset(memory, 0, 100 * sizeof(int));
  MPI_Win_fence(0, window);
  MPI_Put(&rank, 1, MPI_INT, next, 3, 1, MPI_INT, window);
  MPI_Win_fence(0, window);
  CHECK(memory[3] == previous);
  MPI_Get(&got, 1, MPI_INT, next, 3, 1, MPI_INT, window);
  MPI_Win_fence(0, window);
  CHECK(got == rank);
  for (int i = 0; i < 10; i++) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Accumulate(&one, 1, MPI_INT, 0, 7, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_unlock(0, window);
  }
  MPI_Barrier(WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  MPI_Get(&got, 1, MPI_INT, 0, 7, 1, MPI_INT, window);
  MPI_Win_unlock(0, window);
  CHECK(got == 10 * size);
  MPI_Win_free(&window);
}

#define THREADS 3

static void *thread(void *number) {
  int tag = 50 + *(int *)number, out[2000], in[2000];
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int i = 0; i < 100; i++) {
    int count = i % 2 ? 2000 : 1;
    out[0] = out[count - 1] = i * 100 + rank + tag;
    MPI_Sendrecv(out, count, MPI_INT, next, tag, in, count, MPI_INT, previous, tag, WORLD,
                 MPI_STATUS_IGNORE);
    CHECK(in[0] == i * 100 + previous + tag && in[count - 1] == in[0]);
  }
  return NULL;
}

/* Several threads of each rank send and receive at the same time. */
void threads(void) {
  pthread_t ids[THREADS];
  int numbers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    CHECK(pthread_create(&ids[i], NULL, thread, &numbers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++)
    pthread_join(ids[i], NULL);
}
