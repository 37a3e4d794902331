/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Options and the name of an endpoint. */
#include "engine.h"

static int get_option(fid_t fid, int level, int name, void *value, size_t *length) {
  endpoint_t *endpoint = (endpoint_t *)fid;
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
    return -FI_ENOPROTOOPT;
  if (*length < sizeof endpoint->multi_min)
    return -FI_ETOOSMALL;
  memcpy(value, &endpoint->multi_min, sizeof endpoint->multi_min);
  *length = sizeof endpoint->multi_min;
  return 0;
}

static int set_option(fid_t fid, int level, int name, const void *value, size_t length) {
  endpoint_t *endpoint = (endpoint_t *)fid;
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
    return -FI_ENOPROTOOPT;
  if (length != sizeof endpoint->multi_min)
    return -FI_EINVAL;
  pthread_mutex_lock(&endpoint->domain->lock);
  memcpy(&endpoint->multi_min, value, length);
  pthread_mutex_unlock(&endpoint->domain->lock);
  return 0;
}

static int no_send_context(struct fid_ep *ep, int index, struct fi_tx_attr *attributes,
                           struct fid_ep **context, void *user) {
  (void)ep, (void)index, (void)attributes, (void)context, (void)user;
  return -FI_ENOSYS;
}

static int no_receive_context(struct fid_ep *ep, int index, struct fi_rx_attr *attributes,
                              struct fid_ep **context, void *user) {
  (void)ep, (void)index, (void)attributes, (void)context, (void)user;
  return -FI_ENOSYS;
}

static ssize_t no_size_left(struct fid_ep *ep) {
  (void)ep;
  return -FI_ENOSYS;
}

struct fi_ops_ep endpoint_option_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = cancel_receive,
    .getopt = get_option,
    .setopt = set_option,
    .tx_ctx = no_send_context,
    .rx_ctx = no_receive_context,
    .rx_size_left = no_size_left,
    .tx_size_left = no_size_left,
};

static int get_name(fid_t fid, void *to, size_t *length) {
  endpoint_t *endpoint = (endpoint_t *)fid;
  size_t room = *length, size = sizeof endpoint->address;
  memcpy(to, &endpoint->address, room < size ? room : size);
  *length = size;
  return room < size ? -FI_ETOOSMALL : 0;
}

static int no_set_name(fid_t fid, void *address, size_t length) {
  (void)fid, (void)address, (void)length;
  return -FI_ENOSYS;
}

static int no_peer_name(struct fid_ep *ep, void *address, size_t *length) {
  (void)ep, (void)address, (void)length;
  return -FI_ENOSYS;
}

static int no_connect(struct fid_ep *ep, const void *address, const void *parameter,
                      size_t length) {
  (void)ep, (void)address, (void)parameter, (void)length;
  return -FI_ENOSYS;
}

static int no_listen(struct fid_pep *pep) {
  (void)pep;
  return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *ep, const void *parameter, size_t length) {
  (void)ep, (void)parameter, (void)length;
  return -FI_ENOSYS;
}

static int no_reject(struct fid_pep *pep, fid_t handle, const void *parameter, size_t length) {
  (void)pep, (void)handle, (void)parameter, (void)length;
  return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *ep, uint64_t flags) {
  (void)ep, (void)flags;
  return -FI_ENOSYS;
}

static int no_join(struct fid_ep *ep, const void *address, uint64_t flags, struct fid_mc **group,
                   void *context) {
  (void)ep, (void)address, (void)flags, (void)group, (void)context;
  return -FI_ENOSYS;
}

struct fi_ops_cm endpoint_name_ops = {
    .size = sizeof(struct fi_ops_cm),
    .setname = no_set_name,
    .getname = get_name,
    .getpeer = no_peer_name,
    .connect = no_connect,
    .listen = no_listen,
    .accept = no_accept,
    .reject = no_reject,
    .shutdown = no_shutdown,
    .join = no_join,
};
