/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* For which peers Open MPI uses this component. */
#include "vicinity.h"

const mca_btl_base_module_t *vicinity_find_module(const char *name) {
  mca_btl_base_selected_module_t *selected;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    if (!strcmp(name, selected->btl_component->btl_version.mca_component_name))
      return selected->btl_module;
  return NULL;
}

/* Whether Open MPI's own shared memory is in use, which has precedence inside a VM. */
static bool shared_memory_in_use(void) {
  const mca_btl_base_module_t *module = vicinity_find_module(VICINITY_SHARED_MEMORY);
  return module != NULL && module->btl_exclusivity > vicinity_module.super.btl_exclusivity;
}

bool vicinity_has_other_network(void) { return vicinity_find_module("tcp") != NULL; }

void vicinity_unreachable(struct opal_proc_t *proc, const char *reason) {
  VICINITY_EXPLAIN("%s cannot be reached by the message plane (%s); another BTL is used",
                   OPAL_NAME_PRINT(proc->proc_name), reason);
}

/* Whether a connect to this VM's ranks would take memory of the plane for nothing. They send through
   Open MPI's shared memory, but a window of MPI needs one component that reaches all its ranks. Open MPI adds these ranks together when
   MPI starts; above another PML than ob1, it adds each alone, when a window needs the rank. */
static bool local_peers_are_served(size_t count, struct opal_proc_t **procs) {
  if (count == 1)
    return false;
  for (size_t i = 0; i < count; i++)
    if (!OPAL_PROC_ON_LOCAL_NODE(procs[i]->proc_flags))
      return false;
  return shared_memory_in_use();
}

int vicinity_add_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                       struct mca_btl_base_endpoint_t **peers, opal_bitmap_t *reachable) {
  bool skip_local = local_peers_are_served(count, procs);
  vicinity_peer_t **found = calloc(count, sizeof *found);
  if (found == NULL)
    return OPAL_ERR_OUT_OF_RESOURCE;
  for (size_t i = 0; i < count; i++) {
    bool served = skip_local && procs[i] != opal_proc_local_get() && OPAL_PROC_ON_LOCAL_NODE(procs[i]->proc_flags);
    peers[i] = served ? NULL : calloc(1, sizeof *peers[i]);
    found[i] = peers[i] == NULL ? NULL : &peers[i]->plane;
  }
  int result = vicinity_connect(count, procs, found, mca_btl_vicinity_component.connect_timeout);
  for (size_t i = 0; i < count; i++) {
    if (peers[i] != NULL && peers[i]->plane.proc == NULL) {
      free(peers[i]);
      peers[i] = NULL;
    }
    if (peers[i] == NULL)
      continue;
    peers[i]->module = btl;
    if (vicinity_other_hosts_take(peers[i]))
      peers[i] = NULL;
    else if (reachable != NULL)
      opal_bitmap_set_bit(reachable, (int)i);
  }
  free(found);
  /* Open MPI looks at this field after this call, and then calls the function in each turn of its progress
     (mca_bml_r2_register_progress), because this process is its own peer. A job whose ranks are reached by
     another BTL alone is to pay nothing for this one. */
  if (vicinity_plane.peers > 0)
    mca_btl_vicinity_component.super.btl_progress = vicinity_progress;
  return result;
}

/* Called when MPI ends. The link stays until the endpoint is closed, because the peer may still read
   what was sent, and so does the peer's structure, which the watch refers to. */
int vicinity_del_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                       struct mca_btl_base_endpoint_t **peers) {
  (void)btl, (void)procs;
  for (size_t i = 0; i < count; i++)
    peers[i] = NULL;
  return OPAL_SUCCESS;
}
