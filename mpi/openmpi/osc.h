/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A window whose memory is on the heaps of the ranks' VMs: osc.c makes it, osc_atomic.c has its atomic operations. */
#ifndef OSC_VICINITY_H
#define OSC_VICINITY_H

#include "rma.h"

#include "ompi/mca/osc/base/base.h"
#include "ompi/mca/osc/osc.h"

/* The memory of a rank in the window. */
typedef struct {
  struct mca_btl_base_endpoint_t *peer;
  struct mca_btl_base_registration_handle_t region;
  int64_t unit; /* bytes of a displacement of 1 */
} vicinity_target_t;

typedef struct vicinity_window {
  struct vicinity_window *next;
  const struct ompi_win_t *window;
  void *memory;              /* to free with the window, or NULL */
  ompi_osc_base_module_t rdma; /* the functions of osc/rdma */
  mca_btl_base_module_t *btl;
  vicinity_target_t *targets; /* of each rank; NULL: osc/rdma carries out atomic operations */
  struct mca_btl_base_registration_handle_t *own;
} vicinity_window_t;

/* osc.c: returns a window of this component. */
const vicinity_window_t *vicinity_find_window(const struct ompi_win_t *window);

/* osc_atomic.c. All ranks of the window call `start`, and have the same result. */
int vicinity_atomics_start(vicinity_window_t *made, struct ompi_win_t *window, void *base, size_t size, int unit,
                           struct ompi_communicator_t *ranks);
void vicinity_atomics_stop(vicinity_window_t *made);

#endif
