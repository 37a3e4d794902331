/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The origin of RMA: starts operations, and ends them. */
#include "rma.h"

#include "../copy.h"

/* An operation of this process. `what` tells it from a message. */
typedef struct {
  int what;
  uint32_t id;     /* its place in the table of operations */
  uint32_t kind;   /* VICINITY_PUT ... */
  uint32_t length; /* of the bytes that it writes at local_address */
  mca_btl_base_module_t *btl;
  struct mca_btl_base_endpoint_t *peer;
  void *local_address;
  struct mca_btl_base_registration_handle_t *local_handle;
  mca_btl_base_rdma_completion_fn_t callback;
  void *context;
  void *data;
} operation_t;

/* A message that has not left its memory. */
typedef struct {
  int what;
  unsigned char head[sizeof(vicinity_rma_request_t)];
} message_t;

enum { MESSAGE, OPERATION };

static void sent(message_t *message, const mx_status_t *status) {
  if (status->code != MX_STATUS_SUCCESS)
    vicinity_fail(NULL, vicinity_mx.strstatus(status->code));
  free(message);
}

bool vicinity_post(mx_endpoint_addr_t to, uint64_t match, const void *head, size_t size,
                   const void *bytes, size_t length) {
  mx_request_t request;
  mx_status_t status;
  uint32_t done = 0;
  message_t *message = malloc(sizeof *message);
  if (message == NULL)
    return false;
  message->what = MESSAGE;
  memcpy(message->head, head, size);
  mx_segment_t segments[] = {{message->head, (uint32_t)size}, {(void *)bytes, (uint32_t)length}};
  vicinity_plane.requests++;
  if (vicinity_mx.isend(vicinity_plane.endpoint, segments, length > 0 ? 2 : 1, to, match,
                        vicinity_context(message, VICINITY_RMA), &request) != MX_SUCCESS) {
    vicinity_plane.requests--;
    free(message);
    return false;
  }
  if (vicinity_mx.test(vicinity_plane.endpoint, &request, &status, &done) == MX_SUCCESS && done) {
    vicinity_plane.requests--;
    sent(message, &status);
  }
  return true;
}

static operation_t *begin(mca_btl_base_module_t *btl, uint32_t kind, struct mca_btl_base_endpoint_t *peer,
                          void *local_address, size_t length, struct mca_btl_base_registration_handle_t *local_handle,
                          mca_btl_base_rdma_completion_fn_t callback, void *context, void *data) {
  operation_t *operation = malloc(sizeof *operation);
  if (operation == NULL)
    return NULL;
  *operation = (operation_t){.what = OPERATION,
                             .kind = kind,
                             .btl = btl,
                             .length = (uint32_t)length,
                             .peer = peer,
                             .local_address = local_address,
                             .local_handle = local_handle,
                             .callback = callback,
                             .context = context,
                             .data = data};
  int place = opal_pointer_array_add(&vicinity_module.operations, operation);
  operation->id = (uint32_t)place;
  if (place >= 0) {
    peer->requests++;
    return operation;
  }
  free(operation);
  return NULL;
}

/* Removes an operation from the table, and frees it. */
static void drop(operation_t *operation) {
  operation->peer->requests--;
  opal_pointer_array_set_item(&vicinity_module.operations, (int)operation->id, NULL);
  free(operation);
}

static void end(operation_t *operation, int result) {
  operation_t ended = *operation;
  drop(operation);
  if (ended.callback != NULL)
    ended.callback(ended.btl, ended.peer, ended.local_address, ended.local_handle,
                   ended.context, ended.data, result);
}

/* Reports an operation that this process has carried out by itself. */
static int done(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer, void *local_address,
                struct mca_btl_base_registration_handle_t *local_handle,
                mca_btl_base_rdma_completion_fn_t callback, void *context, void *data) {
  if (callback != NULL)
    callback(btl, peer, local_address, local_handle, context, data, OPAL_SUCCESS);
  return OPAL_SUCCESS;
}

