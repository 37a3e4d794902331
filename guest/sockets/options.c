/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The options of sockets: which a TCP socket may have to be replaced, and what an AF_VSOCK socket answers for it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "internal.h"

/* The maximum segment size of Ethernet, for programs that compute with it. */
#define SEGMENT 1448

#define PEEK 4096

#define RECEIVE_SPACE (2 << 20)

/* Options that change how fast or how long TCP sends, and nothing that a program can see. */
static bool is_of_transport(int level, int name)
{
	if (level == IPPROTO_IP)
		return name == IP_TOS || name == IP_MTU_DISCOVER || name == IP_RECVERR;
	if (level == IPPROTO_IPV6)
		return name == IPV6_TCLASS || name == IPV6_V6ONLY || name == IPV6_MTU_DISCOVER || name == IPV6_RECVERR;
	if (level != IPPROTO_TCP)
		return false;
	switch (name) {
	case TCP_NODELAY:
	case TCP_CORK:
	case TCP_QUICKACK:
	case TCP_KEEPIDLE:
	case TCP_KEEPINTVL:
	case TCP_KEEPCNT:
	case TCP_USER_TIMEOUT:
	case TCP_SYNCNT:
	case TCP_LINGER2:
	case TCP_MAXSEG:
	case TCP_WINDOW_CLAMP:
	case TCP_NOTSENT_LOWAT:
	case TCP_CONGESTION:
		return true;
	default:
		return false;
	}
}

/* Options after which a TCP socket may still be replaced. */
static bool is_usual(int level, int name)
{
	if (level != SOL_SOCKET)
		return is_of_transport(level, name);
	switch (name) {
	case SO_KEEPALIVE:
	case SO_LINGER:
	case SO_RCVTIMEO:
	case SO_SNDTIMEO:
	case SO_RCVBUF:
	case SO_SNDBUF:
	case SO_REUSEADDR:
	case SO_PRIORITY:
		return true;
	default:
		return false;
	}
}

static bool copy(int tcp, int vsock, int name, size_t size)
{
	static const char unset[sizeof(struct timeval)];
	char value[sizeof(struct timeval)];
	socklen_t length = (socklen_t)size;

	if (real()->getsockopt(tcp, SOL_SOCKET, name, value, &length) != 0)
		return false;
	/* Nobody has set this one, and a new socket has the same. */
	if (length <= sizeof(unset) && memcmp(value, unset, length) == 0)
		return true;
	return real()->setsockopt(vsock, SOL_SOCKET, name, value, length) == 0;
}

/* Tags the AF_VSOCK socket with the family and TCP_NODELAY of the TCP socket. */
static bool copy_tag(int tcp, int vsock)
{
	struct tag tag;
	int family = 0;
	int no_delay = 0;
	socklen_t length = sizeof(int);

	if (real()->getsockopt(tcp, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0)
		return false;
	length = sizeof(int);
	if (real()->getsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &no_delay, &length) != 0)
		return false;
	tag = (struct tag){.is_ipv6 = family == AF_INET6, .no_delay = no_delay != 0};
	return tag_write(vsock, tag);
}

/* Gives the connection as much receive space as TCP may have. Linux gives 256 KiB, of which a quarter is a packet. */
void options_enlarge(int vsock)
{
	const uint64_t bytes = RECEIVE_SPACE;

	/* With less space the connection works as well. */
	(void)real()->setsockopt(vsock, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &bytes, sizeof(bytes));
	(void)real()->setsockopt(vsock, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &bytes, sizeof(bytes));
}

bool options_copy(int tcp, int vsock)
{
	return copy_tag(tcp, vsock) && copy(tcp, vsock, SO_KEEPALIVE, sizeof(int)) &&
	       copy(tcp, vsock, SO_LINGER, sizeof(struct linger)) &&
	       copy(tcp, vsock, SO_RCVTIMEO, sizeof(struct timeval)) &&
	       copy(tcp, vsock, SO_SNDTIMEO, sizeof(struct timeval));
}

