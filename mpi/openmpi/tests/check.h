/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the tests share: a check that ends the job, and bytes that can be recognised. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORLD MPI_COMM_WORLD

extern int rank, size;
extern char *program; /* the path of this program */

#define CHECK(what)                                                                                \
  do {                                                                                             \
    if (!(what)) {                                                                                 \
      fprintf(stderr, "%s:%d: rank %d: %s is false\n", __FILE__, __LINE__, rank, #what);           \
      MPI_Abort(WORLD, 1);                                                                         \
    }                                                                                              \
  } while (0)

static inline unsigned char byte_at(size_t place, unsigned seed) {
  return (unsigned char)(place * 31 + (place >> 8) + seed * 7 + 1);
}

static inline void fill(unsigned char *bytes, size_t length, unsigned seed) {
  for (size_t i = 0; i < length; i++)
    bytes[i] = byte_at(i, seed);
}

static inline int is_filled(const unsigned char *bytes, size_t length, unsigned seed) {
  for (size_t i = 0; i < length; i++)
    if (bytes[i] != byte_at(i, seed))
      return 0;
  return 1;
}

/* point_to_point.c */
void lengths(void);
void long_messages(void);
void order_and_wildcards(void);
void probes(void);
void matched_probes(void);
void cancels(void);
void modes(void);
void persistent(void);
void many_unexpected(void);
void completion(void);
void truncation(void);
void special_peers(void);

/* requests.c */
void persistent_modes(void);
void freed_requests(void);
void sends_to_self(void);
void attached_buffer(void);
void buffered(void);
void complete_at_once(void);

/* datatypes.c */
void derived_types(void);
void indexed_types(void);
void packing(void);

/* collective.c */
void collectives(void);
void large_collectives(void);
void uneven_collectives(void);
void nonblocking_collectives(void);

/* short_collectives.c */
void short_collectives(void);
void repeated_collectives(void);
void threads_with_communicators(void);

/* communicators.c */
void communicators(void);
void topologies(void);
void groups(void);
void spawned_processes(void);
void child(void);
void threads(void);

/* one_sided.c */
void one_sided(void);
void long_one_sided(void);
void exposure(void);
void remote_atomics(void);
void allocated_memory(void);
void single_accumulates(void);
void idle_target(void);
void idle_counter(void);

#endif
