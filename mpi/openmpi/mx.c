/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Loads libmyriexpress.so. A machine without the library then has a component that steps aside,
   where a linked component would make Open MPI print an error for each process. */
#include "plane.h"

#include <dlfcn.h>

vicinity_mx_t vicinity_mx;

bool vicinity_mx_load(const char *file, char *reason, size_t size) {
  static const struct {
    const char *name;
    size_t offset;
  } symbols[] = {
#define SYMBOL(name, member) {name, offsetof(vicinity_mx_t, member)}
      SYMBOL("mx__init_api", init_api),
      SYMBOL("mx_set_error_handler", set_error_handler),
      SYMBOL("mx_strerror", strerror),
      SYMBOL("mx_strstatus", strstatus),
      SYMBOL("mx_open_endpoint", open_endpoint),
      SYMBOL("mx_close_endpoint", close_endpoint),
      SYMBOL("mx_get_endpoint_addr", get_endpoint_addr),
      SYMBOL("mx_decompose_endpoint_addr", decompose_endpoint_addr),
      SYMBOL("mx_iconnect", iconnect),
      SYMBOL("mx_cancel", cancel),
      SYMBOL("mx_isend", isend),
      SYMBOL("mx_issend", issend),
      SYMBOL("mx_irecv", irecv),
      SYMBOL("mx_test", test),
      SYMBOL("mx_wait", wait),
      SYMBOL("mx_ipeek", ipeek),
      SYMBOL("mx_needs_uplink", needs_uplink),
      SYMBOL("mx_is_on_other_host", is_on_other_host),
      SYMBOL("mx_is_reached_by_datagrams", is_reached_by_datagrams),
      SYMBOL("mx_inject", inject),
      SYMBOL("mx_inject_words", inject_words),
      SYMBOL("mx_isend_with_credit", isend_with_credit),
      SYMBOL("mx_use_credit", use_credit),
      SYMBOL("mx_next_unexpected", next_unexpected),
      SYMBOL("mx_keep_unexpected", keep_unexpected),
      SYMBOL("mx_heap_alloc", heap_alloc),
      SYMBOL("mx_heap_free", heap_free),
      SYMBOL("mx_heap_handle", heap_handle),
      SYMBOL("mx_heap_put", heap_put),
      SYMBOL("mx_heap_get", heap_get),
      SYMBOL("mx_heap_look", heap_look),
      SYMBOL("mx_heap_fetch", heap_fetch),
      SYMBOL("mx_heap_compare_and_swap", heap_compare_and_swap),
      SYMBOL("MX_ERRORS_RETURN", errors_return),
#undef SYMBOL
  };
  /* The library stays loaded: its threads and thread-local data cannot be unloaded safely. */
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == NULL) {
    snprintf(reason, size, "%s", dlerror());
    return false;
  }
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *found = dlsym(library, symbols[i].name);
    if (found == NULL) {
      snprintf(reason, size, "%s has no %s", file, symbols[i].name);
      return false;
    }
    memcpy((char *)&vicinity_mx + symbols[i].offset, &found, sizeof found);
  }
  return true;
}
