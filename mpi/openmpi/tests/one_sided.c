/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI's chapter on one-sided communication. */
#include "check.h"

#include <sched.h>
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

/* All ranks count at rank 0 at the same time, in three words of zeros. */
static void count_at_rank_0(MPI_Win window) {
  enum { ROUNDS = 50 };
  int64_t one = 1, before, highest = -1;
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
}

void remote_atomics(void) {
  MPI_Win window;
  int64_t *memory;
  MPI_Win_allocate(3 * sizeof *memory, sizeof *memory, MPI_INFO_NULL, WORLD, &memory, &window);
  memset(memory, 0, 3 * sizeof *memory);
  count_at_rank_0(window);
  MPI_Win_free(&window);
}

/* Makes a window of memory of MPI_Alloc_mem or of MPI_Win_allocate, filled with zeros. Open MPI then uses one
   atomic operation, and no lock, for each accumulate of one element. */
static unsigned char *allocate_window(int with_window, MPI_Aint length, int unit, MPI_Win *window) {
  unsigned char *memory;
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "acc_single_intrinsic", "true");
  if (with_window) {
    MPI_Win_allocate(length, unit, info, WORLD, &memory, window);
  } else {
    MPI_Alloc_mem(length, MPI_INFO_NULL, &memory);
    MPI_Win_create(memory, length, unit, info, WORLD, window);
  }
  memset(memory, 0, (size_t)length);
  MPI_Info_free(&info);
  return memory;
}

/* Of numbers of all ranks, and zero, a window of the program's memory has the least and the greatest. */
static void keep_extremes(void) {
  static int32_t extremes[2];
  MPI_Win window;
  MPI_Win_create(extremes, sizeof extremes, sizeof *extremes, MPI_INFO_NULL, WORLD, &window);
  for (int turn = 0; turn < 2; turn++) {
    int32_t value = turn == 0 ? rank - 1 : -rank - 1;
    extremes[0] = extremes[1] = 0;
    MPI_Win_fence(0, window);
    MPI_Accumulate(&value, 1, MPI_INT32_T, 0, 0, 1, MPI_INT32_T, MPI_MIN, window);
    MPI_Accumulate(&value, 1, MPI_INT32_T, 0, 1, 1, MPI_INT32_T, MPI_MAX, window);
    MPI_Win_fence(0, window);
    CHECK(rank != 0 || (extremes[0] == (turn == 0 ? -1 : -size) && extremes[1] == (turn == 0 ? size - 2 : 0)));
  }
  MPI_Win_free(&window);
}

/* Windows of memory that Open MPI allocates: between VMs of a group, it is on their heaps. Each rank puts
   into the memory of all others, and all count at rank 0. First a window of other memory. */
void allocated_memory(void) {
  enum { EACH = 100000 };
  MPI_Win window;
  unsigned char *bytes = malloc(EACH), *memory = allocate_window(0, (MPI_Aint)EACH * size, 1, &window);
  keep_extremes();
  fill(bytes, EACH, (unsigned)rank);
  MPI_Win_fence(0, window);
  for (int i = 0; i < size; i++)
    MPI_Put(bytes, EACH, MPI_BYTE, i, (MPI_Aint)EACH * rank, EACH, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < size; i++) {
    CHECK(is_filled(memory + (size_t)EACH * (size_t)i, EACH, (unsigned)i));
    MPI_Get(bytes, EACH - 1, MPI_BYTE, i, (MPI_Aint)EACH * i + 1, EACH - 1, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    for (size_t at = 0; at < EACH - 1; at++)
      CHECK(bytes[at] == byte_at(at + 1, (unsigned)i));
  }
  MPI_Win_free(&window);
  MPI_Free_mem(memory);
  memory = allocate_window(0, 3 * sizeof(int64_t), sizeof(int64_t), &window);
  count_at_rank_0(window);
  MPI_Win_free(&window);
  MPI_Free_mem(memory);
  free(bytes);
}

/* All ranks, also the target, add to the same words at the same time, by each call that accumulates, and set a bit
   of their own. Returns how often this rank did. */
static int accumulate_by_all(MPI_Win window) {
  int64_t one = 1, before, bit = (int64_t)1 << rank;
  int32_t narrow = 1, narrow_before;
  MPI_Request request;
  int rounds = 0;
  for (double end = MPI_Wtime() + 0.2; MPI_Wtime() < end; rounds++) {
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window);
    MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, window);
    MPI_Get_accumulate(&one, 1, MPI_INT64_T, &before, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, window);
    MPI_Raccumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Rget_accumulate(&one, 1, MPI_INT64_T, &before, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, window,
                        &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    /* Two words of 32 bits beside each other. */
    MPI_Fetch_and_op(&narrow, &narrow_before, MPI_INT32_T, 0, 8 + rank % 2 * 4, MPI_SUM, window);
    MPI_Accumulate(&bit, 1, MPI_INT64_T, 0, 16, 1, MPI_INT64_T, MPI_BOR, window);
    MPI_Win_flush(0, window);
    CHECK(before >= 4);
  }
  return rounds;
}

