/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Counters, and event queues, which have no events: all calls of this provider are synchronous. */
#include "engine.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

long long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

static void progress_all(counter_t *counter) {
  pthread_mutex_lock(&counter->domain->lock);
  for (size_t i = 0; i < counter->endpoints.count; i++)
    progress(counter->endpoints.list[i]);
  pthread_mutex_unlock(&counter->domain->lock);
}

static uint64_t load(const uint64_t *value) { return __atomic_load_n(value, __ATOMIC_ACQUIRE); }

static uint64_t read_counter(struct fid_cntr *fid) {
  counter_t *counter = (counter_t *)fid;
  progress_all(counter);
  return load(&counter->value);
}

static uint64_t read_errors(struct fid_cntr *fid) {
  counter_t *counter = (counter_t *)fid;
  progress_all(counter);
  return load(&counter->errors);
}

static int add(struct fid_cntr *fid, uint64_t value) {
  __atomic_add_fetch(&((counter_t *)fid)->value, value, __ATOMIC_ACQ_REL);
  return 0;
}

static int add_errors(struct fid_cntr *fid, uint64_t value) {
  __atomic_add_fetch(&((counter_t *)fid)->errors, value, __ATOMIC_ACQ_REL);
  return 0;
}

static int set(struct fid_cntr *fid, uint64_t value) {
  __atomic_store_n(&((counter_t *)fid)->value, value, __ATOMIC_RELEASE);
  return 0;
}

static int set_errors(struct fid_cntr *fid, uint64_t value) {
  __atomic_store_n(&((counter_t *)fid)->errors, value, __ATOMIC_RELEASE);
  return 0;
}

static int wait_counter(struct fid_cntr *fid, uint64_t threshold, int timeout) {
  counter_t *counter = (counter_t *)fid;
  long long end = now() + timeout;
  uint64_t errors = load(&counter->errors);
  for (;;) {
    progress_all(counter);
    if (load(&counter->value) >= threshold)
      return 0;
    if (load(&counter->errors) != errors)
      return -FI_EAVAIL;
    if (timeout >= 0 && now() >= end)
      return -FI_ETIMEDOUT;
    sched_yield();
  }
}

static int close_counter(struct fid *fid) {
  counter_t *counter = (counter_t *)fid;
  if (__atomic_load_n(&counter->users, __ATOMIC_ACQUIRE) > 0)
    return -FI_EBUSY;
  __atomic_sub_fetch(&counter->domain->users, 1, __ATOMIC_ACQ_REL);
  free(counter->endpoints.list);
  free(counter);
  return 0;
}

static struct fi_ops counter_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_counter,
    .bind = no_bind,
    .control = no_control,
    .ops_open = no_ops,
};

static struct fi_ops_cntr counter_ops = {
    .size = sizeof(struct fi_ops_cntr),
    .read = read_counter,
    .readerr = read_errors,
    .add = add,
    .set = set,
    .wait = wait_counter,
    .adderr = add_errors,
    .seterr = set_errors,
};

int open_counter(struct fid_domain *domain, struct fi_cntr_attr *attributes,
                 struct fid_cntr **result, void *context) {
  if (attributes->events != FI_CNTR_EVENTS_COMP || attributes->wait_obj == FI_WAIT_FD ||
      attributes->wait_obj == FI_WAIT_SET || attributes->wait_obj == FI_WAIT_MUTEX_COND)
    return -FI_ENOSYS;
  counter_t *counter = calloc(1, sizeof *counter);
  if (counter == NULL)
    return -FI_ENOMEM;
  counter->fid.fid.fclass = FI_CLASS_CNTR;
  counter->fid.fid.context = context;
  counter->fid.fid.ops = &counter_fid_ops;
  counter->fid.ops = &counter_ops;
  counter->domain = (domain_t *)domain;
  __atomic_add_fetch(&counter->domain->users, 1, __ATOMIC_ACQ_REL);
  *result = &counter->fid;
  return 0;
}

static ssize_t read_events(struct fid_eq *eq, uint32_t *event, void *to, size_t length,
                           uint64_t flags) {
  (void)eq, (void)event, (void)to, (void)length, (void)flags;
  return -FI_EAGAIN;
}

static ssize_t read_event_error(struct fid_eq *eq, struct fi_eq_err_entry *entry, uint64_t flags) {
  (void)eq, (void)entry, (void)flags;
  return -FI_EAGAIN;
}

static ssize_t no_write(struct fid_eq *eq, uint32_t event, const void *from, size_t length,
                        uint64_t flags) {
  (void)eq, (void)event, (void)from, (void)length, (void)flags;
  return -FI_ENOSYS;
}

static ssize_t wait_events(struct fid_eq *eq, uint32_t *event, void *to, size_t length, int timeout,
                           uint64_t flags) {
  (void)eq, (void)event, (void)to, (void)length, (void)flags;
  if (timeout < 0)
    return -FI_ENOSYS;
  usleep((useconds_t)timeout * 1000);
  return -FI_EAGAIN;
}

static const char *event_error_text(struct fid_eq *eq, int error, const void *data, char *text,
                                    size_t size) {
  (void)eq, (void)data, (void)text, (void)size;
  return strerror(error);
}

static int close_event_queue(struct fid *fid) {
  free(fid);
  return 0;
}

static struct fi_ops event_queue_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_event_queue,
    .bind = no_bind,
    .control = no_control,
    .ops_open = no_ops,
};

static struct fi_ops_eq event_queue_ops = {
    .size = sizeof(struct fi_ops_eq),
    .read = read_events,
    .readerr = read_event_error,
    .write = no_write,
    .sread = wait_events,
    .strerror = event_error_text,
};

int open_event_queue(struct fid_fabric *fabric, struct fi_eq_attr *attributes, struct fid_eq **eq,
                     void *context) {
  (void)fabric, (void)attributes;
  struct fid_eq *queue = calloc(1, sizeof *queue);
  if (queue == NULL)
    return -FI_ENOMEM;
  queue->fid.fclass = FI_CLASS_EQ;
  queue->fid.context = context;
  queue->fid.ops = &event_queue_fid_ops;
  queue->ops = &event_queue_ops;
  *eq = queue;
  return 0;
}