/* Carries out a request to this process itself. */
static int request_here(operation_t *operation, const vicinity_rma_request_t *request,
                        const void *bytes, size_t length) {
  uint64_t value;
  if (request->kind == VICINITY_GET) {
    bytes = vicinity_readable(request);
    if (bytes == NULL)
      return OPAL_ERR_BAD_PARAM;
  } else {
    if (!vicinity_carry_out(request, bytes, length, &value))
      return OPAL_ERR_BAD_PARAM;
    bytes = &value;
  }
  if (request->id == VICINITY_NO_ANSWER)
    return OPAL_SUCCESS;
  vicinity_copy(operation->local_address, bytes, operation->length);
  end(operation, OPAL_SUCCESS);
  return OPAL_SUCCESS;
}

/* Sends a request, and fails the job if the peer is lost. */
static int request(operation_t *operation, vicinity_rma_request_t *request, const void *bytes,
                   size_t length) {
  if (operation->peer->plane.proc == opal_proc_local_get())
    return request_here(operation, request, bytes, length);
  if (vicinity_post(operation->peer->plane.address, VICINITY_RMA_REQUEST, request, sizeof *request, bytes,
                    length))
    return OPAL_SUCCESS;
  vicinity_fail(operation->peer->plane.proc, "an access to its memory cannot be sent");
  return OPAL_ERR_UNREACH;
}

int vicinity_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                 void *local_address, uint64_t remote_address,
                 struct mca_btl_base_registration_handle_t *local_handle,
                 struct mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags,
                 int order, mca_btl_base_rdma_completion_fn_t callback, void *context, void *data) {
  if (vicinity_put_direct(peer, local_address, remote_address, remote_handle, size))
    return done(btl, peer, local_address, local_handle, callback, context, data);
  operation_t *operation =
      begin(btl, VICINITY_PUT, peer, local_address, 0, local_handle, callback, context, data);
  (void)flags, (void)order;
  if (operation == NULL)
    return OPAL_ERR_OUT_OF_RESOURCE;
  const unsigned char *bytes = local_address;
  size_t sent = 0;
  do {
    size_t length = size - sent < VICINITY_RMA_BYTES ? size - sent : VICINITY_RMA_BYTES;
    bool last = sent + length == size;
    vicinity_rma_request_t put = {.kind = VICINITY_PUT,
                                  .id = last ? operation->id : VICINITY_NO_ANSWER,
                                  .key = remote_handle->key,
                                  .address = remote_address + sent};
    int result = request(operation, &put, bytes + sent, length);
    if (result != OPAL_SUCCESS) {
      drop(operation);
      return result;
    }
    sent += length;
  } while (sent < size);
  return OPAL_SUCCESS;
}

