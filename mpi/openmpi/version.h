/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BTL_VICINITY_VERSION_H
#define BTL_VICINITY_VERSION_H

#include <stdbool.h>

/* Returns whether the running Open MPI is the one of the headers; says so, under the name of the component,
   if it is not. */
bool vicinity_version_fits(const char *component);

/* Says that structures have other sizes in the running Open MPI. */
void vicinity_other_build(const char *component);

#endif
