/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Checks that a program with libvicinity-sockets sees TCP.
 *
 *	conformance server PORT                 echoes; begins each connection with a line about it
 *	conformance client ADDRESS PORT         all parts; prints "passed"
 *	conformance family ADDRESS PORT         connects, and prints the family that the kernel knows
 *	conformance server-family ADDRESS PORT  connects, and prints the family of the server's descriptor
 *	conformance continue FD ADDRESS PORT    what test_processes runs in a new program
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

struct sockaddr_in server = {.sin_family = AF_INET};

int real_family(int fd)
{
	int family = 0;
	socklen_t length = sizeof(family);

	CHECK(syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &family, &length) == 0);
	return family;
}

int connected(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	CHECK(connect(fd, (struct sockaddr *)&server, sizeof(server)) == 0);
	return fd;
}

static void describe(const struct sockaddr *address, char *text, size_t room)
{
	char ip[INET6_ADDRSTRLEN];

	if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;

		CHECK(IN6_IS_ADDR_V4MAPPED(&six->sin6_addr));
		inet_ntop(AF_INET, &six->sin6_addr.s6_addr[12], ip, sizeof(ip));
		snprintf(text, room, "%s:%d", ip, ntohs(six->sin6_port));
		return;
	}
	CHECK(address->sa_family == AF_INET);
	inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, ip, sizeof(ip));
	snprintf(text, room, "%s:%d", ip, ntohs(((const struct sockaddr_in *)address)->sin_port));
}

static void read_line(int fd, char *line, size_t room)
{
	size_t length = 0;

	while (length + 1 < room && (length == 0 || line[length - 1] != '\n')) {
		ssize_t count = recv(fd, line + length, 1, 0);

		if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
			usleep(1000);
			continue;
		}
		CHECK(count == 1);
		length++;
	}
	line[length] = '\0';
}

void check_echo(int fd)
{
	char line[64];

	CHECK(send(fd, "hello\n", 6, 0) == 6);
	read_line(fd, line, sizeof(line));
	CHECK(strcmp(line, "hello\n") == 0);
}

void check_connection(int fd, int family)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof(name);
	char own[64], peer[64], wanted[64], line[200], expected[200];
	int value = 0;

	CHECK(real_family(fd) == family);
	CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0);
	CHECK(length == (name.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)));
	describe((struct sockaddr *)&name, own, sizeof(own));
	length = sizeof(value);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == name.ss_family);
	length = sizeof(value);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &length) == 0 && value == IPPROTO_TCP);
	length = sizeof(name);
	CHECK(getpeername(fd, (struct sockaddr *)&name, &length) == 0);
	describe((struct sockaddr *)&name, peer, sizeof(peer));
	describe((struct sockaddr *)&server, wanted, sizeof(wanted));
	CHECK(strcmp(peer, wanted) == 0);
	/* The server sees the same connection. */
	read_line(fd, line, sizeof(line));
	snprintf(expected, sizeof(expected), "%s %s ", own, peer);
	CHECK(strncmp(line, expected, strlen(expected)) == 0);
	/* What the server's descriptor is, if the connection came by AF_VSOCK. */
	if (getenv("SERVER_FAMILY") != NULL && family == AF_VSOCK)
		CHECK(strncmp(line + strlen(expected), getenv("SERVER_FAMILY"), strlen(getenv("SERVER_FAMILY"))) == 0);
	check_echo(fd);
}

static void serve_one(int fd, const struct sockaddr *from)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof(name);
	char accepted[64], peer[64], own[64], line[200];
	char bytes[4096];
	ssize_t count;

	describe(from, accepted, sizeof(accepted));
	CHECK(getpeername(fd, (struct sockaddr *)&name, &length) == 0);
	describe((struct sockaddr *)&name, peer, sizeof(peer));
	CHECK(strcmp(accepted, peer) == 0);
	length = sizeof(name);
	CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0);
	describe((struct sockaddr *)&name, own, sizeof(own));
	snprintf(line, sizeof(line), "%s %s %s\n", peer, own, real_family(fd) == AF_VSOCK ? "vsock" : "inet");
	CHECK(send(fd, line, strlen(line), 0) == (ssize_t)strlen(line));
	while ((count = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		CHECK(send(fd, bytes, (size_t)count, MSG_NOSIGNAL) == count);
	shutdown(fd, SHUT_WR);
}

static void serve(int port)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	int listener = socket(AF_INET6, SOCK_STREAM, 0);
	int on = 1;

	CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
	CHECK(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0);
	CHECK(listen(listener, 64) == 0);
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		struct sockaddr_storage from;
		socklen_t length = sizeof(from);
		int fd = accept(listener, (struct sockaddr *)&from, &length);

		CHECK(fd >= 0);
		if (fork() == 0) {
			serve_one(fd, (struct sockaddr *)&from);
			exit(0);
		}
		close(fd);
	}
}

static void set_server(const char *address, const char *port)
{
	CHECK(inet_aton(address, &server.sin_addr) == 1);
	server.sin_port = htons((uint16_t)atoi(port));
}

int main(int count, char **words)
{
	if (count == 3 && strcmp(words[1], "server") == 0)
		serve(atoi(words[2]));
	if (count == 5 && strcmp(words[1], "continue") == 0) {
		set_server(words[3], words[4]);
		continue_as(atoi(words[2]));
		return 0;
	}
	if (count != 4)
		return 2;
	set_server(words[2], words[3]);
	if (strcmp(words[1], "family") == 0) {
		puts(real_family(connected()) == AF_VSOCK ? "vsock" : "inet");
		return 0;
	}
	if (strcmp(words[1], "server-family") == 0) {
		char line[200];

		read_line(connected(), line, sizeof(line));
		fputs(strrchr(line, ' ') + 1, stdout);
		return 0;
	}
	test_connect();
	test_processes(words[0]);
	test_fallbacks();
	test_data();
	puts("passed");
	return 0;
}
