/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which descriptors may be replaced: sockets that this process made by socket(), and that nothing else knows. A socket
 * that an epoll set, a duplicate or another process knows cannot be replaced, because they would keep the old one. The
 * kernel does not tell whether there are any, so the library notes a new socket, and forgets it at every call that could
 * make another reference. What it has not seen it does not replace.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "internal.h"

/* Descriptors from this number on go by TCP. */
#define MAX_DESCRIPTORS 16384

/* For each descriptor the inode of an unshared socket, and the number of forks before it was made; zero if it has none. */
static _Atomic uint64_t unshared[MAX_DESCRIPTORS];
static _Atomic uint16_t forks;

/* Both processes have the descriptors now. */
static void forked(void)
{
	atomic_fetch_add(&forks, 1);
}

void unshared_begin(void)
{
	pthread_atfork(NULL, forked, forked);
}

static bool in_range(int fd)
{
	return fd >= 0 && fd < MAX_DESCRIPTORS;
}

/* Returns the mark of the socket that a descriptor has now, or zero. */
static uint64_t mark_of(int fd)
{
	struct stat status;

	if (fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode))
		return 0;
	return ((uint64_t)status.st_ino << 16) | atomic_load(&forks);
}

void unshared_note(int fd)
{
	if (in_range(fd))
		atomic_store(&unshared[fd], mark_of(fd));
}

void unshared_forget(int fd)
{
	if (in_range(fd) && atomic_load_explicit(&unshared[fd], memory_order_relaxed) != 0)
		atomic_store(&unshared[fd], 0);
}

bool unshared_has(int fd)
{
	return in_range(fd) && atomic_load_explicit(&unshared[fd], memory_order_relaxed) != 0;
}

bool unshared_take(int fd)
{
	uint64_t mark;

	if (!unshared_has(fd))
		return false;
	/* The descriptor may have been closed, and belong to another socket now. */
	mark = atomic_exchange(&unshared[fd], 0);
	return mark != 0 && mark == mark_of(fd);
}
