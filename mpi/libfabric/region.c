/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Memory regions: what peers may read and write. Nothing is pinned or mapped; a region is a range
   that each access of a peer is compared with. */
#include "vicinity.h"

static bool provider_chooses_keys(const domain_t *domain) {
  return domain->mr_mode == MR_BASIC || (domain->mr_mode & FI_MR_PROV_KEY);
}

static bool uses_virtual_addresses(const domain_t *domain) {
  return domain->mr_mode == MR_BASIC || (domain->mr_mode & FI_MR_VIRT_ADDR);
}

static region_t *find(domain_t *domain, uint64_t key) {
  region_t *region;
  LIST_FOREACH (region, &domain->regions[key % 64], link)
    if (region->fid.key == key)
      return region;
  return NULL;
}

char *region_memory(domain_t *domain, uint64_t key, uint64_t address, uint64_t length,
                    uint64_t access, region_t **result) {
  region_t *region = find(domain, key);
  if (region == NULL || !(region->access & access) || address < region->start)
    return NULL;
  uint64_t offset = address - region->start;
  if (offset > region->length || length > region->length - offset)
    return NULL;
  *result = region;
  return region->base + offset;
}

static int close_region(struct fid *fid) {
  region_t *region = (region_t *)fid;
  domain_t *domain = region->domain;
  pthread_mutex_lock(&domain->lock);
  bool busy = region->users > 0;
  if (!busy)
    LIST_REMOVE(region, link);
  pthread_mutex_unlock(&domain->lock);
  if (busy)
    return -FI_EBUSY;
  __atomic_sub_fetch(&domain->users, 1, __ATOMIC_ACQ_REL);
  free(region);
  return 0;
}

/* Counters and endpoints may be bound: without FI_MR_ENDPOINT and FI_RMA_EVENT that has no effect.
 */
static int bind_region(struct fid *fid, struct fid *other, uint64_t flags) {
  (void)fid, (void)other, (void)flags;
  return 0;
}

static int control_region(struct fid *fid, int command, void *argument) {
  (void)fid, (void)argument;
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static struct fi_ops region_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_region,
    .bind = bind_region,
    .control = control_region,
    .ops_open = no_ops,
};

static int register_attributes(struct fid *fid, const struct fi_mr_attr *attributes, uint64_t flags,
                               struct fid_mr **result) {
  domain_t *domain = (domain_t *)fid;
  if (flags != 0)
    return -FI_EBADFLAGS;
  if (attributes->iov_count != 1 || attributes->mr_iov == NULL)
    return -FI_EINVAL;
  region_t *region = calloc(1, sizeof *region);
  if (region == NULL)
    return -FI_ENOMEM;
  region->fid.fid.fclass = FI_CLASS_MR;
  region->fid.fid.context = attributes->context;
  region->fid.fid.ops = &region_fid_ops;
  region->fid.mem_desc = region;
  region->domain = domain;
  region->base = attributes->mr_iov[0].iov_base;
  region->length = attributes->mr_iov[0].iov_len;
  region->access = attributes->access;
  region->start = uses_virtual_addresses(domain) ? (uintptr_t)region->base : attributes->offset;
  pthread_mutex_lock(&domain->lock);
  region->fid.key = provider_chooses_keys(domain) ? domain->next_key++ : attributes->requested_key;
  bool taken = find(domain, region->fid.key) != NULL;
  if (!taken)
    LIST_INSERT_HEAD(&domain->regions[region->fid.key % 64], region, link);
  pthread_mutex_unlock(&domain->lock);
  if (taken) {
    free(region);
    return -FI_ENOKEY;
  }
  __atomic_add_fetch(&domain->users, 1, __ATOMIC_ACQ_REL);
  *result = &region->fid;
  return 0;
}

static int register_vector(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
                           uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **region,
                           void *context) {
  struct fi_mr_attr attributes = {
      .mr_iov = iov,
      .iov_count = count,
      .access = access,
      .offset = offset,
      .requested_key = key,
      .context = context,
  };
  return register_attributes(fid, &attributes, flags, region);
}

static int register_memory(struct fid *fid, const void *memory, size_t length, uint64_t access,
                           uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **region,
                           void *context) {
  struct iovec iov = {(void *)memory, length};
  return register_vector(fid, &iov, 1, access, offset, key, flags, region, context);
}

struct fi_ops_mr region_ops = {
    .size = sizeof(struct fi_ops_mr),
    .reg = register_memory,
    .regv = register_vector,
    .regattr = register_attributes,
};
