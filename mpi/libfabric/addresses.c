/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Address vectors. The fi_addr_t of an address is its index, for FI_AV_MAP as well. */
#include "vicinity.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>

const address_t *address_at(const addresses_t *addresses, fi_addr_t index) {
  if (index >= addresses->count || !addresses->entries[index].used)
    return NULL;
  return &addresses->entries[index].address;
}

fi_addr_t index_of(const addresses_t *addresses, uint64_t nic, uint32_t id) {
  for (size_t i = 0; i < addresses->count; i++) {
    const address_t *address = &addresses->entries[i].address;
    if (addresses->entries[i].used && be64toh(address->nic) == nic &&
        ntohl(address->endpoint) == id)
      return i;
  }
  return FI_ADDR_NOTAVAIL;
}

static int close_addresses(struct fid *fid) {
  addresses_t *addresses = (addresses_t *)fid;
  if (__atomic_load_n(&addresses->users, __ATOMIC_ACQUIRE) > 0)
    return -FI_EBUSY;
  __atomic_sub_fetch(&addresses->domain->users, 1, __ATOMIC_ACQ_REL);
  free(addresses->entries);
  free(addresses);
  return 0;
}

static bool reserve(addresses_t *addresses, size_t more) {
  size_t need = addresses->count + more, capacity = addresses->capacity;
  if (need <= capacity)
    return true;
  while (capacity < need)
    capacity = capacity == 0 ? 64 : capacity * 2;
  void *entries = realloc(addresses->entries, capacity * sizeof *addresses->entries);
  if (entries == NULL)
    return false;
  addresses->entries = entries;
  addresses->capacity = capacity;
  return true;
}

/* Inserts one address, at a free index. There must be room. */
static fi_addr_t insert_one(addresses_t *addresses, const address_t *address, size_t *free_from) {
  if (address->format != htonl(ADDRESS_FORMAT))
    return FI_ADDR_NOTAVAIL;
  size_t index = *free_from;
  while (index < addresses->count && addresses->entries[index].used)
    index++;
  if (index == addresses->count)
    addresses->count++;
  addresses->entries[index].address = *address;
  addresses->entries[index].used = true;
  *free_from = index + 1;
  return index;
}

static int insert(struct fid_av *fid, const void *list, size_t count, fi_addr_t *indices,
                  uint64_t flags, void *context) {
  addresses_t *addresses = (addresses_t *)fid;
  const char *next = list;
  size_t free_from = 0;
  int inserted = 0, *errors = flags & FI_SYNC_ERR ? context : NULL;
  pthread_mutex_lock(&addresses->domain->lock);
  if (!reserve(addresses, count)) {
    pthread_mutex_unlock(&addresses->domain->lock);
    return -FI_ENOMEM;
  }
  for (size_t i = 0; i < count; i++, next += sizeof(address_t)) {
    address_t address;
    memcpy(&address, next, sizeof address);
    fi_addr_t index = insert_one(addresses, &address, &free_from);
    inserted += index != FI_ADDR_NOTAVAIL;
    if (indices != NULL)
      indices[i] = index;
    if (errors != NULL)
      errors[i] = index == FI_ADDR_NOTAVAIL ? FI_EINVAL : 0;
  }
  pthread_mutex_unlock(&addresses->domain->lock);
  return inserted;
}

static int no_service(struct fid_av *fid, const char *node, const char *service, fi_addr_t *index,
                      uint64_t flags, void *context) {
  (void)fid, (void)node, (void)service, (void)index, (void)flags, (void)context;
  return -FI_ENOSYS;
}

static int no_symmetric(struct fid_av *fid, const char *node, size_t nodes, const char *service,
                        size_t services, fi_addr_t *indices, uint64_t flags, void *context) {
  (void)fid, (void)node, (void)nodes, (void)service, (void)services, (void)indices, (void)flags,
      (void)context;
  return -FI_ENOSYS;
}

static int remove_addresses(struct fid_av *fid, fi_addr_t *indices, size_t count, uint64_t flags) {
  addresses_t *addresses = (addresses_t *)fid;
  (void)flags;
  int result = 0;
  pthread_mutex_lock(&addresses->domain->lock);
  for (size_t i = 0; i < count; i++) {
    if (address_at(addresses, indices[i]) == NULL)
      result = -FI_EINVAL;
    else
      addresses->entries[indices[i]].used = false;
  }
  pthread_mutex_unlock(&addresses->domain->lock);
  return result;
}

static int lookup(struct fid_av *fid, fi_addr_t index, void *to, size_t *length) {
  addresses_t *addresses = (addresses_t *)fid;
  pthread_mutex_lock(&addresses->domain->lock);
  const address_t *address = address_at(addresses, index);
  if (address != NULL)
    memcpy(to, address, *length < sizeof *address ? *length : sizeof *address);
  pthread_mutex_unlock(&addresses->domain->lock);
  *length = sizeof *address;
  return address == NULL ? -FI_EINVAL : 0;
}

static const char *describe(struct fid_av *fid, const void *address, char *text, size_t *length) {
  address_t copy;
  (void)fid;
  memcpy(&copy, address, sizeof copy);
  int size = snprintf(text, *length, "vicinity://%012llx:%u", (unsigned long long)be64toh(copy.nic),
                      ntohl(copy.endpoint));
  *length = (size_t)size + 1;
  return text;
}

static int bind_addresses(struct fid *fid, struct fid *other, uint64_t flags) {
  (void)fid, (void)flags;
  return other->fclass == FI_CLASS_EQ ? 0 : -FI_ENOSYS;
}

static struct fi_ops addresses_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_addresses,
    .bind = bind_addresses,
    .control = no_control,
    .ops_open = no_ops,
};

static struct fi_ops_av addresses_ops = {
    .size = sizeof(struct fi_ops_av),
    .insert = insert,
    .insertsvc = no_service,
    .insertsym = no_symmetric,
    .remove = remove_addresses,
    .lookup = lookup,
    .straddr = describe,
};

int open_addresses(struct fid_domain *domain, struct fi_av_attr *attributes, struct fid_av **av,
                   void *context) {
  if (attributes->name != NULL || attributes->rx_ctx_bits != 0 || (attributes->flags & FI_EVENT))
    return -FI_ENOSYS;
  addresses_t *addresses = calloc(1, sizeof *addresses);
  if (addresses == NULL)
    return -FI_ENOMEM;
  addresses->fid.fid.fclass = FI_CLASS_AV;
  addresses->fid.fid.context = context;
  addresses->fid.fid.ops = &addresses_fid_ops;
  addresses->fid.ops = &addresses_ops;
  addresses->domain = (domain_t *)domain;
  if (attributes->type == FI_AV_UNSPEC)
    attributes->type = FI_AV_TABLE;
  __atomic_add_fetch(&addresses->domain->users, 1, __ATOMIC_ACQ_REL);
  *av = &addresses->fid;
  return 0;
}
