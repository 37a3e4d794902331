/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI's chapter on point-to-point communication, and derived types. */
#include "check.h"

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* Messages of each length, 1 B to 8 MiB, around the limits of the protocols, in both directions at
   the same time, between neighbours in a ring. */
void lengths(void) {
  static const int sizes[] = {0,    1,    2,    3,    4,    5,    6,    7,     8,     9,     10,    11,      24,     25,
                              48,   49,   4000, 4031, 4032, 4096, 4097, 8192, 32700, 32768, 32769, 65536, 1 << 20, 8 << 20};
  unsigned char *out = malloc(8 << 20), *in = malloc(8 << 20);
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int length = sizes[i], tag = (int)i, got;
    MPI_Status status;
    fill(out, (size_t)length, (unsigned)rank);
    memset(in, 0, (size_t)length);
    MPI_Sendrecv(out, length, MPI_BYTE, next, tag, in, length, MPI_BYTE, previous, tag, WORLD,
                 &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    CHECK(got == length && status.MPI_SOURCE == previous && status.MPI_TAG == tag);
    CHECK(is_filled(in, (size_t)length, (unsigned)previous));
  }
  free(out), free(in);
}

/* Many long messages under way at the same time, in both directions, from addresses of any alignment. They are
   received in another order than that in which they were sent, some into more room, and between bytes that must not
   change. */
void long_messages(void) {
  enum { MESSAGES = 30, ROOM = 300000 };
  static const int sizes[] = {32769, 40001, 65536, 131072, 262143, 262144};
  unsigned char *out = malloc(MESSAGES * ROOM), *in = malloc(MESSAGES * ROOM);
  MPI_Request requests[2 * MESSAGES];
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  memset(in, 0x77, MESSAGES * ROOM);
  for (int i = 0; i < MESSAGES; i++) {
    int length = sizes[i % 6];
    fill(out + i * ROOM + i % 7, (size_t)length, (unsigned)(rank + i));
    MPI_Isend(out + i * ROOM + i % 7, length, MPI_BYTE, next, i, WORLD, &requests[i]);
  }
  for (int i = MESSAGES - 1; i >= 0; i--)
    MPI_Irecv(in + i * ROOM + i % 5, i % 2 ? ROOM - 5 : sizes[i % 6], MPI_BYTE, previous, i, WORLD,
              &requests[MESSAGES + i]);
  MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < MESSAGES; i++) {
    size_t length = (size_t)sizes[i % 6], start = (size_t)i % 5;
    unsigned char *room = in + i * ROOM;
    CHECK(is_filled(room + start, length, (unsigned)(previous + i)));
    for (size_t at = 0; at < ROOM; at++)
      CHECK((at >= start && at < start + length) || room[at] == 0x77);
  }
  free(out), free(in);
}

/* Rank 0 receives from each rank by wildcards. Messages of a pair keep their order, also if
   short and long ones alternate. */
void order_and_wildcards(void) {
  enum { MESSAGES = 200, LONG = 20000 };
  static int out[MESSAGES][LONG / sizeof(int)], in[LONG / sizeof(int)];
  if (rank > 0) {
    MPI_Request requests[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) {
      out[i][0] = i;
      MPI_Isend(out[i], i % 3 ? 1 : LONG / (int)sizeof(int), MPI_INT, 0, i % 5, WORLD,
                &requests[i]);
    }
    MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
    return;
  }
  int *seen = calloc((size_t)size, sizeof *seen);
  for (int i = 0; i < MESSAGES * (size - 1); i++) {
    MPI_Status status;
    MPI_Recv(in, LONG / sizeof(int), MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, WORLD, &status);
    int expected = seen[status.MPI_SOURCE]++;
    CHECK(in[0] == expected && status.MPI_TAG == expected % 5);
  }
  free(seen);
}

