/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Requests: where they come from, how they complete, and when they are used again. */
#include "pml.h"

/* Takes one of a request's two holders away. Returns whether that was the last one. */
static bool was_last(vicinity_request_t *request) {
  if (opal_using_threads())
    return atomic_fetch_sub(&request->holders, 1) == 1;
  /* Without threads, a locked instruction would be in vain. */
  int left = atomic_load_explicit(&request->holders, memory_order_relaxed) - 1;
  atomic_store_explicit(&request->holders, left, memory_order_relaxed);
  return left == 0;
}

void vicinity_let_go(vicinity_request_t *request) {
  if (!was_last(request))
    return;
  if (request->super.req_persistent) {
    OBJ_RELEASE(request->buffer.datatype);
    OBJ_RELEASE(request->comm);
  }
  opal_free_list_return(&vicinity_pml.requests, &request->super.super);
}

/* The program may free a request that is not complete (MPI_Request_free). */
static int free_request(ompi_request_t **pointer) {
  ompi_request_t *request = *pointer;
  *pointer = MPI_REQUEST_NULL;
  OMPI_REQUEST_FINI(request);
  vicinity_let_go((vicinity_request_t *)request);
  return OMPI_SUCCESS;
}

/* A send is never cancelled: its bytes may be in the receiver's memory. */
static int cancel(ompi_request_t *base, int flag) {
  vicinity_request_t *request = (vicinity_request_t *)base;
  if (!request->receives)
    return OMPI_SUCCESS;
  OPAL_THREAD_LOCK(&vicinity_pml.matching_lock);
  bool cancelled = vicinity_remove_posted(request);
  OPAL_THREAD_UNLOCK(&vicinity_pml.matching_lock);
  if (cancelled) {
    base->req_status._cancelled = true;
    vicinity_complete(request);
  }
  return OMPI_SUCCESS;
}

static void construct(vicinity_request_t *request) {
  request->super.req_type = OMPI_REQUEST_PML;
  request->super.req_start = vicinity_pml_start;
  request->super.req_free = free_request;
  request->super.req_cancel = cancel;
  OBJ_CONSTRUCT(&request->convertor, opal_convertor_t);
}

static void destruct(vicinity_request_t *request) { OBJ_DESTRUCT(&request->convertor); }

OBJ_CLASS_INSTANCE(vicinity_request_t, ompi_request_t, construct, destruct);

int vicinity_make_requests(void) {
  OBJ_CONSTRUCT(&vicinity_pml.requests, opal_free_list_t);
  return opal_free_list_init(&vicinity_pml.requests, sizeof(vicinity_request_t), opal_cache_line_size,
                             OBJ_CLASS(vicinity_request_t), 0, 0, 128, -1, 128, NULL, 0, NULL, NULL, NULL);
}

vicinity_request_t *vicinity_new_request(struct ompi_communicator_t *comm, bool receives, bool persistent) {
  vicinity_request_t *request = (vicinity_request_t *)opal_free_list_get(&vicinity_pml.requests);
  if (request == NULL)
    return NULL;
  OMPI_REQUEST_INIT(&request->super, persistent);
  request->super.req_mpi_object.comm = comm;
  request->super.req_status.MPI_ERROR = MPI_SUCCESS;
  request->super.req_status._cancelled = false;
  request->receives = receives;
  request->buffered = false;
  request->packed = NULL;
  request->unpacking = NULL;
  if (!persistent)
    request->super.req_state = OMPI_REQUEST_ACTIVE;
  atomic_store_explicit(&request->holders, persistent ? 1 : 2, memory_order_relaxed);
  return request;
}

vicinity_request_t *vicinity_new_persistent(const void *base, size_t count, struct ompi_datatype_t *datatype, int rank,
                                            int tag, struct ompi_communicator_t *comm, bool receives) {
  vicinity_request_t *request = vicinity_new_request(comm, receives, true);
  if (request == NULL)
    return NULL;
  /* The program may free both while it has the request. */
  OBJ_RETAIN(datatype);
  OBJ_RETAIN(comm);
  request->buffer = (vicinity_buffer_t){(unsigned char *)(uintptr_t)base, count, datatype};
  request->comm = comm;
  request->rank = rank;
  request->tag = tag;
  return request;
}

void vicinity_complete(vicinity_request_t *request) {
  ompi_request_t *base = &request->super;
  if (request->unpacking != NULL) {
    opal_convertor_cleanup(&request->convertor);
    OBJ_RELEASE(request->unpacking);
    request->unpacking = NULL;
  }
  if (opal_using_threads() || base->req_complete_cb != NULL) {
    ompi_request_complete(base, true);
  } else {
    /* The same without a locked instruction: nobody else writes now. */
    ompi_wait_sync_t *waiting = (ompi_wait_sync_t *)(uintptr_t)base->req_complete;
    base->req_complete = REQUEST_COMPLETED;
    if (waiting != (ompi_wait_sync_t *)(uintptr_t)REQUEST_PENDING)
      wait_sync_update(waiting, 1, base->req_status.MPI_ERROR);
  }
  vicinity_let_go(request);
}

int vicinity_wait(vicinity_request_t *request, ompi_status_public_t *status) {
  ompi_request_t *base = &request->super;
  ompi_request_wait_completion(base);
  int error = base->req_status.MPI_ERROR;
  if (status != MPI_STATUS_IGNORE) {
    int kept = status->MPI_ERROR;
    *status = base->req_status;
    /* Only functions with several statuses set this field (MPI 3.1, section 3.2.5). */
    status->MPI_ERROR = kept;
  }
  ompi_request_free(&base);
  return error;
}

int vicinity_pml_start(size_t count, ompi_request_t **requests) {
  for (size_t i = 0; i < count; i++) {
    vicinity_request_t *request = (vicinity_request_t *)requests[i];
    if (request == NULL || request->super.req_type != OMPI_REQUEST_PML)
      continue;
    request->super.req_status.MPI_ERROR = MPI_SUCCESS;
    request->super.req_status._cancelled = false;
    request->super.req_complete = REQUEST_PENDING;
    request->super.req_state = OMPI_REQUEST_ACTIVE;
    atomic_fetch_add(&request->holders, 1);
    int result = request->receives ? vicinity_start_receive(request) : vicinity_start_send(request);
    if (result != OMPI_SUCCESS)
      return result;
  }
  return OMPI_SUCCESS;
}
