/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Fragments and how they are sent. */
#include "vicinity.h"
#include "words.h"

static void fragment_constructor(vicinity_fragment_t *fragment) {
  fragment->base.des_segments = fragment->segments;
  fragment->base.des_segment_count = 1;
  fragment->segments[0].seg_addr.pval = fragment->data;
}

OBJ_CLASS_INSTANCE(vicinity_fragment_t, mca_btl_base_descriptor_t, fragment_constructor, NULL);

size_t vicinity_large_fragment(void) {
  const mca_btl_base_module_t *module = &vicinity_module.super;
  return module->btl_eager_limit > module->btl_max_send_size ? module->btl_eager_limit : module->btl_max_send_size;
}

/* Returns a fragment with room for `size` bytes, or NULL. */
static vicinity_fragment_t *take(struct mca_btl_base_endpoint_t *peer, size_t size, uint32_t flags,
                                 uint8_t order) {
  vicinity_module_t *module = &vicinity_module;
  opal_free_list_t *list;
  if (size <= VICINITY_SMALL_FRAGMENT)
    list = &module->small_fragments;
  else if (size <= vicinity_large_fragment())
    list = &module->large_fragments;
  else
    return NULL;
  vicinity_fragment_t *fragment = (vicinity_fragment_t *)opal_free_list_get(list);
  if (fragment == NULL)
    return NULL;
  fragment->peer = peer;
  fragment->base.des_segment_count = 1;
  fragment->base.des_flags = flags;
  fragment->base.order = order;
  fragment->segments[0].seg_len = size;
  return fragment;
}

static void give_back(vicinity_fragment_t *fragment) {
  opal_free_list_return(fragment->list, &fragment->base.super);
}

mca_btl_base_descriptor_t *vicinity_alloc(mca_btl_base_module_t *btl,
                                          struct mca_btl_base_endpoint_t *peer, uint8_t order,
                                          size_t size, uint32_t flags) {
  (void)btl;
  vicinity_fragment_t *fragment = take(peer, size, flags, order);
  return fragment == NULL ? NULL : &fragment->base;
}

int vicinity_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor) {
  (void)btl;
  give_back((vicinity_fragment_t *)descriptor);
  return OPAL_SUCCESS;
}

/* Packs `*size` bytes at `to`, or finds where they are if `to` is NULL. */
static int pack(opal_convertor_t *convertor, void **to, size_t *size) {
  struct iovec vector = {.iov_base = *to, .iov_len = *size};
  uint32_t count = 1;
  int result = opal_convertor_pack(convertor, &vector, &count, size);
  *to = vector.iov_base;
  return result;
}

mca_btl_base_descriptor_t *vicinity_prepare(mca_btl_base_module_t *btl,
                                            struct mca_btl_base_endpoint_t *peer,
                                            opal_convertor_t *convertor, uint8_t order,
                                            size_t reserve, size_t *size, uint32_t flags) {
  size_t most = btl->btl_max_send_size - reserve;
  if (*size > most)
    *size = most;
  /* Contiguous bytes stay in the program's memory until they are sent. */
  bool in_place = *size > 0 && !opal_convertor_need_buffers(convertor);
  vicinity_fragment_t *fragment = take(peer, in_place ? reserve : reserve + *size, flags, order);
  if (fragment == NULL)
    return NULL;
  void *payload = in_place ? NULL : fragment->data + reserve;
  if (*size > 0 && pack(convertor, &payload, size) < 0) {
    give_back(fragment);
    return NULL;
  }
  if (in_place) {
    fragment->base.des_segment_count = 2;
    fragment->segments[0].seg_len = reserve;
    fragment->segments[1].seg_addr.pval = payload;
    fragment->segments[1].seg_len = *size;
  } else {
    fragment->segments[0].seg_len = reserve + *size;
  }
  return &fragment->base;
}

/* The match value of a fragment. */
static uint64_t match_value(const struct mca_btl_base_endpoint_t *peer, mca_btl_base_tag_t tag) {
  return peer->module == &vicinity_other_hosts ? VICINITY_OTHER_HOSTS | tag : tag;
}

/* Returns 1 if a message has left, 0 if there is no room or the peer is lost, and else an error. */
static int injected(struct mca_btl_base_endpoint_t *peer, mx_return_t code, uint32_t sent) {
  if (code == MX_SUCCESS)
    return (int)sent;
  vicinity_fail(peer->plane.proc, vicinity_mx.strerror(code));
  return OPAL_ERR_UNREACH;
}

/* Sends the segments if there is room for them now, as most often. */
static int inject(struct mca_btl_base_endpoint_t *peer, mx_segment_t *segments, uint32_t count,
                  mca_btl_base_tag_t tag) {
  uint32_t sent = 0;
  mx_return_t code = vicinity_mx.inject(vicinity_plane.endpoint, segments, count, peer->plane.address,
                                        match_value(peer, tag), &sent);
  return injected(peer, code, sent);
}

