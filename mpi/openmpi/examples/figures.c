/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Measures MPI between its ranks, as the OSU micro-benchmarks do:
 *
 *   figures SECONDS pair          between rank 0 and the last one:
 *     latency                       half of a round trip, microseconds
 *     bandwidth                     64 messages of rank 0, and an answer, MB/s
 *     rate                          the same with messages of 8 B, messages a second
 *   figures SECONDS slices        the rate of 8 B again, in slices, each beside the speed of both processors and their distance
 *   figures SECONDS one-sided     rank 0, in memory of MPI_Alloc_mem of the last one, with flushes:
 *     put, get                      one operation, microseconds
 *     put-bandwidth, get-bandwidth  64 operations, MB/s
 *     fetch-rate                    fetch-and-add of 8 B, operations a second
 *   figures SECONDS collective    among all ranks:
 *     alltoall, allreduce           one operation, microseconds, the mean of the ranks
 *
 * Each figure takes about the given time. Rank 0 prints a line `NAME BYTES VALUE` for each, then where
 * each rank ran. A line of slices is `slice RATE SPEED SPEED DISTANCE`: messages a second, additions a nanosecond of the first and
 * the last rank's processor, and the nanoseconds that a cache line takes from one to the other and back. If a virtual processor shares
 * its core with another hyperthread of the host, it has about half of its speed; and the host can move it to a core that is far away.
 */
#include <mpi.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORLD MPI_COMM_WORLD
#define WINDOW 64
#define SLICES 50

static int rank, size, last;
static double seconds; /* of each figure */
static char *out, *in;
static MPI_Win memory; /* of each rank */

static void round_trip(int bytes) {
  if (rank == 0) {
    MPI_Send(out, bytes, MPI_BYTE, last, 1, WORLD);
    MPI_Recv(in, bytes, MPI_BYTE, last, 1, WORLD, MPI_STATUS_IGNORE);
  } else if (rank == last) {
    MPI_Recv(in, bytes, MPI_BYTE, 0, 1, WORLD, MPI_STATUS_IGNORE);
    MPI_Send(out, bytes, MPI_BYTE, 0, 1, WORLD);
  }
}

static void window(int bytes) {
  MPI_Request requests[WINDOW];
  if (rank != 0 && rank != last)
    return;
  for (int i = 0; i < WINDOW; i++) {
    if (rank == 0)
      MPI_Isend(out, bytes, MPI_BYTE, last, 2, WORLD, &requests[i]);
    else
      MPI_Irecv(in, bytes, MPI_BYTE, 0, 2, WORLD, &requests[i]);
  }
  MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
  if (rank == 0)
    MPI_Recv(in, 0, MPI_BYTE, last, 3, WORLD, MPI_STATUS_IGNORE);
  else
    MPI_Send(in, 0, MPI_BYTE, 0, 3, WORLD);
}

/* Rank 0 puts into, or gets from, memory of the last rank so many times, and waits for all together. */
static void access_memory(bool puts, int bytes, int count) {
  if (rank != 0)
    return;
  for (int i = 0; i < count; i++)
    if (puts)
      MPI_Put(out, bytes, MPI_BYTE, last, 0, bytes, MPI_BYTE, memory);
    else
      MPI_Get(out, bytes, MPI_BYTE, last, 0, bytes, MPI_BYTE, memory);
  MPI_Win_flush(last, memory);
}

static void put(int bytes) { access_memory(true, bytes, 1); }
static void get(int bytes) { access_memory(false, bytes, 1); }
static void puts_of_a_window(int bytes) { access_memory(true, bytes, WINDOW); }
static void gets_of_a_window(int bytes) { access_memory(false, bytes, WINDOW); }

static void fetch_and_add(int bytes) {
  long one = 1, before;
  (void)bytes;
  if (rank == 0) {
    MPI_Fetch_and_op(&one, &before, MPI_LONG, last, 0, MPI_SUM, memory);
    MPI_Win_flush(last, memory);
  }
}

static void alltoall(int bytes) {
  MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, WORLD);
}

static void allreduce(int bytes) {
  MPI_Allreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, WORLD);
}

/* Returns the seconds of one call of `run`: for collective operations the mean of the ranks. All ranks
   make the same number of calls, which rank 0 finds out. */
