/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Endpoints: each has an endpoint of the message plane of its own. */
#include "engine.h"

#include <arpa/inet.h>
#include <endian.h>
#include <sys/random.h>
#include <unistd.h>

/* Milliseconds that an endpoint which is closed waits for what it has sent to leave. */
#define FLUSH 1000

static void init_matching(matching_t *matching) {
  TAILQ_INIT(&matching->posted);
  TAILQ_INIT(&matching->unexpected);
  TAILQ_INIT(&matching->claimed);
}

static void free_list(struct unexpecteds *list) {
  unexpected_t *message;
  while ((message = TAILQ_FIRST(list)) != NULL) {
    TAILQ_REMOVE(list, message, link);
    free(message);
  }
}

static void free_memory(endpoint_t *endpoint) {
  for (int i = 0; i < 64; i++) {
    peer_t *peer;
    while ((peer = LIST_FIRST(&endpoint->peers[i])) != NULL) {
      LIST_REMOVE(peer, link);
      free(peer);
    }
  }
  matching_t *both[] = {&endpoint->messages, &endpoint->tagged};
  for (int i = 0; i < 2; i++) {
    free_list(&both[i]->unexpected);
    free_list(&both[i]->claimed);
  }
  for (uint32_t i = 0; i < endpoint->operation_count; i++) {
    operation_t *operation = endpoint->operations[i];
    if (operation->kind != 0 && operation->region != NULL)
      operation->region->users--;
    free(operation->copy);
    free(operation);
  }
  free(endpoint->operations);
  free(endpoint->routes);
  free(endpoint);
}

static bool is_sending(const endpoint_t *endpoint) {
  for (uint32_t i = 0; i < endpoint->operation_count; i++) {
    const operation_t *operation = endpoint->operations[i];
    bool receives = operation->kind == OPERATION_FETCH || operation->kind == OPERATION_READ ||
                    operation->kind == OPERATION_STORE;
    bool other = operation->kind == OPERATION_CONNECT || operation->kind == OPERATION_WATCH;
    if (operation->kind != 0 && operation->requests > 0 && !receives && !other)
      return true;
  }
  return false;
}

static int close_endpoint(struct fid *fid) {
  endpoint_t *endpoint = (endpoint_t *)fid;
  domain_t *domain = endpoint->domain;
  long long end = now() + FLUSH;
  pthread_mutex_lock(&domain->lock);
  for (unsigned i = 0; is_sending(endpoint) && now() < end; i++) {
    progress(endpoint);
    if (i > 100)
      usleep(100);
  }
  queue_t *queues[] = {endpoint->send_queue, endpoint->receive_queue};
  for (int i = 0; i < 2; i++) {
    if (queues[i] != NULL) {
      unbind_endpoint(&queues[i]->endpoints, endpoint);
      queues[i]->users--;
    }
  }
  for (int i = 0; i < COUNT_KINDS; i++) {
    if (endpoint->counters[i] != NULL) {
      unbind_endpoint(&endpoint->counters[i]->endpoints, endpoint);
      endpoint->counters[i]->users--;
    }
  }
  if (endpoint->addresses != NULL)
    endpoint->addresses->users--;
  mx.close_endpoint(endpoint->mx);
  free_memory(endpoint);
  pthread_mutex_unlock(&domain->lock);
  __atomic_sub_fetch(&domain->users, 1, __ATOMIC_ACQ_REL);
  return 0;
}

static int bind_queue(endpoint_t *endpoint, queue_t *queue, uint64_t flags) {
  bool selective = flags & FI_SELECTIVE_COMPLETION;
  if ((flags & (FI_TRANSMIT | FI_RECV)) == 0 ||
      ((flags & FI_TRANSMIT) && endpoint->send_queue != NULL) ||
      ((flags & FI_RECV) && endpoint->receive_queue != NULL))
    return -FI_EINVAL;
  if (bind_endpoint(&queue->endpoints, endpoint) != 0)
    return -FI_ENOMEM;
  if (flags & FI_TRANSMIT) {
    endpoint->send_queue = queue;
    endpoint->send_selective = selective;
    queue->users++;
  }
  if (flags & FI_RECV) {
    endpoint->receive_queue = queue;
    endpoint->receive_selective = selective;
    queue->users++;
  }
  return 0;
}

static int bind_counter(endpoint_t *endpoint, counter_t *counter, uint64_t flags) {
  static const uint64_t kinds[COUNT_KINDS] = {FI_SEND,  FI_RECV,        FI_READ,
                                              FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};
  if (bind_endpoint(&counter->endpoints, endpoint) != 0)
    return -FI_ENOMEM;
  for (int i = 0; i < COUNT_KINDS; i++) {
    if (!(flags & kinds[i]))
      continue;
    if (endpoint->counters[i] != NULL)
      endpoint->counters[i]->users--;
    endpoint->counters[i] = counter;
    counter->users++;
  }
  return 0;
}

static int bind_to(endpoint_t *endpoint, struct fid *other, uint64_t flags) {
  switch (other->fclass) {
  case FI_CLASS_CQ:
    return bind_queue(endpoint, (queue_t *)other, flags);
  case FI_CLASS_CNTR:
    return bind_counter(endpoint, (counter_t *)other, flags);
  case FI_CLASS_EQ:
    return 0;
  case FI_CLASS_AV:
    if (endpoint->addresses != NULL)
      return -FI_EINVAL;
    endpoint->addresses = (addresses_t *)other;
    endpoint->addresses->users++;
    return 0;
  default:
    return -FI_EINVAL;
  }
}

