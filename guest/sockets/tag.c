/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The tag of an AF_VSOCK socket that stands for a TCP socket. SO_PRIORITY has no effect on AF_VSOCK, and every process
 * with the descriptor can read it. Without privileges it can be 0 to 6 (socket(7)): 3 to 6 are tags.
 */
#include <errno.h>

#include "internal.h"

#define FIRST_TAG 3

bool tag_read(int fd, struct tag *tag)
{
	int saved = errno;
	int value = 0;
	socklen_t length = sizeof(value);
	bool is_tagged = false;

	if (real()->getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == AF_VSOCK) {
		length = sizeof(value);
		is_tagged = real()->getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, &length) == 0 &&
			    value >= FIRST_TAG && value <= FIRST_TAG + 3;
		tag->is_ipv6 = ((value - FIRST_TAG) & 1) != 0;
		tag->no_delay = ((value - FIRST_TAG) & 2) != 0;
	}
	errno = saved;
	return is_tagged;
}

bool tag_write(int fd, struct tag tag)
{
	int value = FIRST_TAG + (tag.is_ipv6 ? 1 : 0) + (tag.no_delay ? 2 : 0);

	return real()->setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, sizeof(value)) == 0;
}
