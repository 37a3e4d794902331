/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* sendto() and sendmsg() with an address: TCP ignores it, and AF_VSOCK refuses it. */
#include <errno.h>
#include <stddef.h>

#include "internal.h"

/* Returns whether a call failed for its address only. */
static bool must_go_without_address(int fd, ssize_t result, const void *address)
{
	struct tag tag;

	return result < 0 && errno == EISCONN && address != NULL && tag_read(fd, &tag);
}

EXPORT ssize_t sendto(int fd, const void *bytes, size_t count, int flags, const struct sockaddr *to, socklen_t length)
{
	int saved = errno;
	ssize_t result = real()->sendto(fd, bytes, count, flags, to, length);

	if (!must_go_without_address(fd, result, to))
		return result;
	errno = saved;
	return real()->sendto(fd, bytes, count, flags, NULL, 0);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	int saved = errno;
	ssize_t result = real()->sendmsg(fd, message, flags);
	struct msghdr without;

	if (result >= 0 || !must_go_without_address(fd, result, message->msg_name))
		return result;
	without = *message;
	without.msg_name = NULL;
	without.msg_namelen = 0;
	errno = saved;
	return real()->sendmsg(fd, &without, flags);
}
