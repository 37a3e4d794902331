/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Measures a stream by TCP or by AF_VSOCK, with the same calls.
 *
 *	figures server PORT                    serves TCP and AF_VSOCK
 *	figures stream SECONDS ADDRESS PORT    prints MB/s, as the server counts it
 *	figures trips SECONDS ADDRESS PORT     prints the median of 64 bytes there and back, in microseconds
 *	figures connects SECONDS ADDRESS PORT  prints connections a second that the server answered, one after another
 *
 * ADDRESS is an IPv4 address, or a CID. FIGURES_BUFFER is the receive space of AF_VSOCK in bytes, by default 2 MiB,
 * which is what libvicinity-sockets asks for. FIGURES_BLOCK is the bytes that a stream sends by one call, by default and at
 * most 128 KiB.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/vm_sockets.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 128 << 10, SMALL = 64, MOST = 1 << 20 };

/* How a connection begins. */
struct hello {
	char kind;
};

static _Thread_local char block[BLOCK];

static void check(int done, const char *what)
{
	if (done)
		return;
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void read_all(int fd, void *to, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t count = recv(fd, (char *)to + got, size - got, 0);

		check(count > 0, "recv");
		got += (size_t)count;
	}
}

static int new_socket(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);
	int on = 1;

	check(fd >= 0, "socket");
	if (family == AF_VSOCK) {
		const char *wanted = getenv("FIGURES_BUFFER");
		uint64_t bytes = wanted ? strtoull(wanted, NULL, 0) : 2 << 20;

		check(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &bytes, sizeof(bytes)) == 0, "size");
		check(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &bytes, sizeof(bytes)) == 0, "size");
		return fd;
	}
	check(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0, "SO_REUSEADDR");
	check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
	return fd;
}

static int connected(const char *address, unsigned int port, char kind)
{
	struct sockaddr_in ip = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct sockaddr_vm vm = {.svm_family = AF_VSOCK, .svm_port = port};
	struct hello hello = {.kind = kind};
	int fd;

	if (strchr(address, '.')) {
		check(inet_aton(address, &ip.sin_addr) == 1, "address");
		fd = new_socket(AF_INET);
		check(connect(fd, (struct sockaddr *)&ip, sizeof(ip)) == 0, "connect");
	} else {
		vm.svm_cid = (unsigned int)strtoul(address, NULL, 0);
		fd = new_socket(AF_VSOCK);
		check(connect(fd, (struct sockaddr *)&vm, sizeof(vm)) == 0, "connect");
	}
	check(send(fd, &hello, sizeof(hello), 0) == sizeof(hello), "send");
	return fd;
}

/* Counts what comes until the client has ended, and answers with the sum. */
static void count_stream(int fd)
{
	uint64_t sum = 0;
	ssize_t count;

	while ((count = recv(fd, block, BLOCK, 0)) > 0)
		sum += (uint64_t)count;
	(void)!send(fd, &sum, sizeof(sum), MSG_NOSIGNAL);
}

static void echo(int fd)
{
	ssize_t count;

	while ((count = recv(fd, block, BLOCK, 0)) > 0)
		(void)!send(fd, block, (size_t)count, MSG_NOSIGNAL);
}

static void *serve_one(void *argument)
{
	int fd = (int)(intptr_t)argument;
	struct hello hello;

	if (recv(fd, &hello, sizeof(hello), MSG_WAITALL) == sizeof(hello) && hello.kind == 's')
		count_stream(fd);
	else
		echo(fd);
	close(fd);
	return NULL;
}

static void serve(unsigned int port, int family)
{
	struct sockaddr_in ip = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct sockaddr_vm vm = {.svm_family = AF_VSOCK, .svm_port = port, .svm_cid = VMADDR_CID_ANY};
	int listener = new_socket(family);

	if (family == AF_INET)
		check(bind(listener, (struct sockaddr *)&ip, sizeof(ip)) == 0, "bind");
	else
		check(bind(listener, (struct sockaddr *)&vm, sizeof(vm)) == 0, "bind");
	check(listen(listener, 64) == 0, "listen");
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		pthread_t thread;

		if (fd >= 0 && pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd) == 0)
			pthread_detach(thread);
	}
}

static void stream(int fd, double seconds)
{
	const char *wanted = getenv("FIGURES_BLOCK");
	ssize_t size = wanted ? atoi(wanted) : BLOCK;
	double began = now();
	uint64_t sum;

	check(size > 0 && size <= BLOCK, "FIGURES_BLOCK");
	while (now() - began < seconds) {
		for (ssize_t sent = 0; sent < size;) {
			ssize_t count = send(fd, block + sent, (size_t)(size - sent), 0);

			check(count > 0, "send");
			sent += count;
		}
	}
	check(shutdown(fd, SHUT_WR) == 0, "shutdown");
	read_all(fd, &sum, sizeof(sum));
	printf("%.1f\n", (double)sum / (now() - began) / 1e6);
}

static int compare(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static void trips(int fd, double seconds)
{
	static double took[MOST];
	double began = now();
	size_t count = 0;

	while (count < MOST && now() - began < seconds) {
		double start = now();

		check(send(fd, block, SMALL, 0) == SMALL, "send");
		read_all(fd, block, SMALL);
		took[count++] = now() - start;
	}
	check(count > 0, "no exchange");
	qsort(took, count, sizeof(*took), compare);
	printf("%.1f\n", took[count / 2] * 1e6);
}

static void connects(const char *address, unsigned int port, double seconds)
{
	double began = now();
	unsigned long count = 0;
	char byte = 'x';

	for (; now() - began < seconds; count++) {
		int fd = connected(address, port, 'e');

		check(send(fd, &byte, 1, 0) == 1, "send");
		read_all(fd, &byte, 1);
		close(fd);
	}
	printf("%.1f\n", (double)count / (now() - began));
}

int main(int count, char **words)
{
	if (count == 3 && strcmp(words[1], "server") == 0) {
		unsigned int port = (unsigned int)atoi(words[2]);

		serve(port, fork() == 0 ? AF_VSOCK : AF_INET);
	}
	if (count != 5)
		return 2;
	if (strcmp(words[1], "stream") == 0)
		stream(connected(words[3], (unsigned int)atoi(words[4]), 's'), atof(words[2]));
	else if (strcmp(words[1], "trips") == 0)
		trips(connected(words[3], (unsigned int)atoi(words[4]), 'e'), atof(words[2]));
	else
		connects(words[3], (unsigned int)atoi(words[4]), atof(words[2]));
	return 0;
}
