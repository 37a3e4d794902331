/* Section 2: mx_init without a board, or without permission to use it. */
#include <sys/stat.h>

#include "check.h"

#define VARIABLE "VICINITY_RUNTIME_DIR"
#define USER_NOBODY 65534

int main(void) {
  alarm(HANG);
  mx_set_error_handler(MX_ERRORS_RETURN);
  char *folder = getenv(VARIABLE), closed[4096];
  CHECK(folder != NULL);
  /* A directory that cannot exist. */
  CHECK(!setenv(VARIABLE, "/dev/null/folder", 1));
  RETURNS(MX_NO_DEV, mx_init());
  /* After the failure, the library is not initialized. */
  RETURNS(MX_NOT_INITIALIZED, mx_finalize());
  CHECK(snprintf(closed, sizeof closed, "%s/closed", folder) < (int)sizeof closed);
  CHECK(!mkdir(closed, 0700) && !chmod(folder, 0755));
  CHECK(!setenv(VARIABLE, closed, 1));
  uid_t user = geteuid();
  if (user == 0)
    CHECK(!seteuid(USER_NOBODY));
  else
    CHECK(!chmod(closed, 0));
  RETURNS(MX_NO_PERM, mx_init());
  if (user == 0)
    CHECK(!seteuid(user));
  else
    CHECK(!chmod(closed, 0700));
  OK(mx_init());
  OK(mx_finalize());
  return 0;
}
