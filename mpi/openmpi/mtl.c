/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The MTL: its parameters, when Open MPI may choose it, start and end. */
#include "mtl.h"
#include "version.h"

#include "opal/mca/base/mca_base_var.h"
#include "opal/runtime/opal_progress.h"

const char vicinity_name[] = "mtl:vicinity";

int vicinity_stream(void) { return ompi_mtl_base_framework.framework_output; }

static bool usable = true;

static int register_parameters(void) {
  const mca_base_component_t *component = &mca_mtl_vicinity_component.mtl_version;
  usable = vicinity_version_fits(vicinity_name);
  if (!usable)
    return OPAL_ERR_NOT_AVAILABLE;
  vicinity_mtl.library = "libmyriexpress.so";
  mca_base_component_var_register(component, "library", "File name of the message plane's C library",
                                  MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0, OPAL_INFO_LVL_4, MCA_BASE_VAR_SCOPE_LOCAL,
                                  &vicinity_mtl.library);
  vicinity_mtl.connect_timeout = 10000;
  mca_base_component_var_register(component, "connect_timeout",
                                  "Milliseconds that a peer has to answer before MPI_Init fails",
                                  MCA_BASE_VAR_TYPE_INT, NULL, 0, 0, OPAL_INFO_LVL_4, MCA_BASE_VAR_SCOPE_LOCAL,
                                  &vicinity_mtl.connect_timeout);
  return OPAL_SUCCESS;
}

static int open_component(void) { return usable ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE; }

static int close_component(void) { return OPAL_SUCCESS; }

/* Whether the parameter `pml` names cm. Without it, Open MPI starts each PML, and so this component, to choose one of
   them; and cm would be wrong in a job with a rank that the message plane does not reach. */
static bool cm_is_wanted(void) {
  char **value = NULL;
  int index = mca_base_var_find("ompi", "pml", NULL, NULL);
  if (index < 0 || mca_base_var_get_value(index, &value, NULL, NULL) != OPAL_SUCCESS || value == NULL || *value == NULL ||
      **value == '^')
    return false;
  char *names = strdup(*value), *rest = NULL;
  bool found = false;
  for (char *name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
    found = found || !strcmp(name, "cm");
  free(names);
  return found;
}

static int query(mca_base_module_t **module, int *priority) {
  if (!cm_is_wanted())
    return OPAL_ERR_NOT_AVAILABLE;
  *module = (mca_base_module_t *)&vicinity_mtl.super;
  /* Below the MTLs of networks. */
  *priority = 10;
  return OPAL_SUCCESS;
}

static mca_mtl_base_module_t *start(bool mpi_threads) {
  vicinity_mtl_t *mtl = &vicinity_mtl;
  char reason[256] = "";
  /* Above MPI_THREAD_SINGLE, a thread of another component may call. */
  bool threads = mpi_threads || opal_using_threads();
  if (!vicinity_open(mtl->library, threads, reason, sizeof reason)) {
    opal_output(0, "%s: the message plane cannot be opened: %s. Without `--mca pml cm`, Open MPI does not need it.",
                vicinity_name, reason);
    return NULL;
  }
  OBJ_CONSTRUCT(&mtl->peers_lock, opal_mutex_t);
  OBJ_CONSTRUCT(&mtl->matching_lock, opal_mutex_t);
  mtl->posted_end = &mtl->posted;
  mtl->unexpected_end = &mtl->unexpected;
  return vicinity_publish(&mca_mtl_vicinity_component.mtl_version) == OPAL_SUCCESS ? &mtl->super : NULL;
}

VICINITY_MTL_INIT(init, start)

static int finalize(mca_mtl_base_module_t *module) {
  vicinity_close();
  opal_progress_unregister(vicinity_progress);
  OBJ_DESTRUCT(&vicinity_mtl.matching_lock);
  OBJ_DESTRUCT(&vicinity_mtl.peers_lock);
  return OMPI_SUCCESS;
}

static int nothing(mca_mtl_base_module_t *module, struct ompi_communicator_t *comm) { return OMPI_SUCCESS; }

vicinity_mtl_t vicinity_mtl = {
    .super =
        {
            .mtl_max_contextid = 65535,
            .mtl_max_tag = MTL_TAG_MAX,
            .mtl_request_size = sizeof(vicinity_request_t) - sizeof(mca_mtl_request_t),
            /* All processes connect in MPI_Init, when each of them is in the library and answers. */
            .mtl_flags = MCA_MTL_BASE_FLAG_REQUIRE_WORLD,
            .mtl_add_procs = vicinity_mtl_add_procs,
            .mtl_del_procs = vicinity_mtl_del_procs,
            .mtl_finalize = finalize,
            .mtl_send = vicinity_mtl_send,
            .mtl_isend = vicinity_mtl_isend,
            .mtl_irecv = vicinity_mtl_irecv,
            .mtl_iprobe = vicinity_mtl_iprobe,
            .mtl_imrecv = vicinity_mtl_imrecv,
            .mtl_improbe = vicinity_mtl_improbe,
            .mtl_cancel = vicinity_mtl_cancel,
            .mtl_add_comm = nothing,
            .mtl_del_comm = nothing,
        },
};

mca_mtl_base_component_2_0_0_t mca_mtl_vicinity_component = {
    .mtl_version =
        {
            MCA_MTL_BASE_VERSION_2_0_0,
            .mca_component_name = "vicinity",
            MCA_BASE_MAKE_VERSION(component, OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION),
            .mca_open_component = open_component,
            .mca_close_component = close_component,
            .mca_query_component = query,
            .mca_register_component_params = register_parameters,
        },
    .mtl_data = {MCA_BASE_METADATA_PARAM_NONE},
    .mtl_init = init,
};
