/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Collective operations as programs call them in loops: short ones, without anything between them. */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

/* x becomes factor * x + addend. Their composition is not commutative. */
typedef struct {
  unsigned factor, addend;
} step_t;

static void compose(void *in, void *result, int *count, MPI_Datatype *type) {
  step_t *first = in, *second = result;
  (void)type;
  for (int i = 0; i < *count; i++) {
    second[i].addend += second[i].factor * first[i].addend;
    second[i].factor *= first[i].factor;
  }
}

static step_t step_of(int of, int at) {
  return (step_t){(unsigned)(3 + 2 * of + at), (unsigned)(of * 7 + at * 11 + 1)};
}

/* Each rank's result is the composition of the steps of all, in the order of the ranks. */
static void check_order(int count, MPI_Datatype type, MPI_Op op, int in_place) {
  step_t *own = malloc(sizeof *own * (size_t)(count + 1)), *all = malloc(sizeof *all * (size_t)(count + 1));
  for (int at = 0; at < count; at++)
    all[at] = own[at] = step_of(rank, at);
  MPI_Allreduce(in_place ? MPI_IN_PLACE : own, all, count, type, op, WORLD);
  for (int at = 0; at < count; at++) {
    step_t expected = {1, 0};
    for (int of = 0; of < size; of++) {
      step_t next = step_of(of, at);
      int one = 1;
      compose(&expected, &next, &one, &type);
      expected = next;
    }
    CHECK(all[at].factor == expected.factor && all[at].addend == expected.addend);
    CHECK(own[at].factor == step_of(rank, at).factor && own[at].addend == step_of(rank, at).addend);
  }
  free(own), free(all);
}

/* All ranks have the same bits, whatever the order of the additions is. */
static void check_floats(int count) {
  double *own = malloc(sizeof *own * (size_t)(count + 1)), *all = malloc(sizeof *all * (size_t)(count + 1));
  double *first = calloc((size_t)(count + 1), sizeof *first);
  for (int at = 0; at < count; at++)
    own[at] = (rank % 2 ? -1e9 : 1e9) / (at + 3) + 1.0 / (rank + 7);
  MPI_Allreduce(own, all, count, MPI_DOUBLE, MPI_SUM, WORLD);
  memcpy(first, all, sizeof *all * (size_t)count);
  MPI_Bcast(first, count, MPI_DOUBLE, 0, WORLD);
  CHECK(memcmp(first, all, sizeof *all * (size_t)count) == 0);
  double sum = 0;
  for (int of = 0; count > 0 && of < size; of++)
    sum += (of % 2 ? -1e9 : 1e9) / 3 + 1.0 / (of + 7);
  CHECK(count == 0 || (all[0] - sum < 1e-5 && sum - all[0] < 1e-5));
  free(own), free(all), free(first);
}

/* A type with a gap behind each element. */
static void check_places(int count) {
  struct {
    double value;
    int at;
  } *own = calloc((size_t)(count + 1), sizeof *own), *all = calloc((size_t)(count + 1), sizeof *all);
  for (int at = 0; at < count; at++) {
    own[at].value = (rank + at) % size;
    own[at].at = rank;
  }
  MPI_Allreduce(own, all, count, MPI_DOUBLE_INT, MPI_MAXLOC, WORLD);
  for (int at = 0; at < count; at++)
    CHECK(all[at].value == size - 1 && (all[at].at + at) % size == size - 1);
  free(own), free(all);
}

/* A rank sends every second integer, and the others receive them side by side, or the reverse. */
static void check_strides(int count, int in_place) {
  size_t room = (size_t)(2 * count * size + 1);
  int *out = malloc(sizeof *out * room), *in = malloc(sizeof *in * room), by = rank % 2 ? 2 : 1;
  MPI_Datatype apart, resized;
  MPI_Type_vector(count, 1, 2, MPI_INT, &apart);
  MPI_Type_create_resized(apart, 0, (MPI_Aint)sizeof(int) * 2 * count, &resized);
  MPI_Type_commit(&resized);
  MPI_Datatype type = rank % 2 ? resized : MPI_INT;
  int elements = rank % 2 ? 1 : count;
  for (size_t i = 0; i < room; i++)
    out[i] = in[i] = -1;
  for (int to = 0; to < size; to++)
    for (int i = 0; i < count; i++)
      out[(to * count + i) * by] = in[(to * count + i) * by] = rank * 10000 + to * 1000 + i;
  MPI_Alltoall(in_place ? MPI_IN_PLACE : out, elements, type, in, elements, type, WORLD);
  for (int of = 0; of < size; of++)
    for (int i = 0; i < count; i++)
      CHECK(in[(of * count + i) * by] == of * 10000 + rank * 1000 + i);
  for (int i = 0; i < count; i++)
    in[(rank * count + i) * by] = out[i * by] = rank * 10000 + i;
  MPI_Allgather(in_place ? MPI_IN_PLACE : out, elements, type, in, elements, type, WORLD);
  for (int of = 0; of < size; of++)
    for (int i = 0; i < count; i++)
      CHECK(in[(of * count + i) * by] == of * 10000 + i);
  /* What is between the strides stays. */
  for (size_t i = 1; by == 2 && i < room; i += 2)
    CHECK(in[i] == -1);
  MPI_Type_free(&apart), MPI_Type_free(&resized);
  free(out), free(in);
}

