/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI's chapters on groups, communicators, topologies and processes, and threads. */
#include "check.h"

#include <pthread.h>

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

/* A ring, in which each rank exchanges with its two neighbours. */
void topologies(void) {
  MPI_Comm ring;
  int wrap = 1, all = size, in[2] = {-1, -1}, previous, next;
  MPI_Cart_create(WORLD, 1, &all, &wrap, 0, &ring);
  MPI_Cart_shift(ring, 0, 1, &previous, &next);
  CHECK(next == (rank + 1) % size && previous == (rank + size - 1) % size);
  MPI_Neighbor_allgather(&rank, 1, MPI_INT, in, 1, MPI_INT, ring);
  CHECK(in[0] == previous && in[1] == next);
  MPI_Comm_free(&ring);
}

/* A communicator of some ranks, made by these alone. */
void groups(void) {
  MPI_Group all, even;
  MPI_Comm part;
  int count = (size + 1) / 2, sum = 0, *ranks = malloc((size_t)count * sizeof(int));
  for (int i = 0; i < count; i++)
    ranks[i] = 2 * i;
  MPI_Comm_group(WORLD, &all);
  MPI_Group_incl(all, count, ranks, &even);
  if (rank % 2 == 0) {
    MPI_Comm_create_group(WORLD, even, 7, &part);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, part);
    CHECK(sum == count * (count - 1));
    MPI_Comm_free(&part);
  }
  MPI_Group_free(&even), MPI_Group_free(&all);
  free(ranks);
}

#define CHILDREN 2

/* The processes that `spawned_processes` starts. They exchange with the ranks that started them. */
void child(void) {
  MPI_Comm parents, everyone;
  int sum;
  MPI_Comm_get_parent(&parents);
  MPI_Intercomm_merge(parents, 1, &everyone);
  MPI_Comm_rank(everyone, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, everyone);
  MPI_Bcast(&sum, 1, MPI_INT, 0, everyone);
  MPI_Comm_free(&everyone);
  MPI_Comm_disconnect(&parents);
}

/* Dynamic processes. An MPI that has none must say so. */
void spawned_processes(void) {
  MPI_Comm children, everyone;
  int codes[CHILDREN], total, sum, length, own;
  char text[MPI_MAX_ERROR_STRING], *words[] = {"child", NULL};
  MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_RETURN);
  int result = MPI_Comm_spawn(program, words, CHILDREN, MPI_INFO_NULL, 0, WORLD, &children, codes);
  MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_ARE_FATAL);
  if (result != MPI_SUCCESS) {
    MPI_Error_string(result, text, &length);
    if (rank == 0)
      printf("dynamic processes are refused: %s\n", text);
    CHECK(length > 0);
    return;
  }
  MPI_Intercomm_merge(children, 0, &everyone);
  MPI_Comm_size(everyone, &total);
  CHECK(total == size + CHILDREN);
  MPI_Comm_rank(everyone, &own);
  MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, everyone);
  CHECK(sum == total * (total - 1) / 2);
  MPI_Bcast(&sum, 1, MPI_INT, 0, everyone);
  MPI_Comm_free(&everyone);
  MPI_Comm_disconnect(&children);
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
