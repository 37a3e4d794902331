/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Accumulates of one integer, as one atomic operation of the component for transfers. osc/rdma takes a lock in
 * the target's process for each of them, also with the info key acc_single_intrinsic, and works on a rank's own
 * memory by loads and stores under that lock (ompi_osc_rdma_rget_accumulate_internal). So in a window with this
 * key, this file has all accumulates of one integer and a mapped operation, of a rank's own memory, too. What
 * remains for osc/rdma is other operations, which MPI does not mix with these in one word at a time
 * (accumulate_ops is same_op_no_op), and compare-and-swap, which is an atomic operation there as well.
 */
#include "find_peer.h"
#include "osc.h"

#include <mpi.h>

#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/request/request.h"
#include "opal/runtime/opal_progress.h"

/* An accumulate, as the functions of MPI have it. */
typedef struct {
  const void *origin;
  void *result; /* or NULL */
  struct ompi_datatype_t *type;
  int target;
  ptrdiff_t at;
  struct ompi_op_t *op;
} accumulate_t;

/* Returns whether the operation is one of the component's. MPI_NO_OP adds 0. */
static bool mapped(const struct ompi_op_t *op, mca_btl_base_atomic_op_t *found) {
  if (op == MPI_SUM || op == MPI_NO_OP)
    *found = MCA_BTL_ATOMIC_ADD;
  else if (op == MPI_BAND)
    *found = MCA_BTL_ATOMIC_AND;
  else if (op == MPI_BOR)
    *found = MCA_BTL_ATOMIC_OR;
  else if (op == MPI_BXOR)
    *found = MCA_BTL_ATOMIC_XOR;
  else if (op == MPI_REPLACE)
    *found = MCA_BTL_ATOMIC_SWAP;
  else
    return false;
  return true;
}

static bool is_integer(const struct ompi_datatype_t *type) {
  int kind = type->super.flags & OMPI_DATATYPE_FLAG_DATA_TYPE;
  size_t width = type->super.size;
  return ompi_datatype_is_predefined(type) && kind == OMPI_DATATYPE_FLAG_DATA_INT &&
         (width == sizeof(uint32_t) || width == sizeof(uint64_t));
}

/* Returns whether the word is one of the target's window; osc/rdma reports others. */
static bool place(const vicinity_target_t *target, ptrdiff_t at, size_t width, uint64_t *address) {
  int64_t offset;
  if (at < 0 || __builtin_mul_overflow(at, target->unit, &offset) || width > target->region.length ||
      (uint64_t)offset > target->region.length - width)
    return false;
  *address = target->region.base + (uint64_t)offset;
  return *address % width == 0;
}

static void completed(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer, void *before,
                      mca_btl_base_registration_handle_t *handle, void *done, void *data, int status) {
  (void)btl, (void)peer, (void)before, (void)handle, (void)data, (void)status;
  *(volatile bool *)done = true;
}

/* Carries an accumulate out; returns false if osc/rdma has to do it. */
static bool carry_out(const vicinity_window_t *made, const accumulate_t *it) {
  mca_btl_base_atomic_op_t op;
  size_t width = it->type->super.size;
  uint64_t operand = 0, before = 0, address;
  uint32_t half;
  volatile bool done = false;
  if (!is_integer(it->type) || !mapped(it->op, &op) || it->target < 0)
    return false;
  vicinity_target_t *target = &made->targets[it->target];
  if (!place(target, it->at, width, &address))
    return false;
  if (it->op != MPI_NO_OP && width == sizeof half) {
    memcpy(&half, it->origin, sizeof half);
    operand = half;
  } else if (it->op != MPI_NO_OP) {
    memcpy(&operand, it->origin, sizeof operand);
  }
  int flags = width == sizeof half ? MCA_BTL_ATOMIC_FLAG_32BIT : 0, result;
  /* Not osc/rdma instead: its lock does not exclude the atomic operations of other ranks. */
  while ((result = made->btl->btl_atomic_fop(made->btl, target->peer, &before, address, NULL, &target->region, op,
                                             operand, flags, MCA_BTL_NO_ORDER, completed, (void *)&done, NULL)) ==
         OPAL_ERR_OUT_OF_RESOURCE)
    opal_progress();
  if (result != OPAL_SUCCESS)
    return false;
  /* On the heap it is done already. */
  while (!done)
    opal_progress();
  if (it->result != NULL)
    memcpy(it->result, &before, width);
  return true;
}

static int fetch_and_op(const void *origin, void *result, struct ompi_datatype_t *type, int target, ptrdiff_t at,
                        struct ompi_op_t *op, struct ompi_win_t *window) {
  const vicinity_window_t *made = vicinity_find_window(window);
  if (carry_out(made, &(accumulate_t){origin, result, type, target, at, op}))
    return OMPI_SUCCESS;
  return made->rdma.osc_fetch_and_op(origin, result, type, target, at, op, window);
}

/* Carries an accumulate of one element out, as above. */
static bool accumulate_one(const vicinity_window_t *made, const accumulate_t *it, int count, int target_count,
                           const struct ompi_datatype_t *target_type) {
  return count == 1 && target_count == 1 && it->type == target_type && carry_out(made, it);
}

/* Carries an accumulate of one element with a result out, as above. `it` has the type of the target; MPI_NO_OP has
   no origin. */
