/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A conformance test of what MPI programs use, with two or more ranks. */
#include "check.h"

#include <unistd.h>

int rank, size;

/* Exchanges messages until a rank is killed. */
static void endless(void) {
  int sum;
  if (rank == 1)
    printf("rank 1 is process %d\n", (int)getpid());
  fflush(stdout);
  for (;;)
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, WORLD);
}

int main(int count, char **words) {
  static const struct {
    const char *name;
    void (*run)(void);
  } tests[] = {
      {"lengths", lengths},
      {"order_and_wildcards", order_and_wildcards},
      {"probes", probes},
      {"cancels", cancels},
      {"modes", modes},
      {"persistent", persistent},
      {"derived_types", derived_types},
      {"many_unexpected", many_unexpected},
      {"collectives", collectives},
      {"large_collectives", large_collectives},
      {"communicators", communicators},
      {"one_sided", one_sided},
      {"threads", threads},
  };
  int provided;
  MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(WORLD, &rank);
  MPI_Comm_size(WORLD, &size);
  CHECK(size >= 2 && provided == MPI_THREAD_MULTIPLE);
  if (count > 1 && !strcmp(words[1], "endless"))
    endless();
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    if (count > 1 && strcmp(words[1], tests[i].name))
      continue;
    double start = MPI_Wtime();
    tests[i].run();
    MPI_Barrier(WORLD);
    if (rank == 0)
      printf("%-20s passed in %.2f s\n", tests[i].name, MPI_Wtime() - start);
  }
  MPI_Finalize();
  return 0;
}
