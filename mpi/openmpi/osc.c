/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An Open MPI component for one-sided communication (osc), in front of osc/rdma, for windows whose memory is on the
 * heaps of the ranks' VMs: that of MPI_Win_allocate, which this component allocates there, and of MPI_Win_create
 * after MPI_Alloc_mem. osc/rdma makes such a window as for MPI_Win_create. If the memory of one rank is not on its
 * heap, osc/rdma does all, on all ranks.
 *
 * Then no access needs calls of MPI at the target: all ranks make osc/rdma's first access to each other, which reads
 * where the memory of a rank is, while they make the window; and osc_atomic.c has the accumulates.
 *
 * Interface: ompi/mca/osc/osc.h of Open MPI 4.1 and 5.0.
 */
#include "osc.h"
#include "version.h"

#include "ompi/communicator/communicator.h"
#include "opal/mca/base/mca_base_var.h"

static vicinity_window_t *windows;
static pthread_mutex_t windows_lock = PTHREAD_MUTEX_INITIALIZER;

static bool usable = true;

static int register_parameters(void) {
  usable = vicinity_version_fits("osc:vicinity");
  return usable ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE;
}

static int open_component(void) { return usable ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE; }

static int start(bool progress_threads, bool mpi_threads) {
  (void)progress_threads, (void)mpi_threads;
  return OPAL_SUCCESS;
}

static int stop(void) { return OPAL_SUCCESS; }

static const ompi_osc_base_component_t *rdma(void) {
  mca_base_component_list_item_t *item;
  OPAL_LIST_FOREACH(item, &ompi_osc_base_framework.framework_components, mca_base_component_list_item_t)
    if (!strcmp(item->cli_component->mca_component_name, "rdma"))
      return (const ompi_osc_base_component_t *)item->cli_component;
  return NULL;
}

/* All ranks find the same: they have one list of components, and the same peers. */
static int query(struct ompi_win_t *window, void **base, size_t size, int unit,
                 struct ompi_communicator_t *ranks, struct opal_info_t *info, int flavor) {
  if ((flavor != MPI_WIN_FLAVOR_ALLOCATE && flavor != MPI_WIN_FLAVOR_CREATE) || vicinity_find_heap() == NULL ||
      vicinity_find_transfers() == NULL || rdma() == NULL)
    return -1;
  int priority = rdma()->osc_query(window, base, size, unit, ranks, info, flavor);
  return priority < 0 ? -1 : priority + 1;
}

const vicinity_window_t *vicinity_find_window(const struct ompi_win_t *window) {
  pthread_mutex_lock(&windows_lock);
  const vicinity_window_t *found = windows;
  while (found != NULL && found->window != window)
    found = found->next;
  pthread_mutex_unlock(&windows_lock);
  return found;
}

/* Ends a window, and then its memory. */
static int free_window(struct ompi_win_t *window) {
  pthread_mutex_lock(&windows_lock);
  vicinity_window_t **place = &windows, *found;
  while (*place != NULL && (*place)->window != window)
    place = &(*place)->next;
  found = *place;
  if (found != NULL)
    *place = found->next;
  pthread_mutex_unlock(&windows_lock);
  if (found == NULL)
    return OPAL_ERR_BAD_PARAM;
  /* osc/rdma returns after all ranks have ended their accesses. */
  int result = found->rdma.osc_free(window);
  vicinity_atomics_stop(found);
  const vicinity_heap_t *heap = vicinity_find_heap();
  if (heap != NULL && found->memory != NULL)
    heap->free(found->memory);
  free(found);
  return result;
}

/* Whether osc/rdma takes the lock of MPI_Win_lock_all in the first access to a rank, and not at once. */
static bool locks_on_demand(void) {
  const int *mode = NULL;
  int place = mca_base_var_find("ompi", "osc", "rdma", "locking_mode");
  /* OMPI_OSC_RDMA_LOCKING_TWO_LEVEL, the default, is 0. */
  return place < 0 || mca_base_var_get_value(place, &mode, NULL, NULL) != OPAL_SUCCESS || *mode != 0;
}