void probes(void) {
  int value = 7, flag = 0, got;
  MPI_Status status;
  MPI_Message message;
  if (rank == 1) {
    MPI_Send(&value, 1, MPI_INT, 0, 11, WORLD);
    MPI_Send(&value, 1, MPI_INT, 0, 12, WORLD);
  } else if (rank == 0) {
    MPI_Probe(1, 11, WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &got);
    CHECK(got == 1 && status.MPI_TAG == 11);
    while (!flag)
      MPI_Iprobe(MPI_ANY_SOURCE, 12, WORLD, &flag, &status);
    CHECK(status.MPI_SOURCE == 1);
    MPI_Mprobe(1, 12, WORLD, &message, &status);
    value = 0;
    MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
    CHECK(value == 7);
    MPI_Recv(&value, 1, MPI_INT, 1, 11, WORLD, MPI_STATUS_IGNORE);
    MPI_Iprobe(1, MPI_ANY_TAG, WORLD, &flag, &status);
    CHECK(!flag);
  }
}

/* A message that was taken by a probe is received after later ones of its sender and tag. */
void matched_probes(void) {
  enum { LONG = 200000 };
  static unsigned char out[2][LONG], in[2][LONG];
  MPI_Request requests[2];
  MPI_Message message;
  MPI_Status status;
  int got;
  for (int length = 8; length <= LONG; length *= 5) {
    if (rank == 1) {
      for (int i = 0; i < 2; i++) {
        fill(out[i], length, (unsigned)i);
        MPI_Isend(out[i], length, MPI_BYTE, 0, 13, WORLD, &requests[i]);
      }
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else if (rank == 0) {
      MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, WORLD, &message, &status);
      MPI_Get_count(&status, MPI_BYTE, &got);
      CHECK(got == length && status.MPI_SOURCE == 1 && status.MPI_TAG == 13);
      MPI_Recv(in[1], length, MPI_BYTE, 1, 13, WORLD, MPI_STATUS_IGNORE);
      MPI_Imrecv(in[0], length, MPI_BYTE, &message, &requests[0]);
      MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
      for (int i = 0; i < 2; i++)
        CHECK(is_filled(in[i], length, (unsigned)i));
    }
  }
}

/* A receive that matches nothing is cancelled, and a later message is not lost by it. */
void cancels(void) {
  int value = rank, cancelled;
  MPI_Request request;
  MPI_Status status;
  MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 99, WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &cancelled);
  CHECK(cancelled);
  MPI_Barrier(WORLD);
  int next = (rank + 1) % size, previous = (rank + size - 1) % size, in = -1;
  MPI_Sendrecv(&rank, 1, MPI_INT, next, 99, &in, 1, MPI_INT, previous, 99, WORLD, &status);
  CHECK(in == previous);
}

