/* Without an error handler, the first error ends the process. */
#include "myriexpress.h"

int main(void) {
  uint64_t nic;
  mx_board_number_to_nic_id(0, &nic);
  return 0;
}
