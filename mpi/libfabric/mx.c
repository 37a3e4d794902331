/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Loads libmyriexpress.so. A machine without the library then has a provider that offers nothing,
   where a linked provider could not be loaded. */
#include "vicinity.h"

#include <dlfcn.h>
#include <stdio.h>

vicinity_mx_t mx;

static bool load(const char *file, char *reason, size_t size) {
  static const struct {
    const char *name;
    size_t offset;
  } symbols[] = {
#define SYMBOL(name, member) {name, offsetof(vicinity_mx_t, member)}
      SYMBOL("mx__init_api", init_api),
      SYMBOL("mx_set_error_handler", set_error_handler),
      SYMBOL("mx_strerror", strerror),
      SYMBOL("mx_strstatus", strstatus),
      SYMBOL("mx_board_number_to_nic_id", board_number_to_nic_id),
      SYMBOL("mx_open_endpoint", open_endpoint),
      SYMBOL("mx_close_endpoint", close_endpoint),
      SYMBOL("mx_wakeup", wakeup),
      SYMBOL("mx_get_endpoint_addr", get_endpoint_addr),
      SYMBOL("mx_decompose_endpoint_addr", decompose_endpoint_addr),
      SYMBOL("mx_register_unexp_handler", register_unexp_handler),
      SYMBOL("mx_iconnect", iconnect),
      SYMBOL("mx_isend", isend),
      SYMBOL("mx_issend", issend),
      SYMBOL("mx_irecv", irecv),
      SYMBOL("mx_cancel", cancel),
      SYMBOL("mx_test", test),
      SYMBOL("mx_test_any", test_any),
      SYMBOL("mx_peek", peek),
      SYMBOL("mx_iprobe", iprobe),
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
    memcpy((char *)&mx + symbols[i].offset, &found, sizeof found);
  }
  return true;
}

bool mx_ready(char *reason, size_t size) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bool ready;
  const char *file = getenv("FI_VICINITY_LIBRARY");
  pthread_mutex_lock(&lock);
  if (!ready && load(file == NULL ? "libmyriexpress.so" : file, reason, size)) {
    uint64_t nic;
    mx.set_error_handler(*mx.errors_return);
    mx_return_t code = mx.init_api(MX_API);
    /* The program itself may use the library, too. */
    if (code == MX_SUCCESS || code == MX_ALREADY_INITIALIZED)
      code = mx.board_number_to_nic_id(0, &nic);
    ready = code == MX_SUCCESS;
    if (!ready)
      snprintf(reason, size, "%s", mx.strerror(code));
  }
  pthread_mutex_unlock(&lock);
  return ready;
}
