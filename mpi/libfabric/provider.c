/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The provider and the fabric: what libfabric finds in the shared object. */
#include "vicinity.h"

#include <stdarg.h>
#include <stdio.h>

/* Resolved by the libfabric that loads the provider. It may be one that is not visible to others;
   then the provider logs nothing. */
#pragma weak fi_log
#pragma weak fi_log_enabled

void say(enum fi_log_level level, enum fi_log_subsys part, const char *format, ...) {
  char text[512];
  va_list arguments;
  int saved = errno;
  if (fi_log == NULL || fi_log_enabled == NULL || !fi_log_enabled(&provider, level, part))
    return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fi_log(&provider, level, part, "vicinity", 0, "%s\n", text);
  errno = saved;
}

int no_bind(struct fid *fid, struct fid *other, uint64_t flags) {
  (void)fid, (void)other, (void)flags;
  return -FI_ENOSYS;
}

int no_control(struct fid *fid, int command, void *argument) {
  (void)fid, (void)command, (void)argument;
  return -FI_ENOSYS;
}

int no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context) {
  (void)fid, (void)name, (void)flags, (void)ops, (void)context;
  return -FI_ENOSYS;
}

static int close_fabric(struct fid *fid) {
  fabric_t *fabric = (fabric_t *)fid;
  if (__atomic_load_n(&fabric->users, __ATOMIC_ACQUIRE) > 0)
    return -FI_EBUSY;
  free(fabric);
  return 0;
}

static int no_passive_endpoint(struct fid_fabric *fabric, struct fi_info *info,
                               struct fid_pep **endpoint, void *context) {
  (void)fabric, (void)info, (void)endpoint, (void)context;
  return -FI_ENOSYS;
}

static int no_wait_set(struct fid_fabric *fabric, struct fi_wait_attr *attributes,
                       struct fid_wait **set) {
  (void)fabric, (void)attributes, (void)set;
  return -FI_ENOSYS;
}

static int no_trywait(struct fid_fabric *fabric, struct fid **fids, int count) {
  (void)fabric, (void)fids, (void)count;
  return -FI_ENOSYS;
}

static struct fi_ops fabric_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_fabric,
    .bind = no_bind,
    .control = no_control,
    .ops_open = no_ops,
};

static struct fi_ops_fabric fabric_ops = {
    .size = sizeof(struct fi_ops_fabric),
    .domain = open_domain,
    .passive_ep = no_passive_endpoint,
    .eq_open = open_event_queue,
    .wait_open = no_wait_set,
    .trywait = no_trywait,
};

int open_fabric(struct fi_fabric_attr *attributes, struct fid_fabric **result, void *context) {
  if (attributes->name != NULL && strcmp(attributes->name, provider.name))
    return -FI_ENODATA;
  fabric_t *fabric = calloc(1, sizeof *fabric);
  if (fabric == NULL)
    return -FI_ENOMEM;
  fabric->fid.fid.fclass = FI_CLASS_FABRIC;
  fabric->fid.fid.context = context;
  fabric->fid.fid.ops = &fabric_fid_ops;
  fabric->fid.ops = &fabric_ops;
  fabric->fid.api_version = attributes->api_version;
  *result = &fabric->fid;
  return 0;
}

static void cleanup(void) {}

struct fi_provider provider = {
    .version = FI_VERSION(1, 0),
    /* libfabric offers a provider only to programs that ask for no later interface. The structures
       of 2.x begin with those of 1.x, so the newest version that was tested is announced. */
    .fi_version = FI_VERSION(2, 5),
    .name = "vicinity",
    .getinfo = get_info,
    .fabric = open_fabric,
    .cleanup = cleanup,
};

FI_EXT_INI { return &provider; }
