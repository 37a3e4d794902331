/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An Open MPI component for one-sided communication (osc): MPI_Win_allocate with memory on the heaps of the
 * ranks' VMs. osc/rdma allocates such memory by itself, so this component allocates it, and has osc/rdma make
 * a window of it, as for MPI_Win_create. If one rank has no memory on its heap, osc/rdma does all, on all ranks.
 *
 * Interface: ompi/mca/osc/osc.h of Open MPI 4.1 and 5.0.
 */
#include "vicinity.h"
#include "version.h"

#include "ompi/mca/osc/base/base.h"
#include "ompi/mca/osc/osc.h"

/* A window of this component. */
typedef struct window {
  struct window *next;
  const struct ompi_win_t *window;
  void *memory;
  ompi_osc_base_module_free_fn_t free; /* of osc/rdma */
} window_t;

static window_t *windows;
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
  if (flavor != MPI_WIN_FLAVOR_ALLOCATE || vicinity_find_heap() == NULL || rdma() == NULL)
    return -1;
  int priority = rdma()->osc_query(window, base, size, unit, ranks, info, flavor);
  return priority < 0 ? -1 : priority + 1;
}

/* Ends a window, and then its memory. */
static int free_window(struct ompi_win_t *window) {
  pthread_mutex_lock(&windows_lock);
  window_t **place = &windows, *found;
  while (*place != NULL && (*place)->window != window)
    place = &(*place)->next;
  found = *place;
  if (found != NULL)
    *place = found->next;
  pthread_mutex_unlock(&windows_lock);
  if (found == NULL)
    return OPAL_ERR_BAD_PARAM;
  int result = found->free(window);
  const vicinity_heap_t *heap = vicinity_find_heap();
  if (heap != NULL && found->memory != NULL)
    heap->free(found->memory);
  free(found);
  return result;
}

/* Has osc/rdma make a window of the memory. */
static int select_create(window_t *made, struct ompi_win_t *window, size_t size, int unit,
                         struct ompi_communicator_t *ranks, struct opal_info_t *info, int *model) {
  void *memory = made->memory;
  int result = rdma()->osc_select(window, &memory, size, unit, ranks, info, MPI_WIN_FLAVOR_CREATE, model);
  if (result != OPAL_SUCCESS)
    return result;
  made->window = window;
  made->free = window->w_osc_module->osc_free;
  /* The module is the window's own. */
  window->w_osc_module->osc_free = free_window;
  pthread_mutex_lock(&windows_lock);
  made->next = windows;
  windows = made;
  pthread_mutex_unlock(&windows_lock);
  return OPAL_SUCCESS;
}

static int select_window(struct ompi_win_t *window, void **base, size_t size, int unit,
                         struct ompi_communicator_t *ranks, struct opal_info_t *info, int flavor,
                         int *model) {
  const vicinity_heap_t *heap = vicinity_find_heap();
  window_t *made = calloc(1, sizeof *made);
  if (made != NULL && size > 0)
    made->memory = heap->alloc(size, 1);
  int ready = made != NULL && (size == 0 || made->memory != NULL), all_ready = 0;
  int result = PMPI_Allreduce(&ready, &all_ready, 1, MPI_INT, MPI_MIN, ranks);
  if (result == MPI_SUCCESS && all_ready) {
    /* As the memory of osc/rdma is. */
    if (size > 0)
      memset(made->memory, 0, size);
    *base = made->memory;
    result = select_create(made, window, size, unit, ranks, info, model);
    if (result == OPAL_SUCCESS)
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
