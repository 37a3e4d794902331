/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libvicinity-sockets: TCP connections of unmodified programs as AF_VSOCK connections, between VMs of one host.
 *
 * Theory of operation
 *
 *   connect(fd, 10.0.0.4:5432)                                     accept(listener) = fd
 *      | unshared: is fd a new socket that nothing else knows?         | SO_MARK: does the connection come from the agent?
 *      | table: is 10.0.0.4 a VM of this host?                         |
 *      v                                                               v
 *   AF_VSOCK connection --- vicinity-agent of the server's VM --- claim: the agent passes the AF_VSOCK connection
 *      | dup3 over fd                                                  | dup3 over fd
 *
 * Descriptors stay sockets of the kernel, so poll, fork, exec and sendfile work as before. The library keeps no state of
 * a connection. What later calls need is in the kernel: the ports of both ends tell the TCP addresses (names), and
 * SO_PRIORITY tells that the socket stands for a TCP socket, its family, and TCP_NODELAY (tag).
 *
 * A connection goes by TCP, as without this library, whenever anything is unusual. What decides is known, not guessed:
 * only a socket that this process made and that it has not bound, duplicated, inherited or put into an epoll set is
 * replaced (unshared), and only options that an AF_VSOCK socket can have may be set on it (options).
 *
 * The table and the ports are foreign data. The table's reader copes with any bytes in it, and a peer VM can only delay
 * a connect, by at most the limits in connect.c.
 */
#ifndef VICINITY_SOCKETS_INTERNAL_H
#define VICINITY_SOCKETS_INTERNAL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "layout.h"

#define EXPORT __attribute__((visibility("default")))

/* real.c: the functions that this library stands before. */
struct real {
	int (*socket)(int, int, int);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	int (*bind)(int, const struct sockaddr *, socklen_t);
	int (*listen)(int, int);
	int (*accept)(int, struct sockaddr *, socklen_t *);
	int (*accept4)(int, struct sockaddr *, socklen_t *, int);
	int (*getpeername)(int, struct sockaddr *, socklen_t *);
	int (*getsockname)(int, struct sockaddr *, socklen_t *);
	int (*getsockopt)(int, int, int, void *, socklen_t *);
	int (*setsockopt)(int, int, int, const void *, socklen_t);
	int (*dup)(int);
	int (*dup2)(int, int);
	int (*dup3)(int, int, int);
	int (*fcntl)(int, int, ...);
	int (*ioctl)(int, unsigned long, ...);
	int (*epoll_ctl)(int, int, int, struct epoll_event *);
	ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(int, const struct msghdr *, int);
};

const struct real *real(void);

/* table.c: the addresses of the VMs of this host. */
struct route {
	/* The server. */
	struct entry to;
	/* This VM's address in the same network, from which TCP would connect. */
	struct entry from;
};

/* Returns whether connections may be replaced at all. */
bool table_is_enabled(void);
/* Finds the entry of a server that offers this port, in this process's network namespace. */
bool table_find_server(struct in_addr address, uint16_t port, struct entry *to);
/* Finds this VM's entry for an address in a network. */
bool table_find_own(struct in_addr address, uint32_t network, struct entry *from);
/* Finds the address of a CID with this index. UINT32_MAX is this VM. */
bool table_find_address(uint32_t cid, uint16_t index, struct in_addr *address);

/* unshared.c: sockets that this process made and nothing else knows. */
void unshared_begin(void);
void unshared_note(int fd);
void unshared_forget(int fd);
bool unshared_has(int fd);
/* Returns whether the socket is unshared, and forgets it. */
bool unshared_take(int fd);

/* tag.c: what the kernel keeps of the TCP socket that an AF_VSOCK socket stands for. */
struct tag {
	bool is_ipv6;
	bool no_delay;
};

bool tag_read(int fd, struct tag *tag);
bool tag_write(int fd, struct tag tag);

/* options.c: gives an AF_VSOCK socket the options of the TCP socket that it replaces. */
/* Before the connection is there, this costs no packet. */
void options_enlarge(int vsock);
bool options_copy(int tcp, int vsock);
/* Puts a socket over a descriptor, with the descriptor's flags. Closes the socket in every case. */
bool options_replace(int fd, int vsock);

/* claim.c: talks to the agent of this VM. */
void claim_listening(int fd);
/* Replaces an accepted connection of the agent by the AF_VSOCK connection that it stands for. */
bool claim_connection(int fd);

#endif
