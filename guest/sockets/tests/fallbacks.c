/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sockets that must stay TCP sockets. */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int new_socket(int protocol)
{
	int fd = socket(AF_INET, SOCK_STREAM, protocol);

	CHECK(fd >= 0);
	return fd;
}

static void check_tcp(int fd)
{
	CHECK(connect(fd, (struct sockaddr *)&server, sizeof(server)) == 0);
	check_connection(fd, AF_INET);
	close(fd);
}

static void in_epoll(void)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int set = epoll_create1(0);
	int fd = new_socket(0);

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	check_tcp(fd);
	close(set);
}

static void duplicated(void)
{
	int fd = new_socket(0);
	int other = dup(fd);

	check_tcp(fd);
	CHECK(real_family(other) == AF_INET);
	close(other);
}

static void inherited(void)
{
	int fd = new_socket(0);
	int status;
	pid_t child = fork();

	if (child == 0) {
		check_tcp(fd);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	close(fd);
}

static void bound(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	int fd = new_socket(0);

	CHECK(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
	check_tcp(fd);
}

static void with_unknown_option(void)
{
	int fd = new_socket(0);
	int value = 1;

	CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &value, sizeof(value)) == 0);
	check_tcp(fd);
}

static void multipath(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 262 /* IPPROTO_MPTCP */);

	if (fd < 0)
		return;
	CHECK(connect(fd, (struct sockaddr *)&server, sizeof(server)) == 0);
	CHECK(real_family(fd) == AF_INET);
	close(fd);
}

static void without_descriptors(void)
{
	struct rlimit before, now;
	int fd = new_socket(0);

	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	now = before;
	now.rlim_cur = (rlim_t)fd + 1;
	CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
	check_tcp(fd);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

/* A port that the host allows and where nobody listens is refused as by TCP. */
static void refused(void)
{
	struct sockaddr_in nobody = server;
	int fd = new_socket(0);

	nobody.sin_port = htons((uint16_t)(ntohs(server.sin_port) + 1));
	errno = 0;
	CHECK(connect(fd, (struct sockaddr *)&nobody, sizeof(nobody)) == -1 && errno == ECONNREFUSED);
	close(fd);
}

static void strange_addresses(void)
{
	int fd = new_socket(0);

	CHECK(connect(fd, NULL, 0) == -1);
	CHECK(connect(fd, (struct sockaddr *)&server, 1) == -1 && errno == EINVAL);
	close(fd);
	CHECK(connect(-1, (struct sockaddr *)&server, sizeof(server)) == -1 && errno == EBADF);
	CHECK(connect(1 << 30, (struct sockaddr *)&server, sizeof(server)) == -1 && errno == EBADF);
}

void test_fallbacks(void)
{
	in_epoll();
	duplicated();
	inherited();
	bound();
	with_unknown_option();
	multipath();
	without_descriptors();
	refused();
	strange_addresses();
}
