/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A conformance test of what MPI programs use, with two or more ranks. */
#include "check.h"

#include <unistd.h>

int rank, size;
char *program;

/* Exchanges messages until a rank is killed. */
static void endless(void) {
  int sum;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, WORLD);
  if (rank == 1)
    printf("rank 1 is process %d\n", (int)getpid());
  fflush(stdout);
  for (;;)
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, WORLD);
}

/* The words are the names of the parts to run, or with a minus sign before each name, of those not to
   run. */
static int chosen(int count, char **words, const char *name) {
  int found = count < 2 || words[1][0] == '-';
  for (int i = 1; i < count; i++) {
    if (words[i][0] == '-' && !strcmp(words[i] + 1, name))
      return 0;
    found |= !strcmp(words[i], name);
  }
  return found;
}

typedef struct {
  const char *name;
  void (*run)(void);
} part_t;

/* Not among the tests, because they fail, or do not end, with other components. */
static const part_t special[] = {
    {"idle_target", idle_target},
    {"idle_counter", idle_counter},
    {"buffered", buffered},
    {"complete_at_once", complete_at_once},
};

int main(int count, char **words) {
  static const part_t tests[] = {
      {"lengths", lengths},
      {"long_messages", long_messages},
      {"order_and_wildcards", order_and_wildcards},
      {"probes", probes},
      {"matched_probes", matched_probes},
      {"cancels", cancels},
      {"modes", modes},
      {"persistent", persistent},
      {"many_unexpected", many_unexpected},
      {"completion", completion},
      {"truncation", truncation},
      {"special_peers", special_peers},
      {"persistent_modes", persistent_modes},
      {"freed_requests", freed_requests},
      {"sends_to_self", sends_to_self},
      {"attached_buffer", attached_buffer},
      {"derived_types", derived_types},
      {"indexed_types", indexed_types},
      {"packing", packing},
      {"collectives", collectives},
      {"large_collectives", large_collectives},
      {"uneven_collectives", uneven_collectives},
      {"nonblocking_collectives", nonblocking_collectives},
      {"short_collectives", short_collectives},
      {"repeated_collectives", repeated_collectives},
      {"threads_with_communicators", threads_with_communicators},
      {"communicators", communicators},
      {"topologies", topologies},
      {"groups", groups},
      {"spawned_processes", spawned_processes},
      {"one_sided", one_sided},
      {"long_one_sided", long_one_sided},
      {"exposure", exposure},
      {"remote_atomics", remote_atomics},
      {"allocated_memory", allocated_memory},
      {"single_accumulates", single_accumulates},
      {"threads", threads},
  };
  int provided;
  MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(WORLD, &rank);
  MPI_Comm_size(WORLD, &size);
  program = words[0];
  if (count > 1 && !strcmp(words[1], "child")) {
    child();
    MPI_Finalize();
    return 0;
  }
  CHECK(size >= 2 && provided == MPI_THREAD_MULTIPLE);
  if (count > 1 && !strcmp(words[1], "endless"))
    endless();
  for (size_t i = 0; count > 1 && i < sizeof special / sizeof *special; i++)
    if (!strcmp(words[1], special[i].name)) {
      special[i].run();
      if (rank == 0)
        printf("%s passed in time\n", words[1]);
    }
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    if (!chosen(count, words, tests[i].name))
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
