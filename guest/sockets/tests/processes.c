/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Connections in other processes and under other descriptors. */
#include <arpa/inet.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void wait_for(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void continue_as(int fd)
{
	check_connection(fd, AF_VSOCK);
}

static void after_fork(void)
{
	int fd = connected();
	pid_t child = fork();

	if (child == 0) {
		check_connection(fd, AF_VSOCK);
		_exit(0);
	}
	wait_for(child);
	close(fd);
}

static void after_exec(const char *program)
{
	int fd = connected();
	char number[16], port[16];
	pid_t child;

	snprintf(number, sizeof(number), "%d", fd);
	snprintf(port, sizeof(port), "%d", ntohs(server.sin_port));
	child = fork();
	if (child == 0) {
		execl(program, program, "continue", number, inet_ntoa(server.sin_addr), port, (char *)NULL);
		_exit(1);
	}
	wait_for(child);
	close(fd);
}

static void pass(int by, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec part = {.iov_base = "x", .iov_len = 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	CHECK(sendmsg(by, &message, 0) == 1);
}

static int take(int by)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	char byte;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	int fd;

	CHECK(recvmsg(by, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != NULL);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static void passed(void)
{
	int both[2];
	pid_t child;
	int fd;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
	child = fork();
	if (child == 0) {
		check_connection(take(both[1]), AF_VSOCK);
		_exit(0);
	}
	fd = connected();
	pass(both[0], fd);
	close(fd);
	wait_for(child);
	close(both[0]);
	close(both[1]);
}

static void duplicated(void)
{
	int fd = connected();
	int other = dup(fd);
	int third = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(other >= 0 && dup2(other, third) == third);
	close(fd);
	check_connection(third, AF_VSOCK);
	check_echo(other);
	close(other);
	close(third);
}

/* The library keeps no descriptor that a program could close. */
static void after_closing_all(void)
{
	int fd;

	for (int other = 3; other < 1024; other++)
		close(other);
	fd = connected();
	CHECK(fd == 3);
	check_connection(fd, AF_VSOCK);
	close(fd);
}

void test_processes(const char *program)
{
	after_fork();
	after_exec(program);
	passed();
	duplicated();
	after_closing_all();
}
