/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI's chapter on datatypes. */
#include "check.h"

#include <stddef.h>
#include <stdint.h>

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


/* Blocks at indices, and a part of a two-dimensional array; into contiguous memory. */
void indexed_types(void) {
  enum { EDGE = 100, PART = 40 };
  static int out[EDGE][EDGE], in[EDGE][EDGE], part[PART][PART];
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int i = 0; i < EDGE * EDGE; i++)
    out[i / EDGE][i % EDGE] = rank * 100000 + i;
  MPI_Datatype square, blocks;
  MPI_Type_create_subarray(2, (int[]){EDGE, EDGE}, (int[]){PART, PART}, (int[]){7, 9}, MPI_ORDER_C,
                           MPI_INT, &square);
  MPI_Type_commit(&square);
  MPI_Sendrecv(out, 1, square, next, 34, part, PART * PART, MPI_INT, previous, 34, WORLD,
               MPI_STATUS_IGNORE);
  for (int i = 0; i < PART * PART; i++)
    CHECK(part[i / PART][i % PART] == previous * 100000 + (i / PART + 7) * EDGE + i % PART + 9);
  MPI_Type_free(&square);
  MPI_Type_indexed(3, (int[]){1, 5, 200}, (int[]){3, 10, 1000}, MPI_INT, &blocks);
  MPI_Type_commit(&blocks);
  memset(in, 0, sizeof in);
  MPI_Sendrecv(out, 1, blocks, next, 35, in, 1, blocks, previous, 35, WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < EDGE * EDGE; i++) {
    int inside = i == 3 || (i >= 10 && i < 15) || (i >= 1000 && i < 1200);
    CHECK(in[i / EDGE][i % EDGE] == (inside ? previous * 100000 + i : 0));
  }
  MPI_Type_free(&blocks);
}

void packing(void) {
  char buffer[200];
  int place = 0, number = rank, next = (rank + 1) % size, previous = (rank + size - 1) % size;
  double fraction = rank * 0.25;
  MPI_Pack(&number, 1, MPI_INT, buffer, sizeof buffer, &place, WORLD);
  MPI_Pack(&fraction, 1, MPI_DOUBLE, buffer, sizeof buffer, &place, WORLD);
  MPI_Sendrecv_replace(buffer, place, MPI_PACKED, next, 36, previous, 36, WORLD, MPI_STATUS_IGNORE);
  place = 0;
  MPI_Unpack(buffer, sizeof buffer, &place, &number, 1, MPI_INT, WORLD);
  MPI_Unpack(buffer, sizeof buffer, &place, &fraction, 1, MPI_DOUBLE, WORLD);
  CHECK(number == previous && fraction == previous * 0.25);
}