static bool get_one(const vicinity_window_t *made, const accumulate_t *it, int count,
                    const struct ompi_datatype_t *type, int result_count, const struct ompi_datatype_t *result_type,
                    int target_count) {
  bool same = it->op == MPI_NO_OP || (count == 1 && type == it->type);
  return same && result_count == 1 && target_count == 1 && result_type == it->type && carry_out(made, it);
}

static int accumulate(const void *origin, int count, struct ompi_datatype_t *type, int target, ptrdiff_t at,
                      int target_count, struct ompi_datatype_t *target_type, struct ompi_op_t *op,
                      struct ompi_win_t *window) {
  const vicinity_window_t *made = vicinity_find_window(window);
  if (accumulate_one(made, &(accumulate_t){origin, NULL, type, target, at, op}, count, target_count, target_type))
    return OMPI_SUCCESS;
  return made->rdma.osc_accumulate(origin, count, type, target, at, target_count, target_type, op, window);
}

static int accumulate_request(const void *origin, int count, struct ompi_datatype_t *type, int target,
                              ptrdiff_t at, int target_count, struct ompi_datatype_t *target_type,
                              struct ompi_op_t *op, struct ompi_win_t *window, struct ompi_request_t **request) {
  const vicinity_window_t *made = vicinity_find_window(window);
  *request = &ompi_request_empty;
  if (accumulate_one(made, &(accumulate_t){origin, NULL, type, target, at, op}, count, target_count, target_type))
    return OMPI_SUCCESS;
  return made->rdma.osc_raccumulate(origin, count, type, target, at, target_count, target_type, op, window,
                                    request);
}

static int get_accumulate(const void *origin, int count, struct ompi_datatype_t *type, void *result,
                          int result_count, struct ompi_datatype_t *result_type, int target, ptrdiff_t at,
                          int target_count, struct ompi_datatype_t *target_type, struct ompi_op_t *op,
                          struct ompi_win_t *window) {
  const vicinity_window_t *made = vicinity_find_window(window);
  if (get_one(made, &(accumulate_t){origin, result, target_type, target, at, op}, count, type, result_count,
              result_type, target_count))
    return OMPI_SUCCESS;
  return made->rdma.osc_get_accumulate(origin, count, type, result, result_count, result_type, target, at,
                                       target_count, target_type, op, window);
}

static int get_accumulate_request(const void *origin, int count, struct ompi_datatype_t *type, void *result,
                                  int result_count, struct ompi_datatype_t *result_type, int target, ptrdiff_t at,
                                  int target_count, struct ompi_datatype_t *target_type, struct ompi_op_t *op,
                                  struct ompi_win_t *window, struct ompi_request_t **request) {
  const vicinity_window_t *made = vicinity_find_window(window);
  *request = &ompi_request_empty;
  if (get_one(made, &(accumulate_t){origin, result, target_type, target, at, op}, count, type, result_count,
              result_type, target_count))
    return OMPI_SUCCESS;
  return made->rdma.osc_rget_accumulate(origin, count, type, result, result_count, result_type, target, at,
                                        target_count, target_type, op, window, request);
}

/* Tells all ranks where the memory of each is. Returns whether all ranks can reach all. */
static int exchange(vicinity_window_t *made, const vicinity_target_t *own, struct ompi_communicator_t *ranks,
                    int *all) {
  int size = ompi_comm_size(ranks), ready = made->targets != NULL && (own->region.length == 0 || made->own != NULL);
  int result = PMPI_Allreduce(&ready, all, 1, MPI_INT, MPI_MIN, ranks);
  if (result != MPI_SUCCESS || !*all)
    return result;
  result = PMPI_Allgather(own, sizeof *own, MPI_BYTE, made->targets, sizeof *own, MPI_BYTE, ranks);
  for (int i = 0; i < size; i++) {
    made->targets[i].peer = vicinity_find_peer(made->btl, ranks, i);
    ready = ready && made->targets[i].peer != NULL;
  }
  return result != MPI_SUCCESS ? result : PMPI_Allreduce(&ready, all, 1, MPI_INT, MPI_MIN, ranks);
}

int vicinity_atomics_start(vicinity_window_t *made, struct ompi_win_t *window, void *base, size_t size, int unit,
                           struct ompi_communicator_t *ranks) {
  vicinity_target_t own = {.unit = unit};
  int all = 0;
  made->btl = vicinity_find_transfers();
  made->targets = calloc((size_t)ompi_comm_size(ranks), sizeof *made->targets);
  if (made->btl != NULL && size > 0)
    made->own = made->btl->btl_register_mem(made->btl, MCA_BTL_ENDPOINT_ANY, base, size, MCA_BTL_REG_FLAG_ACCESS_ANY);
  if (made->own != NULL)
    own.region = *made->own;
  else
    own.region.length = size;
  int result = exchange(made, &own, ranks, &all);
  if (result != MPI_SUCCESS || !all) {
    vicinity_atomics_stop(made);
    return result;
  }
  ompi_osc_base_module_t *functions = window->w_osc_module;
  functions->osc_fetch_and_op = fetch_and_op;
  functions->osc_accumulate = accumulate;
  functions->osc_raccumulate = accumulate_request;
  functions->osc_get_accumulate = get_accumulate;
  functions->osc_rget_accumulate = get_accumulate_request;
  return MPI_SUCCESS;
}

void vicinity_atomics_stop(vicinity_window_t *made) {
  if (made->own != NULL)
    made->btl->btl_deregister_mem(made->btl, made->own);
  made->own = NULL;
  free(made->targets);
  made->targets = NULL;
}
