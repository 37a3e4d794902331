/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How the components for memory find the heap, which the component for transfers has. */
#include "vicinity.h"

const vicinity_heap_t *vicinity_find_heap(void) {
  mca_btl_base_selected_module_t *selected;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t) {
    if (strcmp(selected->btl_component->btl_version.mca_component_name, "vicinity") != 0)
      continue;
    const vicinity_heap_t *found = ((vicinity_component_t *)selected->btl_component)->heap;
    return found != NULL && found->version == VICINITY_HEAP_VERSION ? found : NULL;
  }
  return NULL;
}