static double measure(void (*run)(int), int bytes) {
  double start, spent = 0, all;
  long count = 1;
  for (;;) {
    MPI_Barrier(WORLD);
    start = MPI_Wtime();
    for (long i = 0; i < count; i++)
      run(bytes);
    spent = MPI_Wtime() - start;
    double next = count * (spent > 0 ? seconds / spent : 100);
    int enough = spent > seconds / 3;
    MPI_Bcast(&enough, 1, MPI_INT, 0, WORLD);
    if (enough)
      break;
    count = next > count * 20.0 ? count * 20 : (long)next + 1;
    MPI_Bcast(&count, 1, MPI_LONG, 0, WORLD);
  }
  spent /= (double)count;
  MPI_Allreduce(&spent, &all, 1, MPI_DOUBLE, MPI_SUM, WORLD);
  return run == alltoall || run == allreduce ? all / size : spent;
}

static void print(const char *name, int bytes, double value) {
  if (rank == 0)
    printf("%s %d %.3f\n", name, bytes, value);
  fflush(stdout);
}

/* Where the ranks ran: the placement table of the tutorial. */
static void placement(void) {
  char name[MPI_MAX_PROCESSOR_NAME] = "";
  int length;
  char *all = malloc((size_t)size * sizeof name);
  MPI_Get_processor_name(name, &length);
  MPI_Gather(name, sizeof name, MPI_CHAR, all, sizeof name, MPI_CHAR, 0, WORLD);
  for (int i = 0; rank == 0 && i < size; i++)
    printf("rank %d %s\n", i, all + (size_t)i * sizeof name);
  free(all);
}

static void pair(void) {
  static const int lengths[] = {8, 64, 1024, 4096};
  for (int i = 0; i < 4; i++)
    print("latency", lengths[i], measure(round_trip, lengths[i]) / 2 * 1e6);
  for (int bytes = 65536; bytes <= 1 << 20; bytes *= 16)
    print("bandwidth", bytes, bytes * (double)WINDOW / measure(window, bytes) / 1e6);
  print("rate", 8, WINDOW / measure(window, 8));
}

/* Additions a nanosecond: whether this processor has its core alone. */
static double processor_speed(void) {
  enum { TURNS = 100000, ADDITIONS = 8 };
  unsigned long a = 0, b = 0, c = 0, d = 0;
  double start = MPI_Wtime();
  for (int i = 0; i < TURNS; i++) {
    /* More additions than a cycle has room for, none of which the compiler can leave out. */
    a++, b++, c++, d++;
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
    a++, b++, c++, d++;
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
  }
  return TURNS * (double)ADDITIONS / (MPI_Wtime() - start) / 1e9;
}

/* Two words in cache lines of their own, which the first and the last rank share. */
typedef struct {
  _Alignas(128) _Atomic long there;
  _Alignas(128) _Atomic long back;
} lines_t;

