/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How the components for memory find the heap, which the component for transfers has. */
#include "vicinity.h"

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

const vicinity_heap_t *vicinity_find_heap(void) {
  mca_btl_base_selected_module_t *selected = find();
  if (selected == NULL)
    return NULL;
  const vicinity_heap_t *found = ((vicinity_component_t *)selected->btl_component)->heap;
  return found != NULL && found->version == VICINITY_HEAP_VERSION ? found : NULL;
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