static int bind_fid(struct fid *fid, struct fid *other, uint64_t flags) {
  endpoint_t *endpoint = (endpoint_t *)fid;
  pthread_mutex_lock(&endpoint->domain->lock);
  int result = endpoint->enabled ? -FI_EOPBADSTATE : bind_to(endpoint, other, flags);
  pthread_mutex_unlock(&endpoint->domain->lock);
  return result;
}

static int enable(endpoint_t *endpoint) {
  if (endpoint->addresses == NULL)
    return -FI_ENOAV;
  if ((endpoint->caps & (FI_MSG | FI_TAGGED)) && endpoint->send_queue == NULL &&
      endpoint->counters[COUNT_SEND] == NULL && endpoint->receive_queue == NULL)
    return -FI_ENOCQ;
  endpoint->enabled = true;
  return 0;
}

/* FI_GETOPSFLAG and FI_SETOPSFLAG name the direction in the flags. */
static int flags_control(endpoint_t *endpoint, uint64_t *flags, bool set) {
  uint64_t direction = *flags & (FI_TRANSMIT | FI_RECV);
  if (direction != FI_TRANSMIT && direction != FI_RECV)
    return -FI_EINVAL;
  uint64_t *own = direction == FI_TRANSMIT ? &endpoint->send_flags : &endpoint->receive_flags;
  if (set)
    *own = *flags & ~direction;
  else
    *flags = *own;
  return 0;
}

static int control(struct fid *fid, int command, void *argument) {
  endpoint_t *endpoint = (endpoint_t *)fid;
  pthread_mutex_lock(&endpoint->domain->lock);
  int result = -FI_ENOSYS;
  if (command == FI_ENABLE)
    result = enable(endpoint);
  else if (command == FI_GETOPSFLAG || command == FI_SETOPSFLAG)
    result = flags_control(endpoint, argument, command == FI_SETOPSFLAG);
  pthread_mutex_unlock(&endpoint->domain->lock);
  return result;
}

static struct fi_ops endpoint_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_endpoint,
    .bind = bind_fid,
    .control = control,
    .ops_open = no_ops,
};

/* Opens the endpoint of the plane. */
static mx_return_t open_mx(endpoint_t *endpoint) {
  mx_param_t parameter = {.key = MX_PARAM_HANDLER_DATA, .val.unexp_queue_max = PACKET_MAX};
  mx_endpoint_addr_t own;
  uint64_t nic = 0;
  uint32_t id = 0, key;
  if (getrandom(&key, sizeof key, 0) != sizeof key)
    return MX_FAILURE;
  mx_return_t code =
      mx.open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, key, &parameter, 1, &endpoint->mx);
  if (code != MX_SUCCESS)
    return code;
  code = mx.get_endpoint_addr(endpoint->mx, &own);
  if (code == MX_SUCCESS)
    code = mx.decompose_endpoint_addr(own, &nic, &id);
  if (code == MX_SUCCESS)
    code = mx.register_unexp_handler(endpoint->mx, arrived, endpoint);
  if (code == MX_SUCCESS)
    endpoint->self = peer_of(endpoint, own);
  if (code == MX_SUCCESS && endpoint->self == NULL)
    code = MX_NO_RESOURCES;
  if (code != MX_SUCCESS)
    mx.close_endpoint(endpoint->mx);
  endpoint->hash = hash_of(nic, id);
  endpoint->address = (address_t){
      .format = htonl(ADDRESS_FORMAT),
      .endpoint = htonl(id),
      .nic = htobe64(nic),
      .key = htonl(key),
  };
  return code;
}

int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **result,
                  void *context) {
  endpoint_t *endpoint = calloc(1, sizeof *endpoint);
  if (endpoint == NULL)
    return -FI_ENOMEM;
  endpoint->fid.fid.fclass = FI_CLASS_EP;
  endpoint->fid.fid.context = context;
  endpoint->fid.fid.ops = &endpoint_fid_ops;
  endpoint->fid.ops = &endpoint_option_ops;
  endpoint->fid.cm = &endpoint_name_ops;
  endpoint->fid.msg = &message_ops;
  endpoint->fid.tagged = &tagged_ops;
  endpoint->fid.rma = &rma_ops;
  endpoint->domain = (domain_t *)domain;
  endpoint->caps = info->caps;
  endpoint->send_flags = info->tx_attr == NULL ? FI_COMPLETION : info->tx_attr->op_flags;
  endpoint->receive_flags = info->rx_attr == NULL ? FI_COMPLETION : info->rx_attr->op_flags;
  endpoint->multi_min = 64;
  init_matching(&endpoint->messages);
  init_matching(&endpoint->tagged);
  TAILQ_INIT(&endpoint->free_operations);
  mx_return_t code = open_mx(endpoint);
  if (code != MX_SUCCESS) {
    say(FI_LOG_WARN, FI_LOG_EP_CTRL, "no endpoint of the message plane can be opened: %s",
        mx.strerror(code));
    free_memory(endpoint);
    return code == MX_BUSY || code == MX_NO_RESOURCES ? -FI_EBUSY : -FI_EIO;
  }
  __atomic_add_fetch(&endpoint->domain->users, 1, __ATOMIC_ACQ_REL);
  *result = &endpoint->fid;
  return 0;
}