/* The same for a match of ob1 with a few bytes. */
static int inject_short(struct mca_btl_base_endpoint_t *peer, const void *header, const void *data, size_t length,
                        mca_btl_base_tag_t tag) {
  uint64_t words[VICINITY_WORDS];
  uint32_t sent = 0;
  vicinity_load_fragment(words, header, data, length);
  mx_return_t code = vicinity_mx.inject_words(vicinity_plane.endpoint, words, (uint32_t)(VICINITY_OB1_HEADER + length),
                                              peer->plane.address, match_value(peer, tag), &sent);
  return injected(peer, code, sent);
}

/* The same for a header and data. */
static int inject_two(struct mca_btl_base_endpoint_t *peer, void *header, size_t header_size, void *data, size_t length,
                      mca_btl_base_tag_t tag) {
  mx_segment_t segments[2] = {{header, (uint32_t)header_size}, {data, (uint32_t)length}};
  return inject(peer, segments, length > 0 ? 2 : 1, tag);
}

/* Has the library send the segments when there is room. vicinity_sent ends the fragment. */
static int queue(vicinity_fragment_t *fragment, mx_segment_t *segments, uint32_t count,
                 mca_btl_base_tag_t tag) {
  mx_request_t request;
  vicinity_plane.requests++;
  mx_return_t code = vicinity_mx.isend(vicinity_plane.endpoint, segments, count,
                                       fragment->peer->plane.address, match_value(fragment->peer, tag), fragment, &request);
  if (code == MX_SUCCESS)
    return OPAL_SUCCESS;
  vicinity_plane.requests--;
  if (code == MX_NO_RESOURCES)
    return OPAL_ERR_OUT_OF_RESOURCE;
  vicinity_fail(fragment->peer->plane.proc, vicinity_mx.strerror(code));
  return OPAL_ERR_UNREACH;
}

int vicinity_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                  mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag) {
  vicinity_fragment_t *fragment = (vicinity_fragment_t *)descriptor;
  uint32_t flags = descriptor->des_flags, count = (uint32_t)descriptor->des_segment_count;
  mx_segment_t segments[2];
  for (uint32_t i = 0; i < count; i++) {
    segments[i].segment_ptr = fragment->segments[i].seg_addr.pval;
    segments[i].segment_length = (uint32_t)fragment->segments[i].seg_len;
  }
  fragment->peer = peer;
  int result = inject(peer, segments, count, tag);
  if (result < 0)
    return result;
  if (result == 0) {
    /* Whichever thread finds the completion must call back. */
    descriptor->des_flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    result = queue(fragment, segments, count, tag);
    if (result != OPAL_SUCCESS)
      descriptor->des_flags = flags;
    return result;
  }
  if (flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK)
    descriptor->des_cbfunc(btl, peer, descriptor, OPAL_SUCCESS);
  if (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)
    give_back(fragment);
  return 1;
}

int vicinity_send_immediate(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                            opal_convertor_t *convertor, void *header, size_t header_size,
                            size_t payload_size, uint8_t order, uint32_t flags,
                            mca_btl_base_tag_t tag, mca_btl_base_descriptor_t **descriptor) {
  (void)order, (void)flags;
  if (descriptor != NULL)
    *descriptor = NULL;
  /* Open MPI then sends the message as a fragment. */
  if (header_size + payload_size > btl->btl_eager_limit ||
      (payload_size > 0 && opal_convertor_need_buffers(convertor)))
    return OPAL_ERR_OUT_OF_RESOURCE;
  void *payload = NULL;
  if (payload_size > 0)
    opal_convertor_get_current_pointer(convertor, &payload);
  int result = header_size == VICINITY_OB1_HEADER && payload_size <= VICINITY_DATA_MAX
                   ? inject_short(peer, header, payload, payload_size, tag)
                   : inject_two(peer, header, header_size, payload, payload_size, tag);
  if (result == 0)
    return OPAL_ERR_OUT_OF_RESOURCE;
  return result == 1 ? OPAL_SUCCESS : result;
}

void vicinity_sent(vicinity_fragment_t *fragment, const mx_status_t *status) {
  bool owned = fragment->base.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
  int result = OPAL_SUCCESS;
  if (status->code != MX_STATUS_SUCCESS) {
    vicinity_fail(fragment->peer->plane.proc, vicinity_mx.strstatus(status->code));
    result = OPAL_ERR_UNREACH;
  }
  if (fragment->base.des_cbfunc != NULL)
    fragment->base.des_cbfunc(fragment->peer->module, fragment->peer, &fragment->base, result);
  if (owned)
    give_back(fragment);
}