/* Whether the program has promised that each accumulate has one element. */
static bool single_elements(struct opal_info_t *info) {
  bool value = false;
  int found = 0;
  opal_info_get_bool(info, "acc_single_intrinsic", &value, &found);
  return found && value && !locks_on_demand();
}

/* Has osc/rdma read where the memory of each rank is, which it does at its first access, while all ranks are in a
   call of MPI. A lock with MPI_MODE_NOCHECK takes nothing at the target. */
static int meet_all(const vicinity_window_t *made, struct ompi_win_t *window, struct ompi_communicator_t *ranks) {
  for (int rank = 0; rank < ompi_comm_size(ranks); rank++)
    if (made->rdma.osc_lock(MPI_LOCK_SHARED, rank, MPI_MODE_NOCHECK, window) == OMPI_SUCCESS)
      made->rdma.osc_unlock(rank, window);
  return PMPI_Barrier(ranks);
}

/* Has osc/rdma make a window of memory on the heaps. */
static int select_create(vicinity_window_t *made, struct ompi_win_t *window, void *memory, size_t size, int unit,
                         struct ompi_communicator_t *ranks, struct opal_info_t *info, int *model) {
  int result = rdma()->osc_select(window, &memory, size, unit, ranks, info, MPI_WIN_FLAVOR_CREATE, model);
  if (result != OPAL_SUCCESS)
    return result;
  /* The module is the window's own. */
  made->window = window;
  made->rdma = *window->w_osc_module;
  window->w_osc_module->osc_free = free_window;
  pthread_mutex_lock(&windows_lock);
  made->next = windows;
  windows = made;
  pthread_mutex_unlock(&windows_lock);
  result = meet_all(made, window, ranks);
  if (result == MPI_SUCCESS && single_elements(info))
    result = vicinity_atomics_start(made, window, memory, size, unit, ranks);
  return result;
}

static int select_window(struct ompi_win_t *window, void **base, size_t size, int unit,
                         struct ompi_communicator_t *ranks, struct opal_info_t *info, int flavor,
                         int *model) {
  const vicinity_heap_t *heap = vicinity_find_heap();
  bool allocates = flavor == MPI_WIN_FLAVOR_ALLOCATE;
  vicinity_window_t *made = calloc(1, sizeof *made);
  void *memory = allocates ? NULL : *base;
  if (made != NULL && size > 0 && allocates)
    memory = made->memory = vicinity_alloc_for_program(heap, size, 1);
  mx_heap_handle_t handle;
  int ready = made != NULL && (size == 0 || (memory != NULL && heap->has(memory, size, &handle))), all_ready = 0;
  int result = PMPI_Allreduce(&ready, &all_ready, 1, MPI_INT, MPI_MIN, ranks);
  if (result == MPI_SUCCESS && all_ready) {
    /* As the memory of osc/rdma is. */
    if (size > 0 && allocates)
      memset(memory, 0, size);
    *base = memory;
    result = select_create(made, window, memory, size, unit, ranks, info, model);
    /* After a failure, too, the window is in the list if osc/rdma has made it. */
    if (result == OPAL_SUCCESS || made->window != NULL)
      return result;
  }
  if (made != NULL && made->memory != NULL)
    heap->free(made->memory);
  free(made);
  return result == MPI_SUCCESS
             ? rdma()->osc_select(window, base, size, unit, ranks, info, flavor, model)
             : result;
}

__attribute__((visibility("default"))) extern ompi_osc_base_component_t mca_osc_vicinity_component;

ompi_osc_base_component_t mca_osc_vicinity_component = {
    .osc_version =
        {
            OMPI_OSC_BASE_VERSION_3_0_0,
            .mca_component_name = "vicinity",
            MCA_BASE_MAKE_VERSION(component, OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION, OPAL_RELEASE_VERSION),
            .mca_open_component = open_component,
            .mca_register_component_params = register_parameters,
        },
    .osc_data = {.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT},
    .osc_init = start,
    .osc_query = query,
    .osc_select = select_window,
    .osc_finalize = stop,
};
