/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The functions of the next library, mostly the C library. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "internal.h"

static struct real functions;
static atomic_bool is_resolved;

/* POSIX lets a function pointer be copied out of a data pointer. */
static void resolve(void *function, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	memcpy(function, &found, sizeof(found));
}

static void resolve_all(void)
{
#define RESOLVE(name) resolve(&functions.name, #name)
	RESOLVE(socket);
	RESOLVE(connect);
	RESOLVE(bind);
	RESOLVE(listen);
	RESOLVE(accept);
	RESOLVE(accept4);
	RESOLVE(getpeername);
	RESOLVE(getsockname);
	RESOLVE(getsockopt);
	RESOLVE(setsockopt);
	RESOLVE(dup);
	RESOLVE(dup2);
	RESOLVE(dup3);
	RESOLVE(fcntl);
	RESOLVE(ioctl);
	RESOLVE(epoll_ctl);
	RESOLVE(sendto);
	RESOLVE(sendmsg);
#undef RESOLVE
}

const struct real *real(void)
{
	/* Another library's constructor may call before this one's. Two threads may resolve at once: the values are equal. */
	if (!atomic_load_explicit(&is_resolved, memory_order_acquire)) {
		resolve_all();
		atomic_store_explicit(&is_resolved, true, memory_order_release);
	}
	return &functions;
}

__attribute__((constructor)) static void begin(void)
{
	(void)real();
	unshared_begin();
}