static lines_t *share_lines(void) {
  char path[] = "/dev/shm/figures-XXXXXX";
  int file = rank == 0 ? mkstemp(path) : -1;
  int ready = file >= 0 && ftruncate(file, sizeof(lines_t)) == 0;
  MPI_Bcast(path, sizeof path, MPI_CHAR, 0, WORLD);
  MPI_Bcast(&ready, 1, MPI_INT, 0, WORLD);
  if (ready && rank != 0)
    file = open(path, O_RDWR);
  void *lines = mmap(NULL, sizeof(lines_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  MPI_Barrier(WORLD);
  if (rank == 0)
    unlink(path);
  if (lines == MAP_FAILED) {
    fprintf(stderr, "figures: rank %d cannot map %s: slices need ranks of one host\n", rank, path);
    MPI_Abort(WORLD, 1);
  }
  close(file);
  return lines;
}

static void wait_for(_Atomic long *word, long value) {
  while (atomic_load_explicit(word, memory_order_acquire) != value)
    ;
}

/* Nanoseconds in which a line goes from the first rank's processor to that of the last rank, and back. */
static double distance(lines_t *lines) {
  enum { TURNS = 1000 };
  static long turn;
  double start = MPI_Wtime();
  for (long end = turn + TURNS; turn < end;) {
    turn++;
    if (rank == 0) {
      atomic_store_explicit(&lines->there, turn, memory_order_release);
      wait_for(&lines->back, turn);
    } else if (rank == last) {
      wait_for(&lines->there, turn);
      atomic_store_explicit(&lines->back, turn, memory_order_release);
    }
  }
  return (MPI_Wtime() - start) / TURNS * 1e9;
}

/* A slice counts with the lower one of the speeds before and after it, and with the distance after it. */
static void slices(void) {
  long windows = (long)(seconds / measure(window, 8)) + 1;
  MPI_Bcast(&windows, 1, MPI_LONG, 0, WORLD);
  lines_t *lines = share_lines();
  double before = processor_speed();
  for (int i = 0; i < SLICES; i++) {
    MPI_Barrier(WORLD);
    double start = MPI_Wtime();
    for (long n = 0; n < windows; n++)
      window(8);
    double spent = MPI_Wtime() - start, after = processor_speed();
    double speed = before < after ? before : after, other = 0;
    if (rank == last)
      MPI_Send(&speed, 1, MPI_DOUBLE, 0, 4, WORLD);
    else if (rank == 0)
      MPI_Recv(&other, 1, MPI_DOUBLE, last, 4, WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(WORLD);
    double apart = distance(lines);
    if (rank == 0)
      printf("slice %.0f %.3f %.3f %.0f\n", (double)windows * WINDOW / spent, speed, other, apart);
    before = after;
  }
  munmap(lines, sizeof *lines);
}

/* The window is of memory of MPI_Alloc_mem. With the key, Open MPI takes no lock for an accumulate. */
static void one_sided(void) {
  MPI_Info info;
  char *allocated;
  MPI_Alloc_mem(1 << 20, MPI_INFO_NULL, &allocated);
  memset(allocated, 'b', 1 << 20);
  MPI_Info_create(&info);
  MPI_Info_set(info, "acc_single_intrinsic", "true");
  MPI_Win_create(allocated, 1 << 20, 1, info, WORLD, &memory);
  MPI_Info_free(&info);
  MPI_Win_lock_all(0, memory);
  for (int bytes = 8; bytes <= 4096; bytes *= 512) {
    print("put", bytes, measure(put, bytes) * 1e6);
    print("get", bytes, measure(get, bytes) * 1e6);
  }
  for (int bytes = 65536; bytes <= 1 << 20; bytes *= 16) {
    print("put-bandwidth", bytes, bytes * (double)WINDOW / measure(puts_of_a_window, bytes) / 1e6);
    print("get-bandwidth", bytes, bytes * (double)WINDOW / measure(gets_of_a_window, bytes) / 1e6);
  }
  print("fetch-rate", 8, 1 / measure(fetch_and_add, 8));
  MPI_Win_unlock_all(memory);
  MPI_Win_free(&memory);
  MPI_Free_mem(allocated);
}

static void collective(void) {
  for (int bytes = 8; bytes <= 4096; bytes *= 512) {
    print("alltoall", bytes, measure(alltoall, bytes) * 1e6);
    print("allreduce", bytes, measure(allreduce, bytes) * 1e6);
  }
}

static const struct {
  const char *name;
  void (*run)(void);
} parts[] = {{"pair", pair}, {"slices", slices}, {"one-sided", one_sided}, {"collective", collective}};
#define PARTS (sizeof parts / sizeof *parts)

int main(int count, char **words) {
  MPI_Init(&count, &words);
  MPI_Comm_rank(WORLD, &rank);
  MPI_Comm_size(WORLD, &size);
  last = size - 1;
  seconds = count > 1 ? atof(words[1]) : 0;
  void (*part)(void) = NULL;
  for (size_t i = 0; count > 2 && i < PARTS; i++)
    if (!strcmp(words[2], parts[i].name))
      part = parts[i].run;
  if (seconds <= 0 || part == NULL) {
    fprintf(stderr, "usage: figures SECONDS pair|slices|one-sided|collective\n");
    MPI_Abort(WORLD, 2);
  }
  if (size < 2) {
    fprintf(stderr, "figures: start at least two ranks (mpirun -n 2): it measures between ranks\n");
    MPI_Abort(WORLD, 2);
  }
  size_t most = 1 << 20, all = (size_t)4096 * (size_t)size, length = most > all ? most : all;
  out = malloc(length);
  in = malloc(length);
  /* As OSU's programs do. Memory that was never written is one page of zeros, in every cache. */
  memset(out, 'a', length);
  memset(in, 'b', length);
  part();
  placement();
  free(out), free(in);
  MPI_Finalize();
  return 0;
}
