/* Kept for programs that include it; all of it is in mx__driver_interface.h. */
#ifndef MX__FOPS_H
#define MX__FOPS_H
#include "mx__driver_interface.h"
#endif
