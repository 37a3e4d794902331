/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Completion queues. */
#include "engine.h"

#include <stdio.h>
#include <unistd.h>

/* Milliseconds that a thread sleeps in one of several endpoints before it looks at the others. */
#define SLICE 1

static bool grow(queue_t *queue) {
  size_t capacity = queue->capacity * 2;
  event_t *ring = malloc(capacity * sizeof *ring);
  if (ring == NULL)
    return false;
  for (size_t i = 0; i < queue->count; i++)
    ring[i] = queue->ring[(queue->head + i) & (queue->capacity - 1)];
  free(queue->ring);
  queue->ring = ring;
  queue->capacity = capacity;
  queue->head = 0;
  return true;
}

/* The program's operations limit the length: progress stops at `limit`, see progress(). */
void queue_add(queue_t *queue, const event_t *event) {
  if (queue->count == queue->capacity && !grow(queue)) {
    queue->overrun = true;
    return;
  }
  queue->ring[(queue->head + queue->count++) & (queue->capacity - 1)] = *event;
}

static event_t *first(queue_t *queue) {
  return queue->count == 0 ? NULL : &queue->ring[queue->head];
}

static void drop_first(queue_t *queue) {
  queue->head = (queue->head + 1) & (queue->capacity - 1);
  queue->count--;
}

/* Writes an event in the format of the queue, and returns where the next one goes. */
static char *write_event(const queue_t *queue, const event_t *event, char *to) {
  struct fi_cq_tagged_entry entry = {
      .op_context = event->context,
      .flags = event->flags,
      .len = event->length,
      .buf = event->buffer,
      .data = event->data,
      .tag = event->tag,
  };
  /* The shorter formats are the beginning of this one. */
  size_t size = sizeof(struct fi_cq_entry);
  if (queue->format == FI_CQ_FORMAT_MSG)
    size = sizeof(struct fi_cq_msg_entry);
  else if (queue->format == FI_CQ_FORMAT_DATA)
    size = sizeof(struct fi_cq_data_entry);
  else if (queue->format == FI_CQ_FORMAT_TAGGED)
    size = sizeof entry;
  memcpy(to, &entry, size);
  return to + size;
}

static void progress_all(queue_t *queue) {
  for (size_t i = 0; i < queue->endpoints.count; i++)
    progress(queue->endpoints.list[i]);
}

/* Takes completions; the lock is held. */
static ssize_t take(queue_t *queue, void *to, size_t count, fi_addr_t *sources) {
  size_t taken = 0;
  char *next = to;
  if (queue->overrun)
    return -FI_EOVERRUN;
  while (taken < count && queue->count > 0 && first(queue)->error == 0) {
    next = write_event(queue, first(queue), next);
    if (sources != NULL)
      sources[taken] = first(queue)->source;
    drop_first(queue);
    taken++;
  }
  if (taken > 0)
    return (ssize_t)taken;
  return queue->count > 0 ? -FI_EAVAIL : -FI_EAGAIN;
}

static ssize_t read_from(struct fid_cq *fid, void *to, size_t count, fi_addr_t *sources) {
  queue_t *queue = (queue_t *)fid;
  pthread_mutex_lock(&queue->domain->lock);
  if (queue->count == 0 || count == 0)
    progress_all(queue);
  ssize_t result = count == 0 ? -FI_EAGAIN : take(queue, to, count, sources);
  if (count == 0 && queue->count > 0)
    result = first(queue)->error == 0 ? 0 : -FI_EAVAIL;
  pthread_mutex_unlock(&queue->domain->lock);
  return result;
}

static ssize_t read_queue(struct fid_cq *fid, void *to, size_t count) {
  return read_from(fid, to, count, NULL);
}

static ssize_t read_error(struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags) {
  queue_t *queue = (queue_t *)fid;
  (void)flags;
  pthread_mutex_lock(&queue->domain->lock);
  event_t *event = first(queue);
  bool found = event != NULL && event->error != 0;
  if (found) {
    entry->op_context = event->context;
    entry->flags = event->flags;
    entry->len = event->length;
    entry->buf = event->buffer;
    entry->data = event->data;
    entry->tag = event->tag;
    entry->olen = event->excess;
    entry->err = event->error;
    entry->prov_errno = event->error;
    if (queue->domain->api >= FI_VERSION(1, 5))
      entry->err_data_size = 0;
    else
      entry->err_data = NULL;
    drop_first(queue);
  }
  pthread_mutex_unlock(&queue->domain->lock);
  return found ? 1 : -FI_EAGAIN;
}

/* Sleeps until a message arrives or the time is over. The thread that handles it may be this one.
 */
