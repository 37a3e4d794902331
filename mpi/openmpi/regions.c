/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Registered memory: what peers may read and write, and the keys by which they name it. */
#include "rma.h"

/* The key has the place in the table in its low half, and a number that no other region has had in
   its high half. So a key that is used after the region's end names nothing. */
static struct mca_btl_base_registration_handle_t *find(uint64_t key) {
  struct mca_btl_base_registration_handle_t *region = opal_pointer_array_get_item(
      &vicinity_module.regions, (int)(key & INT32_MAX));
  return region != NULL && region->key == key ? region : NULL;
}

static bool use_credit(const struct mca_btl_base_endpoint_t *peer, size_t size) {
  uint32_t credit = 0;
  mx_return_t code = vicinity_mx.use_credit(vicinity_plane.endpoint, peer->plane.address, size, &credit);
  return code == MX_SUCCESS && credit;
}

/* With the right to read alone, ob1 would have a long message fetched by a get. Fragments have one exchange less, and
   between VMs are copied as often. On one host, the kernel copies what is fetched, once, unless the receiver has found that slower. */
static bool is_sent_faster(const mca_btl_base_module_t *btl, const struct mca_btl_base_endpoint_t *peer, size_t size,
                           uint32_t flags) {
  if (flags != MCA_BTL_REG_FLAG_REMOTE_READ)
    return false;
  if (peer == NULL || peer->module != btl || !peer->plane.near || size <= VICINITY_IN_PLACE_MAX)
    return true;
  return use_credit(peer, size);
}

struct mca_btl_base_registration_handle_t *
vicinity_register(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer, void *base,
                  size_t size, uint32_t flags) {
  static uint32_t registered;
  vicinity_module_t *module = &vicinity_module;
  struct mca_btl_base_registration_handle_t *region = malloc(sizeof *region);
  if (region == NULL || is_sent_faster(btl, peer, size, flags)) {
    free(region);
    return NULL;
  }
  *region = (struct mca_btl_base_registration_handle_t){
      .base = (uintptr_t)base, .length = size, .flags = flags};
  vicinity_mx.heap_handle(base, size, &region->heap, &region->on_heap);
  OPAL_THREAD_LOCK(&module->region_lock);
  int place = opal_pointer_array_add(&module->regions, region);
  region->key = (uint64_t)++registered << 32 | (uint32_t)place;
  OPAL_THREAD_UNLOCK(&module->region_lock);
  if (place >= 0)
    return region;
  free(region);
  return NULL;
}

int vicinity_deregister(mca_btl_base_module_t *btl,
                        struct mca_btl_base_registration_handle_t *handle) {
  vicinity_module_t *module = &vicinity_module;
  (void)btl;
  OPAL_THREAD_LOCK(&module->region_lock);
  opal_pointer_array_set_item(&module->regions, (int)(handle->key & INT32_MAX), NULL);
  OPAL_THREAD_UNLOCK(&module->region_lock);
  free(handle);
  return OPAL_SUCCESS;
}

void *vicinity_allowed(const vicinity_rma_request_t *request, uint64_t length, uint32_t access) {
  const struct mca_btl_base_registration_handle_t *region = find(request->key);
  if (region == NULL || (region->flags & access) != access || request->address < region->base)
    return NULL;
  uint64_t offset = request->address - region->base;
  if (offset > region->length || length > region->length - offset)
    return NULL;
  return (void *)(uintptr_t)request->address;
}
