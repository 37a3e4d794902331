/* Exists for programs that include it. mx__driver_interface.h has all declarations. */
#ifndef MX__FOPS_H
#define MX__FOPS_H
#include "mx__driver_interface.h"
#endif
