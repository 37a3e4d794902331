/* Nothing is told about errors: the first one ends the process. */
#include "myriexpress.h"

int main(void) {
  uint64_t nic;
  mx_board_number_to_nic_id(0, &nic);
  return 0;
}