static void sleep_for(queue_t *queue, long long left) {
  uint32_t found;
  mx_request_t request;
  if (queue->endpoints.count > 1 && (left < 0 || left > SLICE))
    left = SLICE;
  if (queue->endpoints.count == 0)
    usleep(SLICE * 1000);
  else
    mx.peek(queue->endpoints.list[0]->mx, left < 0 ? MX_INFINITE : (uint32_t)left, &request,
            &found);
}

static ssize_t wait_from(struct fid_cq *fid, void *to, size_t count, fi_addr_t *sources,
                         const void *condition, int timeout) {
  queue_t *queue = (queue_t *)fid;
  long long end = now() + timeout;
  (void)condition;
  if (!queue->waits)
    return -FI_EINVAL;
  for (;;) {
    ssize_t result = read_from(fid, to, count, sources);
    if (result != -FI_EAGAIN)
      return result;
    long long left = timeout < 0 ? -1 : end - now();
    if (__atomic_exchange_n(&queue->signaled, false, __ATOMIC_ACQ_REL) ||
        (timeout >= 0 && left <= 0))
      return -FI_EAGAIN;
    sleep_for(queue, left);
  }
}

static ssize_t wait_queue(struct fid_cq *fid, void *to, size_t count, const void *condition,
                          int timeout) {
  return wait_from(fid, to, count, NULL, condition, timeout);
}

static int signal_queue(struct fid_cq *fid) {
  queue_t *queue = (queue_t *)fid;
  __atomic_store_n(&queue->signaled, true, __ATOMIC_RELEASE);
  for (size_t i = 0; i < queue->endpoints.count; i++)
    mx.wakeup(queue->endpoints.list[i]->mx);
  return 0;
}

static const char *error_text(struct fid_cq *fid, int error, const void *data, char *text,
                              size_t size) {
  (void)fid, (void)data;
  const char *message = error == FI_ETRUNC      ? "the message is longer than the receive"
                        : error == FI_ENOMSG    ? "no message matches"
                        : error == FI_ECANCELED ? "the operation was cancelled"
                        : error == FI_EACCES    ? "the peer has no such memory region"
                                                : strerror(error);
  if (text != NULL && size > 0)
    snprintf(text, size, "%s", message);
  return message;
}

static int close_queue(struct fid *fid) {
  queue_t *queue = (queue_t *)fid;
  if (__atomic_load_n(&queue->users, __ATOMIC_ACQUIRE) > 0)
    return -FI_EBUSY;
  __atomic_sub_fetch(&queue->domain->users, 1, __ATOMIC_ACQ_REL);
  free(queue->endpoints.list);
  free(queue->ring);
  free(queue);
  return 0;
}

static struct fi_ops queue_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_queue,
    .bind = no_bind,
    .control = no_control,
    .ops_open = no_ops,
};

static struct fi_ops_cq queue_ops = {
    .size = sizeof(struct fi_ops_cq),
    .read = read_queue,
    .readfrom = read_from,
    .readerr = read_error,
    .sread = wait_queue,
    .sreadfrom = wait_from,
    .signal = signal_queue,
    .strerror = error_text,
};

static bool is_supported(const struct fi_cq_attr *attributes) {
  if (attributes->wait_obj != FI_WAIT_NONE && attributes->wait_obj != FI_WAIT_UNSPEC &&
      attributes->wait_obj != FI_WAIT_YIELD) {
    say(FI_LOG_WARN, FI_LOG_CQ,
        "a completion queue has no wait object of kind %d: "
        "only FI_WAIT_NONE, FI_WAIT_UNSPEC and FI_WAIT_YIELD",
        attributes->wait_obj);
    return false;
  }
  return attributes->wait_cond == FI_CQ_COND_NONE || attributes->wait_obj == FI_WAIT_NONE;
}

int open_queue(struct fid_domain *domain, struct fi_cq_attr *attributes, struct fid_cq **cq,
               void *context) {
  if (!is_supported(attributes))
    return -FI_ENOSYS;
  queue_t *queue = calloc(1, sizeof *queue);
  event_t *ring = calloc(256, sizeof *ring);
  if (queue == NULL || ring == NULL) {
    free(queue);
    free(ring);
    return -FI_ENOMEM;
  }
  queue->fid.fid.fclass = FI_CLASS_CQ;
  queue->fid.fid.context = context;
  queue->fid.fid.ops = &queue_fid_ops;
  queue->fid.ops = &queue_ops;
  queue->domain = (domain_t *)domain;
  queue->waits = attributes->wait_obj != FI_WAIT_NONE;
  if (attributes->format == FI_CQ_FORMAT_UNSPEC)
    attributes->format = FI_CQ_FORMAT_TAGGED;
  queue->format = attributes->format;
  queue->ring = ring;
  queue->capacity = 256;
  queue->limit = attributes->size == 0 ? QUEUE_SIZE : attributes->size;
  __atomic_add_fetch(&queue->domain->users, 1, __ATOMIC_ACQ_REL);
  *cq = &queue->fid;
  return 0;
}
