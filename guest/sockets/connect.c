/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* connect() of a new TCP socket to a server in another VM of this host. */
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* Milliseconds until a server's VM must have answered. A program that does not block must not wait long. */
#define CONNECT_TIMEOUT 3000
#define CONNECT_TIMEOUT_NONBLOCKING 250

/* Seconds for which connections to a VM go by TCP after it did not answer in time. */
#define AVOID_SECONDS 60

/* Source ports, those that Linux gives to TCP connections (ip_local_port_range). */
#define FIRST_SOURCE 32768
#define SOURCES 28232

/* Source ports to try. */
#define TRIES 16

/* Until when VMs are avoided, by their CIDs. VMs that share a place are avoided together. */
static _Atomic int64_t avoided[64];

static atomic_uint next_source;

static int64_t milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool is_avoided(uint32_t cid)
{
	return milliseconds() < atomic_load(&avoided[cid % 64]);
}

static void avoid(uint32_t cid)
{
	atomic_store(&avoided[cid % 64], milliseconds() + AVOID_SECONDS * 1000);
}

/* Reads the IPv4 address that a TCP socket of this family would connect to. */
static bool read_destination(const struct sockaddr *address, socklen_t length, struct sockaddr_in *to)
{
	struct sockaddr_in6 six;

	if (address == NULL || length < sizeof(sa_family_t))
		return false;
	if (address->sa_family == AF_INET && length >= sizeof(*to)) {
		memcpy(to, address, sizeof(*to));
		return true;
	}
	if (address->sa_family != AF_INET6 || length < sizeof(six))
		return false;
	memcpy(&six, address, sizeof(six));
	if (!IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
		return false;
	*to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = six.sin6_port};
	memcpy(&to->sin_addr, &six.sin6_addr.s6_addr[12], sizeof(to->sin_addr));
	return true;
}

/* Asks the kernel's routes from which address TCP would connect. Sends nothing. */
static bool find_source(const struct sockaddr_in *to, struct in_addr *source)
{
	struct sockaddr_in from;
	socklen_t length = sizeof(from);
	int fd = real()->socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool is_found;

	if (fd < 0)
		return false;
	is_found = real()->connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0 &&
		   real()->getsockname(fd, (struct sockaddr *)&from, &length) == 0;
	close(fd);
	if (is_found)
		*source = from.sin_addr;
	return is_found;
}

/* Returns whether this is still a TCP socket without an address, and its flags. */
static bool is_plain(int fd, int *flags)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof(int);
	int protocol = 0;

	if (real()->getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) != 0 || protocol != IPPROTO_TCP)
		return false;
	length = sizeof(name);
	if (real()->getsockname(fd, (struct sockaddr *)&name, &length) != 0)
		return false;
	/* Both families have the port in the same place. */
	if (((struct sockaddr_in *)&name)->sin_port != 0)
		return false;
	*flags = real()->fcntl(fd, F_GETFL, 0);
	return *flags >= 0 && (*flags & O_ASYNC) == 0;
}

/* Binds to a port that tells the address and the port of TCP. */
static bool bind_source(int vsock, uint16_t index)
{
	struct sockaddr_vm from = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY};

	if (atomic_load(&next_source) == 0)
		atomic_store(&next_source, (unsigned int)milliseconds() * 31 + (unsigned int)getpid() * 127 + 1);
	for (int attempt = 0; attempt < TRIES; attempt++) {
		unsigned int source = FIRST_SOURCE + atomic_fetch_add(&next_source, 1) % SOURCES;

		from.svm_port = PORT_OF(index, source);
		if (real()->bind(vsock, (struct sockaddr *)&from, sizeof(from)) == 0)
			return true;
		if (errno != EADDRINUSE)
			return false;
	}
	return false;
}

/* Waits for an event until a time. */
static bool wait_for(int fd, short events, int64_t until)
{
	struct pollfd one = {.fd = fd, .events = events};

	for (;;) {
		int64_t rest = until - milliseconds();
		int ready = rest > 0 ? poll(&one, 1, (int)rest) : 0;

		if (ready > 0)
			return true;
		if (ready == 0 || errno != EINTR) {
			errno = ETIMEDOUT;
			return false;
		}
	}
}

/* Connects, and waits until the server's agent says that the server has the connection. */
static bool reach(int vsock, const struct entry *to, uint16_t port, int64_t until)
{
	struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = to->cid, .svm_port = PORT_OF(to->index, port)};
	socklen_t length = sizeof(int);
	int error = 0;
	uint8_t said;

	if (real()->connect(vsock, (struct sockaddr *)&address, sizeof(address)) != 0) {
		if (errno != EINPROGRESS || !wait_for(vsock, POLLOUT, until))
			return false;
		if (real()->getsockopt(vsock, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
			errno = error;
			return false;
		}
	}
	return wait_for(vsock, POLLIN, until) && recv(vsock, &said, 1, MSG_DONTWAIT) == 1 && said == ACCEPTED;
}

/* Returns a connection by AF_VSOCK, or -1. */
static int open_vsock(const struct entry *to, uint16_t from_index, uint16_t port, int timeout)
{
	int vsock = real()->socket(AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (vsock < 0)
		return -1;
	options_enlarge(vsock);
	errno = 0;
	if (bind_source(vsock, from_index) && reach(vsock, to, port, milliseconds() + timeout))
		return vsock;
	if (errno == ETIMEDOUT)
		avoid(to->cid);
	close(vsock);
	return -1;
}

/* Puts an AF_VSOCK connection over the descriptor. Returns false if the connection must go by TCP. */
static bool redirect(int fd, const struct sockaddr_in *to, bool *is_blocking)
{
	struct in_addr source;
	struct entry server, own;
	int flags, vsock;

	if (!table_find_server(to->sin_addr, ntohs(to->sin_port), &server) || is_avoided(server.cid))
		return false;
	if (!unshared_take(fd) || !is_plain(fd, &flags))
		return false;
	if (!find_source(to, &source) || !table_find_own(source, server.network, &own))
		return false;
	*is_blocking = (flags & O_NONBLOCK) == 0;
	vsock = open_vsock(&server, own.index, ntohs(to->sin_port), *is_blocking ? CONNECT_TIMEOUT : CONNECT_TIMEOUT_NONBLOCKING);
	if (vsock < 0)
		return false;
	if (!options_copy(fd, vsock)) {
		close(vsock);
		return false;
	}
	return options_replace(fd, vsock);
}

EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_in to;
	bool is_blocking = true;
	int saved = errno;

	if (unshared_has(fd) && read_destination(address, length, &to)) {
		int state;
		bool is_done;

		/* A thread that is cancelled in between would leave a descriptor. */
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
		is_done = redirect(fd, &to, &is_blocking);
		pthread_setcancelstate(state, NULL);
		/* The connection is there already, but programs that do not block expect to wait for it. */
		errno = is_done && !is_blocking ? EINPROGRESS : saved;
		if (is_done)
			return is_blocking ? 0 : -1;
	}
	unshared_forget(fd);
	return real()->connect(fd, address, length);
}
