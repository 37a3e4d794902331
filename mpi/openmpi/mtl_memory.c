/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Where the bytes of a send or a receive are. */
#include "mtl.h"

void vicinity_find_memory(struct opal_convertor_t *convertor, uint32_t direction, unsigned char **memory,
                          size_t *length) {
  if (!(convertor->flags & direction)) {
    /* pml/cm does not prepare the convertor of contiguous bytes, and sets these fields only. */
    *memory = convertor->pBaseBuf;
    *length = convertor->local_size;
    return;
  }
  opal_convertor_get_packed_size(convertor, length);
  void *start = NULL;
  if (*length > 0 && !opal_convertor_need_buffers(convertor))
    opal_convertor_get_current_pointer(convertor, &start);
  *memory = start;
}

bool vicinity_pack(struct opal_convertor_t *convertor, unsigned char *to, size_t length) {
  struct iovec vector = {.iov_base = (void *)to, .iov_len = length};
  uint32_t count = 1;
  return opal_convertor_pack(convertor, &vector, &count, &length) >= 0;
}

void vicinity_unpack(struct opal_convertor_t *convertor, const void *from, size_t length) {
  struct iovec vector = {.iov_base = (void *)(uintptr_t)from, .iov_len = length};
  uint32_t count = 1;
  opal_convertor_unpack(convertor, &vector, &count, &length);
}
