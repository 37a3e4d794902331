/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The server's side. The agent of this VM accepts the AF_VSOCK connection, and makes a TCP connection to the server,
 * from the client's address. So the server's listener becomes readable as for any client, and a server that does not
 * use this library gets a connection as well: the agent forwards the data. A server that uses it claims the AF_VSOCK
 * connection from the agent by showing the accepted socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

/*
 * An agent that ends closes its sockets, so this is the time for one that hangs. An agent without a processor takes
 * longer than half a second, and what it does not pass in time is copied for as long as the connection lasts.
 */
static const struct timeval agent_timeout = {.tv_sec = 5};

union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

static int open_agent(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = CLAIM_PATH};
	int agent = real()->socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (agent < 0)
		return -1;
	(void)real()->setsockopt(agent, SOL_SOCKET, SO_RCVTIMEO, &agent_timeout, sizeof(agent_timeout));
	(void)real()->setsockopt(agent, SOL_SOCKET, SO_SNDTIMEO, &agent_timeout, sizeof(agent_timeout));
	if (real()->connect(agent, (struct sockaddr *)&address, sizeof(address)) == 0)
		return agent;
	close(agent);
	return -1;
}

static bool say(int agent, char what, int fd)
{
	union control control = {0};
	struct iovec part = {.iov_base = &what, .iov_len = 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return real()->sendmsg(agent, &message, MSG_NOSIGNAL) == 1;
}

/* Returns the descriptor that the agent passes, or -1. */
static int take(int agent)
{
	union control control = {0};
	char said = 0;
	struct iovec part = {.iov_base = &said, .iov_len = 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *header;
	int fd;

	if (recvmsg(agent, &message, MSG_CMSG_CLOEXEC) != 1 || said != SAY_TAKE)
		return -1;
	header = CMSG_FIRSTHDR(&message);
	/* There is none if this process has no descriptor left. */
	if (header == NULL || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len != CMSG_LEN(sizeof(fd)))
		return -1;
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

void claim_listening(int fd)
{
	int saved = errno;
	int agent = open_agent();

	if (agent >= 0) {
		(void)say(agent, SAY_LISTENING, fd);
		close(agent);
	}
	errno = saved;
}

/* Replaces the agent's TCP connection, which nobody needs any longer: a reset ends it with one packet. */
static bool replace_with_reset(int fd, int vsock)
{
	const struct linger reset = {.l_onoff = 1};
	struct linger before;
	socklen_t length = sizeof(before);
	bool is_reset = real()->getsockopt(fd, SOL_SOCKET, SO_LINGER, &before, &length) == 0 &&
			real()->setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0;

	if (options_replace(fd, vsock))
		return true;
	if (is_reset)
		(void)real()->setsockopt(fd, SOL_SOCKET, SO_LINGER, &before, sizeof(before));
	return false;
}

bool claim_connection(int fd)
{
	const char taken = SAY_TAKEN;
	int agent = open_agent();
	int vsock = -1;
	bool is_replaced = false;

	if (agent < 0)
		return false;
	if (say(agent, SAY_CLAIM, fd))
		vsock = take(agent);
	if (vsock >= 0) {
		options_enlarge(vsock);
		if (options_copy(fd, vsock))
			is_replaced = replace_with_reset(fd, vsock);
		else
			close(vsock);
	}
	/* Without this byte the agent forwards the data, so it comes only when the program has the connection. */
	if (is_replaced)
		(void)send(agent, &taken, 1, MSG_NOSIGNAL);
	close(agent);
	return is_replaced;
}
