/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Data, its end, and the calls that move it. */
#define BYTES (2 << 20)
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void fill(char *bytes, size_t count)
{
	for (size_t place = 0; place < count; place++)
		bytes[place] = (char)(place * 31 + place / 4099);
}

/* Sends a file in a child, and compares what comes back until the end. */
static void file_and_end(void)
{
	char *bytes = malloc(BYTES), *back = malloc(BYTES);
	FILE *file = tmpfile();
	size_t got = 0;
	int fd = connected();
	ssize_t count;
	pid_t child;

	check_connection(fd, AF_VSOCK);
	fill(bytes, BYTES);
	CHECK(fwrite(bytes, 1, BYTES, file) == BYTES && fflush(file) == 0);
	child = fork();
	if (child == 0) {
		off_t at = 0;

		while (at < BYTES)
			CHECK(sendfile(fd, fileno(file), &at, (size_t)(BYTES - at)) > 0);
		CHECK(shutdown(fd, SHUT_WR) == 0);
		_exit(0);
	}
	while (got < BYTES && (count = recv(fd, back + got, BYTES - got, 0)) > 0)
		got += (size_t)count;
	CHECK(got == BYTES && memcmp(bytes, back, BYTES) == 0);
	CHECK(recv(fd, back, 1, 0) == 0);
	CHECK(waitpid(child, NULL, 0) == child);
	close(fd);
	fclose(file);
	free(bytes);
	free(back);
}

static void in_epoll(void)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET | EPOLLRDHUP};
	int set = epoll_create1(0);
	int fd = connected();
	char bytes[16];

	check_connection(fd, AF_VSOCK);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	CHECK(epoll_wait(set, &event, 1, 0) == 0);
	CHECK(send(fd, "abc", 3, 0) == 3);
	CHECK(epoll_wait(set, &event, 1, 10000) == 1 && (event.events & EPOLLIN) != 0);
	CHECK(recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) == 3);
	CHECK(shutdown(fd, SHUT_WR) == 0);
	CHECK(epoll_wait(set, &event, 1, 10000) == 1 && (event.events & EPOLLRDHUP) != 0);
	close(fd);
	close(set);
}

/* TCP ignores the address. */
static void to_an_address(void)
{
	struct sockaddr_in nowhere = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct iovec part = {.iov_base = "def", .iov_len = 3};
	struct msghdr message = {.msg_name = &nowhere, .msg_namelen = sizeof(nowhere), .msg_iov = &part, .msg_iovlen = 1};
	int fd = connected();
	char bytes[6];

	check_connection(fd, AF_VSOCK);
	CHECK(sendto(fd, "abc", 3, 0, (struct sockaddr *)&nowhere, sizeof(nowhere)) == 3);
	CHECK(sendmsg(fd, &message, 0) == 3);
	CHECK(recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == 6 && memcmp(bytes, "abcdef", 6) == 0);
	close(fd);
}

static void count_of_readable_bytes(void)
{
	int fd = connected();
	int count = -1;
	char bytes[3];

	check_connection(fd, AF_VSOCK);
	CHECK(ioctl(fd, FIONREAD, &count) == 0 && count == 0);
	CHECK(send(fd, "abc", 3, 0) == 3);
	CHECK(recv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_WAITALL) > 0);
	CHECK(recv(fd, bytes, 1, 0) == 1);
	CHECK(ioctl(fd, FIONREAD, &count) == 0 && count == 2);
	close(fd);
}

static void many_at_once(void)
{
	int all[100];

	for (int number = 0; number < 100; number++)
		all[number] = connected();
	for (int number = 0; number < 100; number++) {
		check_connection(all[number], AF_VSOCK);
		close(all[number]);
	}
}

void test_data(void)
{
	file_and_end();
	in_epoll();
	to_an_address();
	count_of_readable_bytes();
	many_at_once();
}
