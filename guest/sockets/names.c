/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* getpeername() and getsockname() of AF_VSOCK sockets that stand for TCP sockets. */
#include <linux/vm_sockets.h>
#include <string.h>

#include "internal.h"

typedef int name_function(int, struct sockaddr *, socklen_t *);

/* Writes a TCP address instead of the AF_VSOCK address, if the port stands for one. Returns its length. */
static socklen_t translate(struct sockaddr_storage *name, bool is_own, struct tag tag)
{
	struct sockaddr_vm from;
	struct in_addr address;
	in_port_t port;

	memcpy(&from, name, sizeof(from));
	if (from.svm_port >> 24 != PORT_PREFIX ||
	    !table_find_address(is_own ? UINT32_MAX : from.svm_cid, (from.svm_port >> 16) & 0xff, &address))
		return sizeof(from);
	port = htons((uint16_t)from.svm_port);
	memset(name, 0, sizeof(*name));
	if (tag.is_ipv6) {
		struct sockaddr_in6 *six = (struct sockaddr_in6 *)name;

		six->sin6_family = AF_INET6;
		six->sin6_port = port;
		six->sin6_addr.s6_addr[10] = 0xff;
		six->sin6_addr.s6_addr[11] = 0xff;
		memcpy(&six->sin6_addr.s6_addr[12], &address, sizeof(address));
		return sizeof(*six);
	}
	*(struct sockaddr_in *)name = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port, .sin_addr = address};
	return sizeof(struct sockaddr_in);
}

static int name_of(name_function *ask, int fd, bool is_own, struct sockaddr *address, socklen_t *length)
{
	struct sockaddr_storage name;
	socklen_t room = sizeof(name);
	struct tag tag;

	if (ask(fd, (struct sockaddr *)&name, &room) != 0 || name.ss_family != AF_VSOCK || address == NULL ||
	    length == NULL || !tag_read(fd, &tag))
		return ask(fd, address, length);
	room = translate(&name, is_own, tag);
	memcpy(address, &name, *length < room ? *length : room);
	*length = room;
	return 0;
}

EXPORT int getpeername(int fd, struct sockaddr *address, socklen_t *length)
{
	return name_of(real()->getpeername, fd, false, address, length);
}

EXPORT int getsockname(int fd, struct sockaddr *address, socklen_t *length)
{
	return name_of(real()->getsockname, fd, true, address, length);
}
