/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* listen() and accept() of TCP servers. */
#include <errno.h>
#include <pthread.h>

#include "internal.h"

/* Returns the value of an option at SOL_SOCKET, or -1. */
static int option(int fd, int name)
{
	int value = -1;
	socklen_t length = sizeof(value);

	return real()->getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

/* Returns a connection that was accepted, by AF_VSOCK if the agent made it. */
static int accepted(int listener, int fd)
{
	int saved = errno;
	int state;

	if (fd < 0 || !table_is_enabled())
		return fd;
	/* Other connections have no mark, so they cost one system call. */
	if ((uint32_t)option(fd, SO_MARK) == AGENT_MARK) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
		/* The agent did not wait, because it does not know yet that this server can claim connections. */
		if (!claim_connection(fd))
			claim_listening(listener);
		pthread_setcancelstate(state, NULL);
	}
	errno = saved;
	return fd;
}

EXPORT int listen(int fd, int backlog)
{
	int result = real()->listen(fd, backlog);

	unshared_forget(fd);
	if (result == 0 && table_is_enabled() && option(fd, SO_PROTOCOL) == IPPROTO_TCP)
		claim_listening(fd);
	return result;
}

EXPORT int accept(int fd, struct sockaddr *address, socklen_t *length)
{
	return accepted(fd, real()->accept(fd, address, length));
}

EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	return accepted(fd, real()->accept4(fd, address, length, flags));
}
