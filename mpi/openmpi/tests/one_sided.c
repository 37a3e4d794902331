/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI's chapter on one-sided communication. */
#include "check.h"

#include <stdint.h>

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

/* Long puts and gets, of contiguous memory and of columns, in memory of the program. */
void long_one_sided(void) {
  enum { LENGTH = 3 << 20, COLUMN = 1000 };
  MPI_Win window;
  MPI_Datatype column;
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  unsigned char *memory = calloc(1, LENGTH), *bytes = malloc(LENGTH);
  fill(bytes, LENGTH, (unsigned)rank);
  MPI_Win_create(memory, LENGTH, 1, MPI_INFO_NULL, WORLD, &window);
  MPI_Win_fence(0, window);
  MPI_Put(bytes, LENGTH, MPI_BYTE, next, 0, LENGTH, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  CHECK(is_filled(memory, LENGTH, (unsigned)previous));
  MPI_Get(bytes, LENGTH, MPI_BYTE, next, 0, LENGTH, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  CHECK(is_filled(bytes, LENGTH, (unsigned)rank));
  MPI_Type_vector(COLUMN, 1, 3, MPI_BYTE, &column);
  MPI_Type_commit(&column);
  memset(bytes, 0xee, COLUMN);
  MPI_Put(bytes, COLUMN, MPI_BYTE, next, 1, 1, column, window);
  MPI_Win_fence(0, window);
  for (size_t i = 0; i < 3 * COLUMN; i++)
    CHECK(memory[i] == (i % 3 == 1 ? 0xee : byte_at(i, (unsigned)previous)));
  MPI_Type_free(&column);
  MPI_Win_free(&window);
  free(memory), free(bytes);
}

/* Each rank exposes its memory to its neighbour, and accesses that of the other one. */
void exposure(void) {
  MPI_Win window;
  MPI_Group all, to, from;
  int *memory, next = (rank + 1) % size, previous = (rank + size - 1) % size;
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, WORLD, &memory, &window);
  MPI_Comm_group(WORLD, &all);
  MPI_Group_incl(all, 1, &next, &to);
  MPI_Group_incl(all, 1, &previous, &from);
  for (int i = 0; i < 20; i++) {
    int value = rank * 100 + i;
    MPI_Win_post(from, 0, window);
    MPI_Win_start(to, 0, window);
    MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, window);
    MPI_Win_complete(window);
    MPI_Win_wait(window);
    CHECK(*memory == previous * 100 + i);
  }
  MPI_Group_free(&all), MPI_Group_free(&to), MPI_Group_free(&from);
  MPI_Win_free(&window);
}

/* Ranks take a lock at rank 0, and add to a sum that it guards. Rank 0 does not: the compare-and-swap of
   a rank in its own memory crashes in Open MPI 4.1.4 with vader (mca_btl_vader_emu_acswap). */
static void add_under_lock(MPI_Win window, int64_t own) {
  int64_t none = 0, holder, sum;
  MPI_Request request;
  do {
    MPI_Compare_and_swap(&own, &none, &holder, MPI_INT64_T, 0, 1, window);
    MPI_Win_flush(0, window);
  } while (holder != 0);
  MPI_Get(&sum, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, window);
  MPI_Win_flush(0, window);
  sum += own;
  MPI_Rput(&sum, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, window, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Win_flush(0, window);
  MPI_Accumulate(&none, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, MPI_REPLACE, window);
}

/* All ranks count at rank 0 at the same time. */
void remote_atomics(void) {
  enum { ROUNDS = 50 };
  MPI_Win window;
  int64_t *memory, one = 1, before, highest = -1;
  MPI_Win_allocate(3 * sizeof *memory, sizeof *memory, MPI_INFO_NULL, WORLD, &memory, &window);
  memset(memory, 0, 3 * sizeof *memory);
  MPI_Barrier(WORLD);
  MPI_Win_lock_all(0, window);
  for (int i = 0; i < ROUNDS; i++) {
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window);
    MPI_Win_flush(0, window);
    CHECK(before > highest);
    highest = before;
  }
  if (rank > 0)
    add_under_lock(window, rank);
  MPI_Win_unlock_all(window);
  MPI_Barrier(WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  MPI_Get(&before, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
  MPI_Get(&highest, 1, MPI_INT64_T, 0, 2, 1, MPI_INT64_T, window);
  MPI_Win_unlock(0, window);
  CHECK(before == ROUNDS * size && highest == size * (size - 1) / 2);
  MPI_Win_free(&window);
}