/* Whether a read of a word of rank 0 has this value, and MPI_REPLACE returns it. */
static int replaces(MPI_Win window, int64_t expected) {
  int64_t other = -5, read = 0, before = 0;
  MPI_Fetch_and_op(NULL, &read, MPI_INT64_T, 0, 0, MPI_NO_OP, window);
  MPI_Win_flush(0, window);
  MPI_Fetch_and_op(&other, &before, MPI_INT64_T, 0, 0, MPI_REPLACE, window);
  MPI_Win_flush(0, window);
  MPI_Fetch_and_op(NULL, &other, MPI_INT64_T, 0, 0, MPI_NO_OP, window);
  MPI_Win_flush(0, window);
  return read == expected && before == expected && other == -5;
}

void single_accumulates(void) {
  for (int with_window = 0; with_window < 2; with_window++) {
    MPI_Win window;
    unsigned char *memory = allocate_window(with_window, 24, 1, &window);
    int32_t narrow[2], rounds[2] = {0}, all[2];
    int64_t bits;
    MPI_Barrier(WORLD);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    rounds[rank % 2] = accumulate_by_all(window);
    MPI_Allreduce(rounds, all, 2, MPI_INT32_T, MPI_SUM, WORLD);
    if (rank == size - 1) {
      MPI_Get(narrow, 8, MPI_BYTE, 0, 8, 8, MPI_BYTE, window);
      MPI_Get(&bits, 8, MPI_BYTE, 0, 16, 8, MPI_BYTE, window);
      MPI_Win_flush(0, window);
      CHECK(narrow[0] == all[0] && narrow[1] == all[1]);
      CHECK(bits == ((int64_t)1 << size) - 1);
      CHECK(replaces(window, (int64_t)5 * (all[0] + all[1])));
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    if (!with_window)
      MPI_Free_mem(memory);
  }
}

/* The target's first word ends its wait, the second one is for atomic operations, then there are bytes. */
enum { IDLE_BYTES = 100000, IDLE_HEAD = 2 * sizeof(int64_t), IDLE_FETCHES = 1000 };

/* What an origin does in memory of a rank that makes no call of MPI meanwhile. */
static void access_idle(int target, MPI_Win window) {
  unsigned char *bytes = malloc(IDLE_BYTES);
  int64_t one = 1, none = 0, found;
  fill(bytes, IDLE_BYTES, (unsigned)target);
  MPI_Put(bytes, IDLE_BYTES, MPI_BYTE, target, IDLE_HEAD, IDLE_BYTES, MPI_BYTE, window);
  MPI_Win_flush(target, window);
  memset(bytes, 0, IDLE_BYTES);
  MPI_Get(bytes, IDLE_BYTES, MPI_BYTE, target, IDLE_HEAD, IDLE_BYTES, MPI_BYTE, window);
  MPI_Win_flush(target, window);
  CHECK(is_filled(bytes, IDLE_BYTES, (unsigned)target));
  MPI_Compare_and_swap(&one, &none, &found, MPI_INT64_T, target, sizeof one, window);
  MPI_Win_flush(target, window);
  CHECK(found == 0);
  free(bytes);
}

/* The same with fetch-and-add. */
static void count_at_idle(int target, MPI_Win window) {
  int64_t one = 1, before;
  for (int i = 0; i < IDLE_FETCHES; i++) {
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, sizeof one, MPI_SUM, window);
    MPI_Win_flush(target, window);
    CHECK(before == i);
  }
}

/* Each rank in turn is accessed by the next one, and only looks at its memory. That ends where the ranks are
   members of one trust group. */
static void access_idle_ranks(int with_window, void (*access)(int target, MPI_Win window)) {
  MPI_Win window;
  int64_t one = 1;
  unsigned char *memory = allocate_window(with_window, IDLE_HEAD + IDLE_BYTES, 1, &window);
  volatile int64_t *words = (volatile int64_t *)memory;
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
  for (int target = 0; target < size; target++) {
    MPI_Barrier(WORLD);
    if (rank == (target + 1) % size) {
      access(target, window);
      MPI_Put(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window);
      MPI_Win_flush(target, window);
    }
    while (rank == target && words[0] == 0)
      sched_yield();
    MPI_Win_sync(window);
    CHECK(rank != target || access != access_idle ||
          (words[1] == 1 && is_filled(memory + IDLE_HEAD, IDLE_BYTES, (unsigned)target)));
    CHECK(rank != target || access != count_at_idle || words[1] == IDLE_FETCHES);
  }
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  if (!with_window)
    MPI_Free_mem(memory);
}

void idle_target(void) {
  access_idle_ranks(0, access_idle);
  access_idle_ranks(1, access_idle);
}

void idle_counter(void) {
  access_idle_ranks(0, count_at_idle);
  access_idle_ranks(1, count_at_idle);
}
