/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The component: its parameters, the check of Open MPI's version, start and end. */
#include "rma.h"
#include "version.h"

#include "opal/mca/base/mca_base_var.h"

const char vicinity_name[] = "btl:vicinity";

int vicinity_stream(void) { return opal_btl_base_framework.framework_output; }

static bool usable = true;

static int parameter(const char *name, const char *what, mca_base_var_type_t type, void *storage) {
  return mca_base_component_var_register(&mca_btl_vicinity_component.super.btl_version, name, what,
                                         type, NULL, 0, 0, OPAL_INFO_LVL_4,
                                         MCA_BASE_VAR_SCOPE_LOCAL, storage);
}

static int register_parameters(void) {
  vicinity_component_t *component = &mca_btl_vicinity_component;
  mca_btl_base_module_t *module = &vicinity_module.super;
  usable = vicinity_version_fits("btl:vicinity");
  if (!usable)
    return OPAL_ERR_NOT_AVAILABLE;
  component->library = "libmyriexpress.so";
  parameter("library", "File name of the message plane's C library", MCA_BASE_VAR_TYPE_STRING,
            &component->library);
  component->connect_timeout = 10000;
  parameter("connect_timeout", "Milliseconds that a peer has to answer before another BTL is used",
            MCA_BASE_VAR_TYPE_INT, &component->connect_timeout);
  component->long_by_tcp = true;
  parameter("long_by_tcp", "Whether tcp, where it is in use, carries the long messages to ranks on other hosts",
            MCA_BASE_VAR_TYPE_BOOL, &component->long_by_tcp);
  component->fragments_max = -1;
  parameter("free_list_max", "Largest number of fragments of each kind (-1: no limit)",
            MCA_BASE_VAR_TYPE_INT, &component->fragments_max);
  module->btl_exclusivity = MCA_BTL_EXCLUSIVITY_DEFAULT;
  module->btl_eager_limit = VICINITY_IN_PLACE_MAX;
  module->btl_rndv_eager_limit = 8192;
  module->btl_max_send_size = VICINITY_IN_PLACE_MAX;
  module->btl_rdma_pipeline_send_length = 0;
  module->btl_rdma_pipeline_frag_size = 0;
  /* ob1 then sends messages, and does not put them in pieces that the receiver requests. */
  module->btl_min_rdma_pipeline_size = SIZE_MAX;
  module->btl_put_limit = 1 << 20;
  module->btl_get_limit = 1 << 30;
  /* osc/rdma then does not copy through memory of its own, since no local memory needs a handle. */
  module->btl_put_local_registration_threshold = SIZE_MAX;
  module->btl_get_local_registration_threshold = SIZE_MAX;
  module->btl_registration_handle_size = sizeof(struct mca_btl_base_registration_handle_t);
  module->btl_atomic_flags = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_AND |
                             MCA_BTL_ATOMIC_SUPPORTS_OR | MCA_BTL_ATOMIC_SUPPORTS_XOR |
                             MCA_BTL_ATOMIC_SUPPORTS_SWAP | MCA_BTL_ATOMIC_SUPPORTS_CSWAP |
                             MCA_BTL_ATOMIC_SUPPORTS_32BIT;
  module->btl_latency = 1;
  module->btl_bandwidth = 40000;
  /* All processes connect in MPI_Init, when each of them is in the library and answers. */
  module->btl_flags =
      MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_SEND_INPLACE | MCA_BTL_FLAGS_SINGLE_ADD_PROCS |
      MCA_BTL_FLAGS_PUT | MCA_BTL_FLAGS_GET | MCA_BTL_FLAGS_ATOMIC_FOPS | VICINITY_FLAGS;
  return mca_btl_base_param_register(&component->super.btl_version, module);
}

static int open_component(void) { return usable ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE; }

static int close_component(void) { return OPAL_SUCCESS; }

void vicinity_fail(struct opal_proc_t *proc, const char *reason) {
  vicinity_module_t *module = &vicinity_module;
  if (vicinity_plane.failed)
    return;
  vicinity_plane.failed = true;
  char text[256];
  vicinity_loss(proc, reason, text, sizeof text);
  /* ob1 prints the text and ends the job (mca_pml_ob1_error_handler). */
  if (module->error == NULL)
    opal_output(0, "%s", text);
  else
    module->error(&module->super, MCA_BTL_ERROR_FLAGS_FATAL, proc, text);
}

