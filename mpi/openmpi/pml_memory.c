/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Bytes that are not contiguous in the program's memory. */
#include "pml.h"

bool vicinity_pack(const vicinity_buffer_t *buffer, unsigned char *to, size_t length) {
  opal_convertor_t convertor;
  struct iovec vector = {.iov_base = (void *)to, .iov_len = length};
  uint32_t count = 1;
  OBJ_CONSTRUCT(&convertor, opal_convertor_t);
  bool packed = opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &buffer->datatype->super,
                                                         buffer->count, buffer->base, 0, &convertor) == OPAL_SUCCESS &&
                opal_convertor_pack(&convertor, &vector, &count, &length) >= 0;
  OBJ_DESTRUCT(&convertor);
  return packed;
}

bool vicinity_prepare_unpacking(vicinity_request_t *request, const vicinity_buffer_t *buffer) {
  if (opal_convertor_copy_and_prepare_for_recv(ompi_mpi_local_convertor, &buffer->datatype->super, buffer->count,
                                               buffer->base, 0, &request->convertor) != OPAL_SUCCESS)
    return false;
  /* The program may free its type before the message arrives. */
  OBJ_RETAIN(buffer->datatype);
  request->unpacking = buffer->datatype;
  return true;
}

void vicinity_unpack(vicinity_request_t *request, const void *from, size_t length) {
  struct iovec vector = {.iov_base = (void *)(uintptr_t)from, .iov_len = length};
  uint32_t count = 1;
  opal_convertor_unpack(&request->convertor, &vector, &count, &length);
}
