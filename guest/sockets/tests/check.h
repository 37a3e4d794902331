/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the parts of the conformance program share. It runs with the library, and looks behind it by system calls. */
#ifndef VICINITY_CHECK_H
#define VICINITY_CHECK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: %s: %s (%m)\n", __FILE__, __LINE__, __func__, #condition); \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

/* The server of the other VM. */
extern struct sockaddr_in server;

/* The family that the kernel knows. */
int real_family(int fd);
/* Returns a new TCP socket that is connected to the server, whatever the connection goes by. */
int connected(void);
/* Checks that the descriptor is connected by this family, that its names are TCP's, and that the server echoes. */
void check_connection(int fd, int family);
/* Sends a text, and checks that it comes back. */
void check_echo(int fd);

/* Parts. */
void test_connect(void);
void test_processes(const char *program);
void test_fallbacks(void);
void test_data(void);

/* Continues in another program with the connection that it has as this descriptor. */
void continue_as(int fd);

#endif