static int fragment_made(opal_free_list_item_t *item, void *context) {
  vicinity_fragment_t *fragment = (vicinity_fragment_t *)item;
  fragment->list = context;
  return OPAL_SUCCESS;
}

static int make_list(opal_free_list_t *list, size_t capacity, int first) {
  OBJ_CONSTRUCT(list, opal_free_list_t);
  return opal_free_list_init(list, sizeof(vicinity_fragment_t) + capacity, 64,
                             OBJ_CLASS(vicinity_fragment_t), 0, 0, first,
                             mca_btl_vicinity_component.fragments_max, 32, NULL, 0, NULL,
                             fragment_made, list);
}

static mca_btl_base_module_t **start(int *count, bool progress_threads, bool mpi_threads) {
  vicinity_module_t *module = &vicinity_module;
  char reason[256] = "";
  /* progress_threads is always true. Above MPI_THREAD_SINGLE, a thread of another component may call. */
  bool threads = mpi_threads || opal_using_threads();
  *count = 0;
  if (!vicinity_open(mca_btl_vicinity_component.library, threads, reason, sizeof reason)) {
    VICINITY_EXPLAIN("the message plane is not used, because it cannot be opened: %s", reason);
    return NULL;
  }
  if (mca_btl_vicinity_component.long_by_tcp)
    vicinity_plane.flags |= VICINITY_LONG_BY_TCP;
  OBJ_CONSTRUCT(&module->region_lock, opal_mutex_t);
  OBJ_CONSTRUCT(&module->regions, opal_pointer_array_t);
  OBJ_CONSTRUCT(&module->operations, opal_pointer_array_t);
  if (make_list(&module->small_fragments, VICINITY_SMALL_FRAGMENT, 32) != OPAL_SUCCESS ||
      make_list(&module->large_fragments, vicinity_large_fragment(), 0) != OPAL_SUCCESS ||
      vicinity_publish(&mca_btl_vicinity_component.super.btl_version) != OPAL_SUCCESS)
    return NULL;
  mca_btl_base_module_t **modules = calloc(2, sizeof *modules);
  if (modules == NULL)
    return NULL;
  vicinity_other_hosts_start();
  modules[0] = &module->super;
  modules[1] = &vicinity_other_hosts;
  *count = 2;
  mca_btl_vicinity_component.heap = &vicinity_heap;
  return modules;
}

/* Called for each module, after the job's last barrier. */
static int finalize(mca_btl_base_module_t *btl) {
  vicinity_module_t *module = &vicinity_module;
  if (btl != &module->super)
    return OPAL_SUCCESS;
  mca_btl_vicinity_component.heap = NULL;
  vicinity_close();
  vicinity_other_hosts_stop();
  OBJ_DESTRUCT(&module->operations);
  OBJ_DESTRUCT(&module->regions);
  OBJ_DESTRUCT(&module->region_lock);
  OBJ_DESTRUCT(&module->large_fragments);
  OBJ_DESTRUCT(&module->small_fragments);
  return OPAL_SUCCESS;
}

static int register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t function) {
  (void)btl;
  vicinity_module.error = function;
  return OPAL_SUCCESS;
}

vicinity_module_t vicinity_module = {
    .super =
        {
            .btl_component = &mca_btl_vicinity_component.super,
            .btl_add_procs = vicinity_add_procs,
            .btl_del_procs = vicinity_del_procs,
            .btl_finalize = finalize,
            .btl_alloc = vicinity_alloc,
            .btl_free = vicinity_free,
            .btl_prepare_src = vicinity_prepare,
            .btl_send = vicinity_send,
            .btl_sendi = vicinity_send_immediate,
            .btl_put = vicinity_put,
            .btl_get = vicinity_get,
            .btl_atomic_fop = vicinity_fetch,
            .btl_atomic_cswap = vicinity_swap,
            .btl_register_mem = vicinity_register,
            .btl_deregister_mem = vicinity_deregister,
            .btl_register_error = register_error,
        },
};

vicinity_component_t mca_btl_vicinity_component = {
    .super =
        {
            .btl_version =
                {
                    MCA_BTL_DEFAULT_VERSION("vicinity"),
                    .mca_open_component = open_component,
                    .mca_close_component = close_component,
                    .mca_register_component_params = register_parameters,
                },
            .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT},
            .btl_init = start,
            .btl_progress = NULL, /* vicinity_progress, as soon as there is a peer: see vicinity_add_procs */
        },
};
