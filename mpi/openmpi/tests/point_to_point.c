/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI's chapter on point-to-point communication, and derived types. */
#include "check.h"

#include <stdint.h>
#include <unistd.h>

/* Messages of each length, 1 B to 8 MiB, around the limits of the protocols, in both directions at
   the same time, between neighbours in a ring. */
void lengths(void) {
  static const int sizes[] = {0,    1,    8,     48,    49,    4000,  4031,    4032,    4096,
                              4097, 8192, 32700, 32768, 32769, 65536, 1 << 20, 8 << 20};
  unsigned char *out = malloc(8 << 20), *in = malloc(8 << 20);
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int length = sizes[i], got;
    MPI_Status status;
    fill(out, (size_t)length, (unsigned)rank);
    memset(in, 0, (size_t)length);
    MPI_Sendrecv(out, length, MPI_BYTE, next, length, in, length, MPI_BYTE, previous, length,
                 WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    CHECK(got == length && status.MPI_SOURCE == previous && status.MPI_TAG == length);
    CHECK(is_filled(in, (size_t)length, (unsigned)previous));
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
    MPI_Issend(out, 1, MPI_BYTE, 0, 1, WORLD, &request);
    for (int i = 0; i < 100; i++)
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    CHECK(!done); /* Rank 0 has not posted the receive yet. */
    MPI_Send(out, 1, MPI_BYTE, 0, 2, WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Bsend(out, LENGTH, MPI_BYTE, 0, 3, WORLD);
    memset(out, 0, LENGTH);
    MPI_Recv(in, 0, MPI_BYTE, 0, 4, WORLD, MPI_STATUS_IGNORE);
    fill(out, LENGTH, 5);
    MPI_Rsend(out, LENGTH, MPI_BYTE, 0, 5, WORLD);
  } else if (rank == 0) {
    MPI_Recv(in, 1, MPI_BYTE, 1, 2, WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(in, 1, MPI_BYTE, 1, 1, WORLD, MPI_STATUS_IGNORE);
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

/* Columns of a matrix, and a structure with gaps; short and long. */
void derived_types(void) {
  typedef struct {
    char letter;
    double number;
    int16_t rest;
  } record_t;
  MPI_Datatype column, packed, record;
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int rows = 4; rows <= 40000; rows *= 100) {
    int *matrix = malloc((size_t)rows * 3 * sizeof(int));
    int *line = malloc((size_t)rows * sizeof(int));
    for (int i = 0; i < rows * 3; i++)
      matrix[i] = rank * 1000000 + i;
    MPI_Type_vector(rows, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Sendrecv(matrix + 1, 1, column, next, 31, line, rows, MPI_INT, previous, 31, WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < rows; i++)
      CHECK(line[i] == previous * 1000000 + i * 3 + 1);
    /* From contiguous memory into a column; the other columns stay. */
    MPI_Sendrecv(line, rows, MPI_INT, next, 32, matrix + 2, 1, column, previous, 32, WORLD,
                 MPI_STATUS_IGNORE);
    int second = (previous + size - 1) % size;
    for (int i = 0; i < rows; i++)
      CHECK(matrix[i * 3 + 2] == second * 1000000 + i * 3 + 1 &&
            matrix[i * 3] == rank * 1000000 + i * 3);
    MPI_Type_free(&column);
    free(matrix), free(line);
  }
  int blocks[] = {1, 1, 1};
  MPI_Aint places[] = {offsetof(record_t, letter), offsetof(record_t, number),
                       offsetof(record_t, rest)};
  MPI_Datatype parts[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT16_T};
  MPI_Type_create_struct(3, blocks, places, parts, &packed);
  MPI_Type_create_resized(packed, 0, sizeof(record_t), &record);
  MPI_Type_commit(&record);
  enum { RECORDS = 3000 };
  static record_t out[RECORDS], in[RECORDS];
  for (int i = 0; i < RECORDS; i++)
    out[i] = (record_t){(char)i, i * 0.5 + rank, (int16_t)-i};
  MPI_Sendrecv(out, RECORDS, record, next, 33, in, RECORDS, record, previous, 33, WORLD,
               MPI_STATUS_IGNORE);
  for (int i = 0; i < RECORDS; i++)
    CHECK(in[i].letter == (char)i && in[i].number == i * 0.5 + previous &&
          in[i].rest == (int16_t)-i);
  MPI_Type_free(&packed);
  MPI_Type_free(&record);
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
