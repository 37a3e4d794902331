/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* connect(), options and names. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"

static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof(value);

	CHECK(getsockopt(fd, level, name, &value, &length) == 0);
	return value;
}

static void set(int fd, int level, int name, int value)
{
	CHECK(setsockopt(fd, level, name, &value, sizeof(value)) == 0);
}

static void blocking(void)
{
	int fd = connected();

	check_connection(fd, AF_VSOCK);
	CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0 && fcntl(fd, F_GETFD) == 0);
	errno = 0;
	CHECK(connect(fd, (struct sockaddr *)&server, sizeof(server)) == -1 && errno == EISCONN);
	close(fd);
}

static void without_blocking(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	struct pollfd one = {.fd = fd, .events = POLLOUT};

	errno = 0;
	CHECK(connect(fd, (struct sockaddr *)&server, sizeof(server)) == -1 && errno == EINPROGRESS);
	CHECK(poll(&one, 1, 5000) == 1 && (one.revents & POLLOUT) != 0);
	CHECK(option(fd, SOL_SOCKET, SO_ERROR) == 0);
	CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	check_connection(fd, AF_VSOCK);
	close(fd);
}

static void by_ipv6_socket(void)
{
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = server.sin_port};

	memset(&six.sin6_addr.s6_addr[10], 0xff, 2);
	memcpy(&six.sin6_addr.s6_addr[12], &server.sin_addr, 4);
	set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	CHECK(connect(fd, (struct sockaddr *)&six, sizeof(six)) == 0);
	CHECK(option(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET6);
	check_connection(fd, AF_VSOCK);
	close(fd);
}

static void options(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct timeval timeout = {.tv_usec = 300000};
	struct linger linger = {0};
	struct tcp_info info = {0};
	char name[16] = "";
	socklen_t length = sizeof(timeout);
	char byte;

	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0);
	CHECK(connect(fd, (struct sockaddr *)&server, sizeof(server)) == 0);
	check_connection(fd, AF_VSOCK);
	CHECK(option(fd, IPPROTO_TCP, TCP_NODELAY) == 1 && option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
	set(fd, IPPROTO_TCP, TCP_NODELAY, 0);
	CHECK(option(fd, IPPROTO_TCP, TCP_NODELAY) == 0);
	set(fd, IPPROTO_TCP, TCP_CORK, 1);
	set(fd, IPPROTO_IP, IP_TOS, 0x10);
	set(fd, SOL_SOCKET, SO_PRIORITY, 1);
	CHECK(option(fd, IPPROTO_TCP, TCP_MAXSEG) > 500);
	length = sizeof(info);
	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_ESTABLISHED);
	length = sizeof(name);
	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 && name[0] != '\0');
	length = sizeof(linger);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 && linger.l_onoff == 0);
	errno = 0;
	CHECK(recv(fd, &byte, 1, 0) == -1 && errno == EAGAIN);
	/* An option that only TCP can have is refused, as by a kernel without it. */
	errno = 0;
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 4) == -1 && errno == ENOPROTOOPT);
	close(fd);
}

void test_connect(void)
{
	blocking();
	without_blocking();
	by_ipv6_socket();
	options();
}
