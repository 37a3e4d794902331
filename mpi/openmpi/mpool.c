/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An Open MPI memory pool (mpool): MPI_Alloc_mem gets memory on the heap of this VM or host, which the peers
 * of its trust group can access. The component for transfers, btl/vicinity, has the heap; without it, and
 * where there is no heap or no room, Open MPI uses its default pool.
 *
 * Interface: opal/mca/mpool/mpool.h of Open MPI 4.1 and 5.0.
 */
#include "vicinity.h"
#include "version.h"

#include "opal/mca/mpool/base/base.h"
#include "opal/mca/mpool/mpool.h"

/* Above the default of Open MPI's parameter mpool_base_default_priority, 50. */
enum { PRIORITY = 60 };

static bool usable = true;

static int register_parameters(void) {
  usable = vicinity_version_fits("mpool:vicinity");
  return usable ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE;
}

static int open_component(void) { return usable ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE; }

static void *pool_alloc(mca_mpool_base_module_t *pool, size_t size, size_t align, uint32_t flags) {
  const vicinity_heap_t *found = vicinity_find_heap();
  (void)pool, (void)flags;
  return found == NULL ? NULL : vicinity_alloc_for_program(found, size, align);
}

static void pool_free(mca_mpool_base_module_t *pool, void *memory) {
  const vicinity_heap_t *found = vicinity_find_heap();
  (void)pool;
  if (found != NULL)
    found->free(memory);
}

/* A block cannot grow. Open MPI does not call this for memory of MPI_Alloc_mem. */
static void *pool_realloc(mca_mpool_base_module_t *pool, void *memory, size_t size) {
  (void)pool, (void)memory, (void)size;
  return NULL;
}

static void pool_finalize(mca_mpool_base_module_t *pool) { (void)pool; }

static mca_mpool_base_module_t module;

/* Open MPI asks each pool at each MPI_Alloc_mem, with the hints of the info key mpool_hints or NULL. */
static int query(const char *hints, int *priority, mca_mpool_base_module_t **chosen) {
  const char *wanted = hints == NULL ? NULL : strstr(hints, "mpool=");
  if (vicinity_find_heap() == NULL || (wanted != NULL && strncmp(wanted, "mpool=vicinity", 14) != 0))
    return OPAL_ERR_NOT_AVAILABLE;
  *priority = wanted == NULL ? PRIORITY : 100;
  *chosen = &module;
  return OPAL_SUCCESS;
}

__attribute__((visibility("default"))) extern mca_mpool_base_component_t mca_mpool_vicinity_component;

mca_mpool_base_component_t mca_mpool_vicinity_component = {
    .mpool_version =
        {
            VICINITY_MPOOL_VERSION,
            .mca_component_name = "vicinity",
            MCA_BASE_MAKE_VERSION(component, OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION, OPAL_RELEASE_VERSION),
            .mca_open_component = open_component,
            .mca_register_component_params = register_parameters,
        },
    .mpool_data = {.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT},
    .mpool_query = query,
};

static mca_mpool_base_module_t module = {
    .mpool_component = &mca_mpool_vicinity_component,
    .mpool_alloc = pool_alloc,
    .mpool_realloc = pool_realloc,
    .mpool_free = pool_free,
    .mpool_finalize = pool_finalize,
    .flags = MCA_MPOOL_FLAGS_MPI_ALLOC_MEM,
};
