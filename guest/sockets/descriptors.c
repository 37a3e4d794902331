/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Notes new TCP sockets, and forgets those that get a second reference or an address. */
#include <fcntl.h>
#include <stdarg.h>

#include "internal.h"

EXPORT int socket(int domain, int type, int protocol)
{
	int fd = real()->socket(domain, type, protocol);
	bool is_internet = domain == AF_INET || domain == AF_INET6;
	bool is_stream = (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM;

	if (fd < 0)
		return fd;
	unshared_forget(fd);
	/* Another protocol, such as MPTCP, stays what it is. */
	if (is_internet && is_stream && (protocol == 0 || protocol == IPPROTO_TCP) && table_is_enabled())
		unshared_note(fd);
	return fd;
}

EXPORT int bind(int fd, const struct sockaddr *address, socklen_t length)
{
	unshared_forget(fd);
	return real()->bind(fd, address, length);
}

EXPORT int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
	unshared_forget(fd);
	return real()->epoll_ctl(set, operation, fd, event);
}

EXPORT int dup(int fd)
{
	unshared_forget(fd);
	return real()->dup(fd);
}

EXPORT int dup2(int fd, int other)
{
	unshared_forget(fd);
	unshared_forget(other);
	return real()->dup2(fd, other);
}

EXPORT int dup3(int fd, int other, int flags)
{
	unshared_forget(fd);
	unshared_forget(other);
	return real()->dup3(fd, other, flags);
}

/* Commands that leave a socket as it is, but for flags that a replacement gets too. */
static bool is_harmless(int command)
{
	return command == F_GETFD || command == F_SETFD || command == F_GETFL || command == F_SETFL;
}

EXPORT int fcntl(int fd, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (!is_harmless(command))
		unshared_forget(fd);
	return real()->fcntl(fd, command, argument);
}

/* With offsets of 64 bits, the C library's two functions are one. */
_Static_assert(sizeof(off_t) == 8, "fcntl and fcntl64 differ");
EXPORT int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));
