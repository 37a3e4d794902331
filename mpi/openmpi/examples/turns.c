/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Measures MPI between two ranks in short turns, so that two jobs on the same CPUs can take turns with each
 * other: what the machine does for longer than a turn disturbs both alike.
 *
 *   turns JOB COUNT      JOB is 0 or 1: which of the two jobs this is
 *
 * Rank 0 prints a line for each turn: its number, the microseconds of a round trip of 8 B (half of it), and
 * of a message of 64 KiB, of 1 MiB and of 8 B in a stream. Both jobs must run on one machine, since its clock
 * numbers the turns.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORLD MPI_COMM_WORLD
/* Nanoseconds from one turn of a job to its next one. A turn's messages take less than half of it. */
#define PERIOD 40000000L
#define WINDOW 64

static int rank;
static char *buffer;

static void round_trip(int bytes) {
  if (rank == 0)
    MPI_Send(buffer, bytes, MPI_BYTE, 1, 1, WORLD);
  MPI_Recv(buffer, bytes, MPI_BYTE, 1 - rank, 1, WORLD, MPI_STATUS_IGNORE);
  if (rank == 1)
    MPI_Send(buffer, bytes, MPI_BYTE, 0, 1, WORLD);
}

/* So many messages of rank 0, and an answer. */
static void stream(int bytes, int count) {
  MPI_Request requests[WINDOW];
  for (int i = 0; i < count; i++)
    if (rank == 0)
      MPI_Isend(buffer, bytes, MPI_BYTE, 1, 2, WORLD, &requests[i]);
    else
      MPI_Irecv(buffer, bytes, MPI_BYTE, 0, 2, WORLD, &requests[i]);
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  round_trip(0);
}

/* What a turn measures: `repeated` streams of so many messages, or round trips. */
static const struct {
  int bytes, messages, repeated;
} parts[] = {{8, 0, 200}, {65536, WINDOW, 1}, {1 << 20, 4, 1}, {8, WINDOW, 8}};
#define PARTS ((int)(sizeof parts / sizeof parts[0]))

/* Returns the microseconds of a message. */
static double measure(int part) {
  double start = MPI_Wtime();
  for (int i = 0; i < parts[part].repeated; i++)
    if (parts[part].messages == 0)
      round_trip(parts[part].bytes);
    else
      stream(parts[part].bytes, parts[part].messages);
  int messages = parts[part].messages == 0 ? 2 : parts[part].messages;
  return (MPI_Wtime() - start) * 1e6 / (parts[part].repeated * messages);
}

/* Sleeps until this job's next turn, and returns its number. */
static long wait_for_turn(long job) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  long start = job * PERIOD / 2;
  long turn = (time.tv_sec * 1000000000L + time.tv_nsec - start) / PERIOD + 1;
  start += turn * PERIOD;
  time.tv_sec = start / 1000000000L, time.tv_nsec = start % 1000000000L;
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
  return turn;
}

int main(int count, char **words) {
  MPI_Init(&count, &words);
  MPI_Comm_rank(WORLD, &rank);
  if (count != 3) {
    fprintf(stderr, "usage: turns JOB COUNT\n");
    MPI_Abort(WORLD, 2);
  }
  buffer = malloc(1 << 20);
  memset(buffer, 'a', 1 << 20);
  long job = atol(words[1]), turns = atol(words[2]);
  while (turns-- > 0) {
    double figures[PARTS];
    long turn = wait_for_turn(job);
    round_trip(0);
    for (int i = 0; i < PARTS; i++)
      figures[i] = measure(i);
    if (rank == 0)
      printf("%ld %.3f %.2f %.1f %.3f\n", turn, figures[0], figures[1], figures[2], figures[3]);
  }
  free(buffer);
  MPI_Finalize();
  return 0;
}
