/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How the components for memory find the heap, which the component for transfers has. Where the PML is in use, it has the heap: it reaches peers from
   MPI_Init on, and the component for transfers from the first window on. */
#include "pml.h"
#include "vicinity.h"

/* Processes of Open MPI that do not use MPI have no PML. */
#pragma weak ompi_pml_base_framework

static mca_btl_base_selected_module_t *find(void) {
  mca_btl_base_selected_module_t *selected;
  /* A PML of a network, such as UCX's, needs no BTL. */
  if (!mca_base_framework_is_open(&opal_btl_base_framework))
    return NULL;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    if (!strcmp(selected->btl_component->btl_version.mca_component_name, "vicinity"))
      return selected;
  return NULL;
}

static const vicinity_heap_t *of_this_version(const vicinity_heap_t *heap) {
  return heap != NULL && heap->version == VICINITY_HEAP_VERSION ? heap : NULL;
}

const vicinity_heap_t *vicinity_find_heap_of_pml(void) {
  mca_base_component_list_item_t *item;
  if (&ompi_pml_base_framework == NULL || !mca_base_framework_is_open(&ompi_pml_base_framework))
    return NULL;
  OPAL_LIST_FOREACH(item, &ompi_pml_base_framework.framework_components, mca_base_component_list_item_t)
    if (!strcmp(item->cli_component->mca_component_name, "vicinity"))
      return of_this_version(((const vicinity_pml_component_t *)item->cli_component)->heap);
  return NULL;
}

const vicinity_heap_t *vicinity_find_heap(void) {
  const vicinity_heap_t *heap = vicinity_find_heap_of_pml();
  if (heap != NULL)
    return heap;
  mca_btl_base_selected_module_t *selected = find();
  return selected == NULL ? NULL : of_this_version(((vicinity_component_t *)selected->btl_component)->heap);
}

mca_btl_base_module_t *vicinity_find_transfers(void) {
  mca_btl_base_selected_module_t *selected = find();
  return selected == NULL ? NULL : selected->btl_module;
}

void *vicinity_alloc_for_program(const vicinity_heap_t *heap, size_t length, size_t alignment) {
  void *memory = heap->alloc(length, alignment);
  if (memory == NULL)
    opal_output_verbose(10, opal_btl_base_framework.framework_output,
                        "btl:vicinity: %zu bytes that MPI allocates are ordinary memory: there is no heap that peers "
                        "can access, or it has no room",
                        length);
  return memory;
}
