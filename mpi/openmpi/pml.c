/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The PML: its parameters, when Open MPI may choose it, start and end. */
#include "pml.h"
#include "version.h"

#include "ompi/mca/bml/base/base.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/runtime/opal_progress.h"

const char vicinity_name[] = "pml:vicinity";

int vicinity_stream(void) { return ompi_pml_base_framework.framework_output; }

static bool usable = true;

static int register_parameters(void) {
  const mca_base_component_t *component = &mca_pml_vicinity_component.super.pmlm_version;
  usable = vicinity_version_fits(vicinity_name);
  if (usable && ompi_request_t_class.cls_sizeof != sizeof(ompi_request_t)) {
    vicinity_other_build(vicinity_name);
    usable = false;
  }
  if (!usable)
    return OPAL_ERR_NOT_AVAILABLE;
  vicinity_pml.library = "libmyriexpress.so";
  mca_base_component_var_register(component, "library", "File name of the message plane's C library",
                                  MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0, OPAL_INFO_LVL_4, MCA_BASE_VAR_SCOPE_LOCAL,
                                  &vicinity_pml.library);
  vicinity_pml.connect_timeout = 10000;
  mca_base_component_var_register(component, "connect_timeout",
                                  "Milliseconds that a peer has to answer before MPI_Init fails",
                                  MCA_BASE_VAR_TYPE_INT, NULL, 0, 0, OPAL_INFO_LVL_4, MCA_BASE_VAR_SCOPE_LOCAL,
                                  &vicinity_pml.connect_timeout);
  return OPAL_SUCCESS;
}

static int open_component(void) { return usable ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE; }

static int close_component(void) { return OPAL_SUCCESS; }

/* Whether the parameter `pml` names this component. Without it, Open MPI starts each PML to choose one of them; and this
   one would be wrong in a job with a rank that the message plane does not reach. */
static bool is_wanted(void) {
  char **value = NULL;
  int index = mca_base_var_find("ompi", "pml", NULL, NULL);
  if (index < 0 || mca_base_var_get_value(index, &value, NULL, NULL) != OPAL_SUCCESS || value == NULL || *value == NULL ||
      **value == '^')
    return false;
  char *names = strdup(*value), *rest = NULL;
  bool found = false;
  for (char *name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
    found = found || !strcmp(name, "vicinity");
  free(names);
  return found;
}

static mca_pml_base_module_t module;

static mca_pml_base_module_t *start(int *priority, bool progress_threads, bool mpi_threads) {
  vicinity_pml_t *pml = &vicinity_pml;
  char reason[256] = "";
  if (!is_wanted())
    return NULL;
  *priority = 100;
  /* Above MPI_THREAD_SINGLE, a thread of another component may call. */
  bool threads = mpi_threads || opal_using_threads();
  if (!vicinity_open(pml->library, threads, reason, sizeof reason)) {
    opal_output(0, "%s: the message plane cannot be opened: %s. Without `--mca pml vicinity`, Open MPI does not need it.",
                vicinity_name, reason);
    return NULL;
  }
  OBJ_CONSTRUCT(&pml->peers_lock, opal_mutex_t);
  OBJ_CONSTRUCT(&pml->matching_lock, opal_mutex_t);
  pml->posted_end = &pml->posted;
  pml->unexpected_end = &pml->unexpected;
  /* Windows use the BTLs. Open MPI 5.0 leaves it to the PML to start them. They publish where they take messages, so it cannot be done later. If
     it fails, programs without windows work. */
  (void)mca_bml_base_init(progress_threads, mpi_threads);
  if (vicinity_make_requests() != OPAL_SUCCESS ||
      vicinity_publish(&mca_pml_vicinity_component.super.pmlm_version) != OPAL_SUCCESS)
    return NULL;
  mca_pml_vicinity_component.heap = &vicinity_heap;
  return &module;
}

static int finalize(void) {
  mca_pml_vicinity_component.heap = NULL;
  vicinity_close();
  opal_progress_unregister(vicinity_progress);
  OBJ_DESTRUCT(&vicinity_pml.requests);
  OBJ_DESTRUCT(&vicinity_pml.matching_lock);
  OBJ_DESTRUCT(&vicinity_pml.peers_lock);
  return OMPI_SUCCESS;
}

static int enable(bool enabled) { return OMPI_SUCCESS; }

static int nothing(struct ompi_communicator_t *comm) { return OMPI_SUCCESS; }

static int dump(struct ompi_communicator_t *comm, int verbose) { return OMPI_SUCCESS; }

vicinity_pml_t vicinity_pml;

static mca_pml_base_module_t module = {
    .pml_add_procs = vicinity_pml_add_procs,
    .pml_del_procs = vicinity_pml_del_procs,
    .pml_enable = enable,
    .pml_add_comm = nothing,
    .pml_del_comm = nothing,
    .pml_irecv_init = vicinity_pml_irecv_init,
    .pml_irecv = vicinity_pml_irecv,
    .pml_recv = vicinity_pml_recv,
    .pml_isend_init = vicinity_pml_isend_init,
    .pml_isend = vicinity_pml_isend,
    .pml_send = vicinity_pml_send,
    .pml_iprobe = vicinity_pml_iprobe,
    .pml_probe = vicinity_pml_probe,
    .pml_start = vicinity_pml_start,
    .pml_improbe = vicinity_pml_improbe,
    .pml_mprobe = vicinity_pml_mprobe,
    .pml_imrecv = vicinity_pml_imrecv,
    .pml_mrecv = vicinity_pml_mrecv,
    .pml_dump = dump,
    .pml_max_contextid = 65535,
    .pml_max_tag = PML_TAG_MAX,
    /* All processes connect in MPI_Init, when each of them is in the library and answers. */
    .pml_flags = MCA_PML_BASE_FLAG_REQUIRE_WORLD,
};

vicinity_pml_component_t mca_pml_vicinity_component = {
    .super =
        {
            .pmlm_version =
                {
                    VICINITY_PML_VERSION,
                    .mca_component_name = "vicinity",
                    MCA_BASE_MAKE_VERSION(component, OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION),
                    .mca_open_component = open_component,
                    .mca_close_component = close_component,
                    .mca_register_component_params = register_parameters,
                },
            .pmlm_data = {MCA_BASE_METADATA_PARAM_NONE},
            .pmlm_init = start,
            .pmlm_finalize = finalize,
        },
};