/* Lengths from nothing to more than the longest that a component exchanges in one step. */
void short_collectives(void) {
  static const int counts[] = {0, 1, 2, 3, 16, 500, 583, 584, 585, 1021, 1022, 1023, 1363, 2044, 4088, 4089, 9000};
  MPI_Datatype type;
  MPI_Op op;
  MPI_Type_contiguous(2, MPI_UNSIGNED, &type);
  MPI_Type_commit(&type);
  MPI_Op_create(compose, 0, &op);
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    for (int in_place = 0; in_place < 2; in_place++) {
      check_order(counts[i], type, op, in_place);
      if (counts[i] > 0 && counts[i] < 1000)
        check_strides(counts[i], in_place);
    }
    check_floats(counts[i]);
    check_places(counts[i]);
  }
  MPI_Op_free(&op);
  MPI_Type_free(&type);
}

/* Exchanges values that depend on the turn. Ranks are slow at different times. */
static void turns(MPI_Comm comm, int number) {
  enum { LENGTH = 40 };
  int own, all;
  MPI_Comm_rank(comm, &own);
  MPI_Comm_size(comm, &all);
  int *out = malloc(sizeof *out * LENGTH * (size_t)all), *in = malloc(sizeof *in * LENGTH * (size_t)all);
  for (int turn = 0; turn < number; turn++) {
    int length = 1 + turn % LENGTH, sum[LENGTH];
    if ((turn + own) % 97 == 0)
      usleep(300);
    for (int i = 0; i < length * all; i++)
      out[i] = turn * 1000 + own * 100 + i;
    if (turn % 4 == 0)
      MPI_Barrier(comm);
    MPI_Alltoall(out, length, MPI_INT, in, length, MPI_INT, comm);
    for (int of = 0; of < all; of++)
      CHECK(in[of * length] == turn * 1000 + of * 100 + own * length &&
            in[of * length + length - 1] == in[of * length] + length - 1);
    MPI_Allreduce(out, sum, length, MPI_INT, MPI_SUM, comm);
    CHECK(sum[length - 1] == all * (turn * 1000 + length - 1) + 100 * all * (all - 1) / 2);
    MPI_Allgather(out, length, MPI_INT, in, length, MPI_INT, comm);
    for (int of = 0; of < all; of++)
      CHECK(in[of * length] == turn * 1000 + of * 100);
  }
  free(out), free(in);
}

/* Ranks run ahead of others, in several communicators, which end right after an operation. */
void repeated_collectives(void) {
  enum { ALLOCATED = 60000 };
  MPI_Comm copy, half, single;
  char *memory;
  turns(WORLD, 400);
  MPI_Comm_dup(WORLD, &copy);
  MPI_Comm_split(WORLD, rank % 2, -rank, &half);
  MPI_Comm_split(WORLD, rank, 0, &single);
  for (int i = 0; i < 40; i++) {
    turns(copy, 2);
    turns(half, 1 + rank % 2);
    turns(WORLD, 1);
    turns(single, 1);
  }
  MPI_Comm_free(&single), MPI_Comm_free(&half), MPI_Comm_free(&copy);
  for (int i = 0; i < 40; i++) {
    MPI_Comm_dup(WORLD, &copy);
    if (i % 3 > 0)
      turns(copy, i % 3);
    if ((i + rank) % 7 == 0)
      usleep(500);
    MPI_Comm_free(&copy);
    /* Memory that others may still have read has a new owner. */
    MPI_Alloc_mem(ALLOCATED, MPI_INFO_NULL, &memory);
    memset(memory, -1, ALLOCATED);
    MPI_Free_mem(memory);
  }
  /* More than the heap has blocks for. */
  enum { MANY = 140 };
  MPI_Comm many[MANY];
  for (int i = 0; i < MANY; i++) {
    MPI_Comm_dup(WORLD, &many[i]);
    turns(many[i], 1);
  }
  for (int i = 0; i < MANY; i++) {
    turns(many[i], 1);
    MPI_Comm_free(&many[i]);
  }
}

#define THREADS 3

static void *thread(void *comm) {
  turns(*(MPI_Comm *)comm, 60);
  return NULL;
}

/* Each thread of a rank has a communicator. */
void threads_with_communicators(void) {
  pthread_t ids[THREADS];
  MPI_Comm comms[THREADS];
  for (int i = 0; i < THREADS; i++)
    MPI_Comm_dup(WORLD, &comms[i]);
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_create(&ids[i], NULL, thread, &comms[i]) == 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(ids[i], NULL);
  for (int i = 0; i < THREADS; i++)
    MPI_Comm_free(&comms[i]);
}
