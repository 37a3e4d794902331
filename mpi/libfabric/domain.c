/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The domain: opens everything else. */
#include "vicinity.h"

static int close_domain(struct fid *fid) {
  domain_t *domain = (domain_t *)fid;
  if (__atomic_load_n(&domain->users, __ATOMIC_ACQUIRE) > 0)
    return -FI_EBUSY;
  __atomic_sub_fetch(&domain->fabric->users, 1, __ATOMIC_ACQ_REL);
  pthread_mutex_destroy(&domain->lock);
  free(domain);
  return 0;
}

int bind_endpoint(bound_t *bound, endpoint_t *endpoint) {
  for (size_t i = 0; i < bound->count; i++)
    if (bound->list[i] == endpoint)
      return 0;
  endpoint_t **list = realloc(bound->list, (bound->count + 1) * sizeof *list);
  if (list == NULL)
    return -FI_ENOMEM;
  bound->list = list;
  list[bound->count++] = endpoint;
  return 0;
}

void unbind_endpoint(bound_t *bound, endpoint_t *endpoint) {
  for (size_t i = 0; i < bound->count; i++)
    if (bound->list[i] == endpoint)
      bound->list[i--] = bound->list[--bound->count];
}

static int no_scalable_endpoint(struct fid_domain *domain, struct fi_info *info,
                                struct fid_ep **endpoint, void *context) {
  (void)domain, (void)info, (void)endpoint, (void)context;
  return -FI_ENOSYS;
}

static int no_poll_set(struct fid_domain *domain, struct fi_poll_attr *attributes,
                       struct fid_poll **set) {
  (void)domain, (void)attributes, (void)set;
  return -FI_ENOSYS;
}

static int no_shared_send(struct fid_domain *domain, struct fi_tx_attr *attributes,
                          struct fid_stx **context, void *user) {
  (void)domain, (void)attributes, (void)context, (void)user;
  return -FI_ENOSYS;
}

static int no_shared_receive(struct fid_domain *domain, struct fi_rx_attr *attributes,
                             struct fid_ep **context, void *user) {
  (void)domain, (void)attributes, (void)context, (void)user;
  return -FI_ENOSYS;
}

static int no_atomics(struct fid_domain *domain, enum fi_datatype type, enum fi_op op,
                      struct fi_atomic_attr *attributes, uint64_t flags) {
  (void)domain, (void)type, (void)op, (void)attributes, (void)flags;
  return -FI_EOPNOTSUPP;
}

static int no_collectives(struct fid_domain *domain, enum fi_collective_op op,
                          struct fi_collective_attr *attributes, uint64_t flags) {
  (void)domain, (void)op, (void)attributes, (void)flags;
  return -FI_ENOSYS;
}

static struct fi_ops domain_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_domain,
    .bind = no_bind,
    .control = no_control,
    .ops_open = no_ops,
};

static struct fi_ops_domain domain_ops = {
    .size = sizeof(struct fi_ops_domain),
    .av_open = open_addresses,
    .cq_open = open_queue,
    .endpoint = open_endpoint,
    .scalable_ep = no_scalable_endpoint,
    .cntr_open = open_counter,
    .poll_open = no_poll_set,
    .stx_ctx = no_shared_send,
    .srx_ctx = no_shared_receive,
    .query_atomic = no_atomics,
    .query_collective = no_collectives,
};

int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **result,
                void *context) {
  domain_t *domain = calloc(1, sizeof *domain);
  if (domain == NULL)
    return -FI_ENOMEM;
  domain->fid.fid.fclass = FI_CLASS_DOMAIN;
  domain->fid.fid.context = context;
  domain->fid.fid.ops = &domain_fid_ops;
  domain->fid.ops = &domain_ops;
  domain->fid.mr = &region_ops;
  domain->fabric = (fabric_t *)fabric;
  domain->api = fabric->api_version;
  domain->mr_mode = info->domain_attr == NULL ? MR_SCALABLE : info->domain_attr->mr_mode;
  pthread_mutex_init(&domain->lock, NULL);
  __atomic_add_fetch(&domain->fabric->users, 1, __ATOMIC_ACQ_REL);
  *result = &domain->fid;
  return 0;
}
