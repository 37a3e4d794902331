/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How long requests, and what they refer to, are in use. */
#include "check.h"

enum { LONG = 1000000 };

/* Every second byte. */
static MPI_Datatype every_second(int count) {
  MPI_Datatype type;
  MPI_Type_vector(count, 1, 2, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  return type;
}

static void spread(unsigned char *bytes, int count, unsigned seed) {
  for (int i = 0; i < count; i++)
    bytes[2 * i] = byte_at((size_t)i, seed), bytes[2 * i + 1] = 0xee;
}

static int is_spread(const unsigned char *bytes, int count, unsigned seed) {
  for (int i = 0; i < count; i++)
    if (bytes[2 * i] != byte_at((size_t)i, seed) || bytes[2 * i + 1] != 0xee)
      return 0;
  return 1;
}

typedef int (*init_function)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

/* A send and a receive that start several times. The program frees their type and communicator before. */
static void start_several(init_function init, int count) {
  static unsigned char out[2 * LONG], in[2 * LONG];
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  MPI_Request requests[2];
  MPI_Comm comm;
  MPI_Comm_dup(WORLD, &comm);
  MPI_Datatype type = every_second(count);
  init(out, 1, type, next, 7, comm, &requests[0]);
  MPI_Recv_init(in, 1, type, previous, 7, comm, &requests[1]);
  MPI_Type_free(&type);
  MPI_Comm_free(&comm);
  for (unsigned turn = 0; turn < 3; turn++) {
    MPI_Status statuses[2];
    int bytes;
    spread(out, count, (unsigned)rank + turn);
    memset(in, 0xee, 2 * (size_t)count);
    /* In every second turn, the receive is there first. */
    MPI_Start(&requests[turn % 2]);
    MPI_Start(&requests[1 - turn % 2]);
    MPI_Waitall(2, requests, statuses);
    MPI_Get_count(&statuses[1], MPI_BYTE, &bytes);
    CHECK(statuses[1].MPI_SOURCE == previous && statuses[1].MPI_TAG == 7 && bytes == count);
    CHECK(is_spread(in, count, (unsigned)previous + turn));
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
}

static const int counts[] = {0, 1, 8, 5000, 40000, LONG};
#define COUNTS (sizeof counts / sizeof *counts)

void persistent_modes(void) {
  for (size_t i = 0; i < COUNTS; i++) {
    start_several(MPI_Send_init, counts[i]);
    start_several(MPI_Ssend_init, counts[i]);
  }
}

/* Not for ob1 of Open MPI 4.1.4: from the second start on, it may send what the buffer had before, also over `vader` and `tcp`; and after a
   buffered send without room, it waits for ever when the buffer is detached. */
void buffered(void) {
  int room = 2 * (LONG + MPI_BSEND_OVERHEAD), class;
  void *buffer = malloc((size_t)room);
  MPI_Buffer_attach(buffer, room);
  for (size_t i = 0; i < COUNTS; i++)
    start_several(MPI_Bsend_init, counts[i]);
  MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_RETURN);
  MPI_Error_class(MPI_Bsend(buffer, room, MPI_BYTE, rank, 11, WORLD), &class);
  CHECK(class == MPI_ERR_BUFFER);
  MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Buffer_detach(&buffer, &room);
  free(buffer);
}

/* The program frees requests, and a type, before the messages leave and arrive. */
void freed_requests(void) {
  static unsigned char out[2 * LONG], in[2 * LONG];
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (unsigned turn = 0; turn < 20; turn++) {
    int count = turn % 2 ? LONG : 100;
    MPI_Request send, receive;
    MPI_Datatype type = every_second(count);
    memset(in, 0xee, sizeof in);
    spread(out, count, (unsigned)rank + turn);
    MPI_Irecv(in, 1, type, previous, 8, WORLD, &receive);
    MPI_Isend(out, 1, type, next, 8, WORLD, &send);
    MPI_Type_free(&type);
    MPI_Request_free(&send);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    CHECK(is_spread(in, count, (unsigned)previous + turn));
    /* `out` may be used again when its receiver says so. */
    MPI_Barrier(WORLD);
    MPI_Irecv(in, count, MPI_BYTE, previous, 9, WORLD, &receive);
    MPI_Request_free(&receive);
    MPI_Send(out, count, MPI_BYTE, next, 9, WORLD);
    /* The freed receive was first, so it has the message when the next one is here. */
    MPI_Sendrecv(NULL, 0, MPI_BYTE, next, 9, NULL, 0, MPI_BYTE, previous, 9, WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(WORLD);
  }
}

/* Sends to the process itself keep their order, whatever their mode and length. */
void sends_to_self(void) {
  static unsigned char out[4][2 * LONG], in[2 * LONG];
  static const int lengths[] = {8, 0, LONG, 5000};
  for (unsigned first = 0; first < 4; first++) {
    MPI_Request requests[5];
    MPI_Datatype type = every_second(5000);
    int flag, bytes;
    MPI_Status status;
    for (unsigned i = 0; i < 4; i++) {
      int length = lengths[(first + i) % 4];
      fill(out[i], (size_t)length, i);
      (i % 2 ? MPI_Isend : MPI_Issend)(out[i], length, MPI_BYTE, rank, 12, WORLD, &requests[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
      int length = lengths[(first + i) % 4];
      MPI_Probe(rank, 12, WORLD, &status);
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      CHECK(bytes == length && status.MPI_SOURCE == rank);
      MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
      CHECK(i % 2 == 1 || !flag); /* Synchronous: nothing has been received. */
      MPI_Recv(in, LONG, MPI_BYTE, rank, 12, WORLD, MPI_STATUS_IGNORE);
      CHECK(is_filled(in, (size_t)length, i));
      MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
    /* The receive is first, and neither side has its bytes in a row. */
    spread(out[0], 5000, first);
    memset(in, 0xee, 2 * 5000);
    MPI_Irecv(in, 1, type, MPI_ANY_SOURCE, 13, WORLD, &requests[4]);
    MPI_Send(out[0], 1, type, rank, 13, WORLD);
    MPI_Wait(&requests[4], MPI_STATUS_IGNORE);
    CHECK(is_spread(in, 5000, first));
    MPI_Type_free(&type);
  }
}

/* A send to the process itself is complete when it has been received, as by `vader`: MPI does not ask for it, but programs do. MPICH's is
   complete later. */
void complete_at_once(void) {
  static unsigned char out[LONG], in[LONG];
  for (size_t i = 0; i < COUNTS; i++)
    for (int mode = 0; mode < 2; mode++) {
      MPI_Request request;
      int flag;
      (mode ? MPI_Isend : MPI_Issend)(out, counts[i], MPI_BYTE, rank, 14, WORLD, &request);
      MPI_Recv(in, LONG, MPI_BYTE, rank, 14, WORLD, MPI_STATUS_IGNORE);
      MPI_Testall(1, &request, &flag, MPI_STATUSES_IGNORE);
      CHECK(flag);
    }
}

/* Buffered sends have their bytes at once, and end before the buffer is detached. */
void attached_buffer(void) {
  static unsigned char out[LONG], in[LONG];
  int next = (rank + 1) % size, previous = (rank + size - 1) % size, room = 3 * (LONG + MPI_BSEND_OVERHEAD);
  void *buffer = malloc((size_t)room);
  MPI_Request request;
  MPI_Buffer_attach(buffer, room);
  for (unsigned i = 0; i < 3; i++) {
    fill(out, LONG, i);
    MPI_Ibsend(out, LONG, MPI_BYTE, next, 10, WORLD, &request);
    memset(out, 0, LONG);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (rank % 2 == 1)
    MPI_Buffer_detach(&buffer, &room);
  for (unsigned i = 0; i < 3; i++) {
    MPI_Recv(in, LONG, MPI_BYTE, previous, 10, WORLD, MPI_STATUS_IGNORE);
    CHECK(is_filled(in, LONG, i));
  }
  if (rank % 2 == 0)
    MPI_Buffer_detach(&buffer, &room);
  free(buffer);
}