int vicinity_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                 void *local_address, uint64_t remote_address,
                 struct mca_btl_base_registration_handle_t *local_handle,
                 struct mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags,
                 int order, mca_btl_base_rdma_completion_fn_t callback, void *context, void *data) {
  if (vicinity_get_direct(peer, local_address, remote_address, remote_handle, size))
    return done(btl, peer, local_address, local_handle, callback, context, data);
  operation_t *operation =
      begin(btl, VICINITY_GET, peer, local_address, size, local_handle, callback, context, data);
  mx_segment_t segment = {local_address, (uint32_t)size};
  mx_request_t receive;
  (void)flags, (void)order;
  if (operation == NULL)
    return OPAL_ERR_OUT_OF_RESOURCE;
  vicinity_rma_request_t get = {.kind = VICINITY_GET,
                                .id = operation->id,
                                .key = remote_handle->key,
                                .address = remote_address,
                                .length = size};
  if (peer->plane.proc == opal_proc_local_get())
    return request(operation, &get, NULL, 0);
  vicinity_plane.requests++;
  if (vicinity_mx.irecv(vicinity_plane.endpoint, &segment, 1, VICINITY_RMA_DATA | operation->id,
                        MX_MATCH_MASK_NONE, vicinity_context(operation, VICINITY_RMA),
                        &receive) != MX_SUCCESS) {
    vicinity_plane.requests--;
    drop(operation);
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  /* After a failure the receive stays posted: the job ends. */
  return request(operation, &get, NULL, 0);
}

/* Starts an atomic operation whose result has the width that the flags say. */
static int start_atomic(operation_t *operation, vicinity_rma_request_t *atomic) {
  if (operation == NULL)
    return OPAL_ERR_OUT_OF_RESOURCE;
  atomic->id = operation->id;
  int result = request(operation, atomic, NULL, 0);
  if (result != OPAL_SUCCESS)
    drop(operation);
  return result;
}

static size_t width(int flags) {
  return flags & MCA_BTL_ATOMIC_FLAG_32BIT ? sizeof(uint32_t) : sizeof(uint64_t);
}

int vicinity_fetch(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                   void *local_address, uint64_t remote_address,
                   struct mca_btl_base_registration_handle_t *local_handle,
                   struct mca_btl_base_registration_handle_t *remote_handle,
                   mca_btl_base_atomic_op_t op, uint64_t operand, int flags, int order,
                   mca_btl_base_rdma_completion_fn_t callback, void *context, void *data) {
  /* Open MPI 4.1.4 asks for minima and maxima, too, although btl_atomic_flags does not have them. After this error it uses
     compare-and-swap. */
  if (!vicinity_is_fetch(op))
    return OPAL_ERR_NOT_SUPPORTED;
  if (vicinity_fetch_direct(peer, local_address, remote_address, remote_handle, op, operand, width(flags)))
    return done(btl, peer, local_address, local_handle, callback, context, data);
  vicinity_rma_request_t fetch = {.kind = VICINITY_FETCH,
                                  .key = remote_handle->key,
                                  .address = remote_address,
                                  .op = op,
                                  .flags = (uint32_t)flags,
                                  .operands = {operand}};
  (void)order;
  return start_atomic(
      begin(btl, VICINITY_FETCH, peer, local_address, width(flags), local_handle, callback, context, data), &fetch);
}

int vicinity_swap(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                  void *local_address, uint64_t remote_address,
                  struct mca_btl_base_registration_handle_t *local_handle,
                  struct mca_btl_base_registration_handle_t *remote_handle, uint64_t compare,
                  uint64_t value, int flags, int order, mca_btl_base_rdma_completion_fn_t callback,
                  void *context, void *data) {
  /* Open MPI 4.1.4 tries this function first also for memory that ranks of one VM share, and then
     has no handle (ompi_osc_rdma_cas_atomic). After this error it uses the processor's operation. */
  if (remote_handle == NULL)
    return OPAL_ERR_NOT_SUPPORTED;
  if (vicinity_swap_direct(peer, local_address, remote_address, remote_handle, compare, value,
                           width(flags)))
    return done(btl, peer, local_address, local_handle, callback, context, data);
  vicinity_rma_request_t swap = {.kind = VICINITY_SWAP,
                                 .key = remote_handle->key,
                                 .address = remote_address,
                                 .flags = (uint32_t)flags,
                                 .operands = {compare, value}};
  (void)order;
  return start_atomic(
      begin(btl, VICINITY_SWAP, peer, local_address, width(flags), local_handle, callback, context, data), &swap);
}

/* Ends an operation that the target has answered. */
void vicinity_answered(mx_endpoint_addr_t source, const void *data, size_t length) {
  vicinity_rma_answer_t answer;
  operation_t *operation = NULL;
  if (length == sizeof answer) {
    memcpy(&answer, data, sizeof answer);
    operation = opal_pointer_array_get_item(&vicinity_module.operations,
                                            (int)(answer.id & INT32_MAX));
  }
  if (operation == NULL || operation->kind == VICINITY_GET ||
      memcmp(&operation->peer->plane.address, &source, sizeof source) != 0) {
    vicinity_fail(NULL, "it answered what this process did not request");
    return;
  }
  memcpy(operation->local_address, &answer.value, operation->length);
  end(operation, OPAL_SUCCESS);
}

/* A message or the receive of a get has completed. */
void vicinity_rma_completed(void *owner, const mx_status_t *status) {
  if (*(int *)owner == MESSAGE) {
    sent(owner, status);
    return;
  }
  operation_t *operation = owner;
  bool whole = status->code == MX_STATUS_SUCCESS && status->xfer_length == operation->length;
  if (!whole)
    vicinity_fail(operation->peer->plane.proc, "an access to its memory failed");
  end(operation, whole ? OPAL_SUCCESS : OPAL_ERR_UNREACH);
}
