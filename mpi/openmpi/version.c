/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The check of the version of Open MPI, for the components. */
#include "version.h"

#include "abi.h"

#include "opal/datatype/opal_convertor.h"
#include "opal/util/output.h"

#include <dlfcn.h>

#define TEXT_(number) #number
#define TEXT(number) TEXT_(number)
#define MADE_FOR TEXT(OPAL_MAJOR_VERSION) "." TEXT(OPAL_MINOR_VERSION) "."

/* Whether the structures that this component and Open MPI share have one size. */
static bool layout_fits(void) {
  return opal_mutex_t_class.cls_sizeof == sizeof(opal_mutex_t) &&
         opal_convertor_t_class.cls_sizeof == sizeof(opal_convertor_t) &&
         mca_btl_base_descriptor_t_class.cls_sizeof == sizeof(mca_btl_base_descriptor_t);
}

void vicinity_other_build(const char *component) {
  opal_output(0, "%s: this component was compiled with headers of another build of Open MPI " MADE_FOR
                 "x. It is not used. Compile it with the headers of this Open MPI.",
              component);
}

/* The layouts of modules and descriptors differ between minor versions of Open MPI, and its loader
   compares only the version of the component structure (mca_base_component_repository.c). */
bool vicinity_version_fits(const char *component) {
  const char *running = dlsym(RTLD_DEFAULT, "opal_version_string");
  if (running != NULL && !strncmp(running, MADE_FOR, strlen(MADE_FOR))) {
    if (layout_fits())
      return true;
    vicinity_other_build(component);
    return false;
  }
  opal_output(0,
              "%s: this component was compiled for Open MPI %sx, and this is Open MPI %s. "
              "It is not used. Install the package openmpi-vicinity of this release, or compile the "
              "component with this Open MPI's headers.",
              component, MADE_FOR, running == NULL ? "of an unknown version" : running);
  return false;
}