/* Synchronous, buffered and ready sends. */
void modes(void) {
  enum { LENGTH = 100000 };
  static unsigned char out[LENGTH], in[LENGTH];
  int length = LENGTH + MPI_BSEND_OVERHEAD, done = 0;
  void *buffer = malloc((size_t)length);
  MPI_Request request;
  fill(out, LENGTH, 3);
  MPI_Buffer_attach(buffer, length);
  if (rank == 1) {
    for (int bytes = 1; bytes <= LENGTH; bytes *= 10) {
      MPI_Issend(out, bytes, MPI_BYTE, 0, 1, WORLD, &request);
      for (int i = 0; i < 100; i++)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      CHECK(!done); /* Rank 0 has not posted the receive yet. */
      MPI_Send(out, 1, MPI_BYTE, 0, 2, WORLD);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Bsend(out, LENGTH, MPI_BYTE, 0, 3, WORLD);
    memset(out, 0, LENGTH);
    MPI_Recv(in, 0, MPI_BYTE, 0, 4, WORLD, MPI_STATUS_IGNORE);
    fill(out, LENGTH, 5);
    MPI_Rsend(out, LENGTH, MPI_BYTE, 0, 5, WORLD);
  } else if (rank == 0) {
    for (int bytes = 1; bytes <= LENGTH; bytes *= 10) {
      MPI_Recv(in, 1, MPI_BYTE, 1, 2, WORLD, MPI_STATUS_IGNORE);
      MPI_Recv(in, bytes, MPI_BYTE, 1, 1, WORLD, MPI_STATUS_IGNORE);
      CHECK(is_filled(in, bytes, 3));
    }
    MPI_Recv(in, LENGTH, MPI_BYTE, 1, 3, WORLD, MPI_STATUS_IGNORE);
    CHECK(is_filled(in, LENGTH, 3));
    MPI_Irecv(in, LENGTH, MPI_BYTE, 1, 5, WORLD, &request);
    MPI_Send(in, 0, MPI_BYTE, 1, 4, WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(is_filled(in, LENGTH, 5));
  }
  MPI_Buffer_detach(&buffer, &length);
  free(buffer);
}

void persistent(void) {
  int out = -1, in = -1, next = (rank + 1) % size, previous = (rank + size - 1) % size;
  MPI_Request requests[2];
  MPI_Send_init(&out, 1, MPI_INT, next, 21, WORLD, &requests[0]);
  MPI_Recv_init(&in, 1, MPI_INT, previous, 21, WORLD, &requests[1]);
  for (int i = 0; i < 50; i++) {
    out = rank * 1000 + i;
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(in == previous * 1000 + i);
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
}

/* More messages than the shared memory has room for arrive before a receive is posted. */
void many_unexpected(void) {
  enum { MESSAGES = 4000, LENGTH = 1000 };
  static unsigned char bytes[LENGTH];
  if (rank == 0)
    usleep(100000);
  for (int i = 0; i < MESSAGES; i++) {
    if (rank == 1) {
      fill(bytes, LENGTH, (unsigned)i);
      MPI_Send(bytes, LENGTH, MPI_BYTE, 0, 41, WORLD);
    } else if (rank == 0) {
      MPI_Recv(bytes, LENGTH, MPI_BYTE, 1, 41, WORLD, MPI_STATUS_IGNORE);
      CHECK(is_filled(bytes, LENGTH, (unsigned)i));
    }
  }
}

/* Of several requests, those that have completed are found, each once. */
void completion(void) {
  enum { REQUESTS = 20 };
  MPI_Request requests[REQUESTS];
  int in[REQUESTS], places[REQUESTS], count = 1, done = 0;
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int i = 0; i < REQUESTS; i++)
    MPI_Irecv(&in[i], 1, MPI_INT, previous, i, WORLD, &requests[i]);
  for (int i = REQUESTS - 1; i >= 0; i--)
    MPI_Send(&i, 1, MPI_INT, next, i, WORLD);
  MPI_Waitany(REQUESTS, requests, &places[0], MPI_STATUS_IGNORE);
  while (count != MPI_UNDEFINED) {
    for (int i = 0; i < count; i++)
      CHECK(in[places[i]] == places[i]);
    done += count;
    MPI_Waitsome(REQUESTS, requests, &count, places, MPI_STATUSES_IGNORE);
  }
  CHECK(done == REQUESTS);
}

/* A message that is longer than its receive is an error of the receive, and later messages arrive. */
void truncation(void) {
  static unsigned char out[100000], in[100000];
  MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_RETURN);
  for (int length = 100; length <= 100000; length *= 10) {
    if (rank == 1) {
      MPI_Send(out, length, MPI_BYTE, 0, 51, WORLD);
      MPI_Send(&length, 1, MPI_INT, 0, 52, WORLD);
    } else if (rank == 0) {
      int class, got;
      MPI_Error_class(MPI_Recv(in, length / 2, MPI_BYTE, 1, 51, WORLD, MPI_STATUS_IGNORE), &class);
      CHECK(class == MPI_ERR_TRUNCATE);
      MPI_Recv(&got, 1, MPI_INT, 1, 52, WORLD, MPI_STATUS_IGNORE);
      CHECK(got == length);
    }
  }
  MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_ARE_FATAL);
}

/* No process, a message to oneself, and one buffer for both directions. */
void special_peers(void) {
  int value = rank, in = -1;
  MPI_Status status;
  MPI_Sendrecv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, &in, 1, MPI_INT, MPI_PROC_NULL, 1, WORLD,
               &status);
  CHECK(in == -1 && status.MPI_SOURCE == MPI_PROC_NULL);
  MPI_Sendrecv(&value, 1, MPI_INT, rank, 1, &in, 1, MPI_INT, rank, 1, WORLD, &status);
  CHECK(in == rank && status.MPI_SOURCE == rank);
  MPI_Sendrecv_replace(&value, 1, MPI_INT, (rank + 1) % size, 2, (rank + size - 1) % size, 2, WORLD,
                       &status);
  CHECK(value == (rank + size - 1) % size);
}
