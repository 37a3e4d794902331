/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An Open MPI component for collective operations (coll), for communicators with ranks in several VMs of a trust
 * group. It has a module for each communicator whose ranks may be such ones, in front of Open MPI's own modules, which
 * keep long operations, and all operations of a communicator whose ranks do not reach each other's heaps.
 *
 * Interface: ompi/mca/coll/coll.h of Open MPI 4.1 and 5.0.
 */
#include "coll.h"
#include "version.h"
#include "vicinity.h"

#include "ompi/mca/coll/base/base.h"
#include "ompi/proc/proc.h"

/* Above those of Open MPI's own components for messages: `tuned` has 30, `han` of 5.0 35. */
enum { PRIORITY = 60 };

static bool usable = true;

static int register_parameters(void) {
  usable = vicinity_version_fits("coll:vicinity");
  return usable ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE;
}

static int open_component(void) { return usable ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE; }

static int start(bool progress_threads, bool mpi_threads) {
  (void)progress_threads, (void)mpi_threads;
  return OMPI_SUCCESS;
}

/* Whether each rank has this package and a message plane, so that all have this component, and they are in several VMs: Open MPI's own
   shared memory serves those of one. It is what the ranks have published, so all find the same. Whether they reach each other is not
   the same for all, and is decided with the first operation (vicinity_coll_fits). */
static bool are_in_several_members(struct ompi_communicator_t *comm) {
  const vicinity_heap_t *heap = vicinity_find_heap();
  uint64_t first = 0, member;
  bool several = false;
  for (int rank = 0; rank < ompi_comm_size(comm); rank++) {
    if (heap == NULL || !heap->member(&ompi_comm_peer_lookup(comm, rank)->super, &member))
      return false;
    if (rank == 0)
      first = member;
    several = several || member != first;
  }
  return several;
}

/* The same of MPI_COMM_WORLD, found out once: if not, no communicator of the job needs a look at its ranks. */
static bool is_job_in_several_members(void) {
  static enum { UNKNOWN, NO, YES } found;
  struct ompi_communicator_t *world = &ompi_mpi_comm_world.comm;
  /* A program with sessions alone has no MPI_COMM_WORLD. */
  if (found == UNKNOWN)
    found = world->c_local_group != NULL && are_in_several_members(world) ? YES : NO;
  return found == YES;
}

static bool is_own_job(struct ompi_communicator_t *comm) {
  for (int rank = 0; rank < ompi_comm_size(comm); rank++)
    if (ompi_comm_peer_lookup(comm, rank)->super.proc_name.jobid != OMPI_PROC_MY_NAME->jobid)
      return false;
  return true;
}

/* Takes an operation over from the module that had it. */
#define TAKE(operation)                                                                                                \
  do {                                                                                                                 \
    coll->operation.call = comm->c_coll->coll_##operation;                                                             \
    coll->operation.module = comm->c_coll->coll_##operation##_module;                                                  \
    if (coll->operation.call == NULL || coll->operation.module == NULL) {                                              \
      coll->operation.module = NULL;                                                                                   \
      return OMPI_ERR_NOT_FOUND;                                                                                       \
    }                                                                                                                  \
    OBJ_RETAIN(coll->operation.module);                                                                                \
  } while (0)

static int enable(mca_coll_base_module_t *module, struct ompi_communicator_t *comm) {
  vicinity_coll_t *coll = (vicinity_coll_t *)module;
  TAKE(allgather);
  TAKE(allreduce);
  TAKE(alltoall);
  TAKE(barrier);
  coll->rank = ompi_comm_rank(comm);
  coll->size = ompi_comm_size(comm);
  coll->ranks = calloc((size_t)coll->size, sizeof *coll->ranks);
  return coll->ranks == NULL ? OMPI_ERR_OUT_OF_RESOURCE : OMPI_SUCCESS;
}

static void construct(vicinity_coll_t *coll) {
  memset((char *)coll + sizeof coll->super, 0, sizeof *coll - sizeof coll->super);
}

#define GIVE_BACK(operation)                                                                                           \
  do {                                                                                                                 \
    if (coll->operation.module != NULL)                                                                                \
      OBJ_RELEASE(coll->operation.module);                                                                             \
  } while (0)

static void destruct(vicinity_coll_t *coll) {
  vicinity_coll_stop(coll);
  free(coll->ranks);
  GIVE_BACK(allgather);
  GIVE_BACK(allreduce);
  GIVE_BACK(alltoall);
  GIVE_BACK(barrier);
}

OBJ_CLASS_DECLARATION(vicinity_coll_t);
OBJ_CLASS_INSTANCE(vicinity_coll_t, mca_coll_base_module_t, construct, destruct);

static mca_coll_base_module_t *query(struct ompi_communicator_t *comm, int *priority) {
  int size = ompi_comm_size(comm);
  if (OMPI_COMM_IS_INTER(comm) || size < 2 || size > VICINITY_COLL_RANKS || !is_job_in_several_members() ||
      !is_own_job(comm) || !are_in_several_members(comm))
    return NULL;
  vicinity_coll_t *coll = OBJ_NEW(vicinity_coll_t);
  if (coll == NULL)
    return NULL;
  coll->super.coll_module_enable = enable;
  coll->super.coll_allgather = vicinity_allgather;
  coll->super.coll_allreduce = vicinity_allreduce;
  coll->super.coll_alltoall = vicinity_alltoall;
  coll->super.coll_barrier = vicinity_barrier;
  *priority = PRIORITY;
  return &coll->super;
}

__attribute__((visibility("default"))) extern mca_coll_base_component_t mca_coll_vicinity_component;

mca_coll_base_component_t mca_coll_vicinity_component = {
    .collm_version =
        {
            VICINITY_COLL_VERSION,
            .mca_component_name = "vicinity",
            MCA_BASE_MAKE_VERSION(component, OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION, OPAL_RELEASE_VERSION),
            .mca_open_component = open_component,
            .mca_register_component_params = register_parameters,
        },
    .collm_data = {.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT},
    .collm_init_query = start,
    .collm_comm_query = query,
};
