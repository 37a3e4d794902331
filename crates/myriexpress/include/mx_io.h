/* Boards, for programs that inspect them without opening an endpoint. */
#ifndef MX_IO_H
#define MX_IO_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int mx_endpt_handle_t;
#define MX__INVALID_HANDLE (-1)

mx_return_t mx_open_board(int board, mx_endpt_handle_t *handle);

#ifdef __cplusplus
}
#endif

#endif