bool options_replace(int fd, int vsock)
{
	int flags = real()->fcntl(fd, F_GETFL, 0);
	int descriptor = real()->fcntl(fd, F_GETFD, 0);
	bool is_replaced = flags >= 0 && descriptor >= 0 && real()->fcntl(vsock, F_SETFL, flags) == 0 &&
			   real()->dup3(vsock, fd, (descriptor & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) == fd;

	close(vsock);
	return is_replaced;
}

static bool is_unknown(int error)
{
	return error == ENOPROTOOPT || error == EOPNOTSUPP || error == ENOTTY;
}

/* Sets an option of TCP on an AF_VSOCK socket that stands for a TCP socket. */
static int set(int fd, int name, int level, const void *value, socklen_t length)
{
	struct tag tag;
	int number = 0;

	if (!tag_read(fd, &tag) || !is_of_transport(level, name)) {
		errno = ENOPROTOOPT;
		return -1;
	}
	if (level == IPPROTO_TCP && name == TCP_NODELAY) {
		if (value == NULL || length < sizeof(number)) {
			errno = EINVAL;
			return -1;
		}
		memcpy(&number, value, sizeof(number));
		tag.no_delay = number != 0;
		(void)tag_write(fd, tag);
	}
	return 0;
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	struct tag tag;
	int saved = errno;

	/* The tag is there. */
	if (level == SOL_SOCKET && name == SO_PRIORITY && tag_read(fd, &tag))
		return 0;
	if (real()->setsockopt(fd, level, name, value, length) == 0) {
		if (unshared_has(fd) && !is_usual(level, name))
			unshared_forget(fd);
		return 0;
	}
	if (level == SOL_SOCKET || !is_unknown(errno) || set(fd, name, level, value, length) != 0)
		return -1;
	errno = saved;
	return 0;
}

static void answer(void *value, socklen_t *length, const void *from, size_t size)
{
	if (*length > size)
		*length = (socklen_t)size;
	memcpy(value, from, *length);
}

static void answer_number(void *value, socklen_t *length, int number)
{
	answer(value, length, &number, sizeof(number));
}

/* Says what TCP says by default. */
static bool get_of_tcp(struct tag tag, int name, void *value, socklen_t *length)
{
	static const struct tcp_info info = {.tcpi_state = TCP_ESTABLISHED, .tcpi_snd_mss = SEGMENT, .tcpi_rcv_mss = SEGMENT};

	switch (name) {
	case TCP_NODELAY:
		answer_number(value, length, tag.no_delay ? 1 : 0);
		return true;
	case TCP_MAXSEG:
		answer_number(value, length, SEGMENT);
		return true;
	case TCP_KEEPIDLE:
		answer_number(value, length, 7200);
		return true;
	case TCP_KEEPINTVL:
		answer_number(value, length, 75);
		return true;
	case TCP_KEEPCNT:
		answer_number(value, length, 9);
		return true;
	case TCP_INFO:
		answer(value, length, &info, sizeof(info));
		return true;
	case TCP_CONGESTION:
		answer(value, length, "cubic", sizeof("cubic"));
		return true;
	default:
		if (is_of_transport(IPPROTO_TCP, name))
			answer_number(value, length, 0);
		return is_of_transport(IPPROTO_TCP, name);
	}
}

/* Corrects what the kernel says about an AF_VSOCK socket that stands for a TCP socket. */
static void correct(int fd, int name, void *value, socklen_t *length)
{
	struct tag tag;

	if ((name != SO_DOMAIN && name != SO_PROTOCOL && name != SO_PRIORITY) || !tag_read(fd, &tag))
		return;
	if (name == SO_DOMAIN)
		answer_number(value, length, tag.is_ipv6 ? AF_INET6 : AF_INET);
	else
		answer_number(value, length, name == SO_PROTOCOL ? IPPROTO_TCP : 0);
}

EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
	struct tag tag;
	int saved = errno;

	if (real()->getsockopt(fd, level, name, value, length) == 0) {
		if (level == SOL_SOCKET)
			correct(fd, name, value, length);
		return 0;
	}
	if (level == SOL_SOCKET || !is_unknown(errno) || value == NULL || length == NULL || !tag_read(fd, &tag))
		return -1;
	if (level == IPPROTO_TCP ? !get_of_tcp(tag, name, value, length) : !is_of_transport(level, name)) {
		errno = ENOPROTOOPT;
		return -1;
	}
	if (level != IPPROTO_TCP)
		answer_number(value, length, 0);
	errno = saved;
	return 0;
}

/* Counts the bytes that can be read, which kernels before 6.17 do not tell of AF_VSOCK; at most 256 KiB. */
static int count_readable(int fd)
{
	char bytes[PEEK];
	struct iovec parts[64];
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 64};
	ssize_t count;

	/* The bytes themselves are of no interest, so all parts are in one place. */
	for (int part = 0; part < 64; part++)
		parts[part] = (struct iovec){.iov_base = bytes, .iov_len = sizeof(bytes)};
	count = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT);
	return count > 0 ? (int)count : 0;
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *argument;
	struct tag tag;
	int saved = errno;
	int result;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	result = real()->ioctl(fd, request, argument);
	if (result == 0 || request != FIONREAD || !is_unknown(errno) || argument == NULL || !tag_read(fd, &tag))
		return result;
	*(int *)argument = count_readable(fd);
	errno = saved;
	return 0;
}
