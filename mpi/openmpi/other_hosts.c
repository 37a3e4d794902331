/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Peers on other hosts, to which `tcp` sends long messages.
 *
 * A short message is faster by the message plane. A long one has many frames there, each of which passes the kernel's network
 * stack alone, where TCP's segments pass it by dozens at once (docs/design/2026-11-long-messages-by-tcp.md).
 *
 * Open MPI sends to a peer by all modules that have the highest exclusivity for this peer: first fragments and control by the one with
 * the least latency, and the rest of a message by each one according to its bandwidth (mca_bml_r2_endpoint_add_btl,
 * mca_pml_ob1_calc_weighted_length). So these peers have a module with tcp's exclusivity, a lower latency and nearly no
 * bandwidth.
 *
 * A window needs one module for all its ranks. So if there is such a peer, this module has all peers of the message plane. Those
 * that Open MPI has by the other module are added for one-sided operations only, because its exclusivity is higher.
 */
#include "rma.h"

mca_btl_base_module_t vicinity_other_hosts;

static opal_pointer_array_t reached; /* every peer */
static bool any;                     /* whether this module sends to one of them */

/* Returns the peer of a process. Open MPI adds processes to both modules in the same order, so the place is that of the last one found,
   and the next. */
static struct mca_btl_base_endpoint_t *find(const struct opal_proc_t *proc, int *place) {
  int size = opal_pointer_array_get_size(&reached);
  for (int i = 0; i < size; i++, *place = (*place + 1) % size) {
    struct mca_btl_base_endpoint_t *peer = opal_pointer_array_get_item(&reached, *place);
    if (peer != NULL && peer->plane.proc == proc)
      return peer;
  }
  return NULL;
}

/* Called after vicinity_add_procs for the same processes, because the exclusivity is lower. */
static int add_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                     struct mca_btl_base_endpoint_t **peers, opal_bitmap_t *reachable) {
  int place = 0;
  (void)btl;
  for (size_t i = 0; i < count; i++) {
    peers[i] = any ? find(procs[i], &place) : NULL;
    if (peers[i] != NULL && reachable != NULL)
      opal_bitmap_set_bit(reachable, (int)i);
  }
  return OPAL_SUCCESS;
}

void vicinity_other_hosts_start(void) {
  mca_btl_base_module_t *module = &vicinity_other_hosts;
  *module = vicinity_module.super;
  module->btl_add_procs = add_procs;
  module->btl_bandwidth = 1;
  /* A message of this module alone, or the first part of one that tcp has the rest of. */
  if (module->btl_eager_limit > module->btl_rndv_eager_limit)
    module->btl_eager_limit = module->btl_rndv_eager_limit;
  /* tcp's by default. Open MPI sorts modules by this before it adds processes. */
  module->btl_exclusivity = MCA_BTL_EXCLUSIVITY_LOW + 100;
  any = false;
  OBJ_CONSTRUCT(&reached, opal_pointer_array_t);
}

bool vicinity_other_hosts_take(struct mca_btl_base_endpoint_t *peer) {
  const mca_btl_base_module_t *tcp = vicinity_find_module("tcp");
  bool both_want = vicinity_plane.flags & peer->plane.flags & VICINITY_LONG_BY_TCP;
  bool takes = peer->plane.other_host && both_want && tcp != NULL;
  opal_pointer_array_add(&reached, peer);
  if (!takes)
    return false;
  any = true;
  peer->module = &vicinity_other_hosts;
  peer->module->btl_exclusivity = tcp->btl_exclusivity;
  VICINITY_EXPLAIN("%s is on another host: long messages are left to tcp", OPAL_NAME_PRINT(peer->plane.proc->proc_name));
  return true;
}

void vicinity_other_hosts_stop(void) { OBJ_DESTRUCT(&reached); }
