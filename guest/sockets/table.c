/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reads the table that the agent writes. The library maps it once, and keeps no descriptor of it. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* How often a reader begins again when the agent writes meanwhile. */
#define TRIES 64

/* Seconds between two attempts to map the table, while there is none. */
#define RETRY 1

static _Atomic(const struct table *) mapped;
static atomic_long tried;

static const struct table *map(void)
{
	const struct table *table = NULL;
	struct stat status;
	int fd = open(TABLE_PATH, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return NULL;
	/* Only root may write it, so nobody shrinks it under this mapping. */
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == 0 && !(status.st_mode & 022) &&
	    status.st_size >= (off_t)sizeof(*table)) {
		table = mmap(NULL, sizeof(*table), PROT_READ, MAP_SHARED, fd, 0);
		if (table == MAP_FAILED)
			table = NULL;
	}
	close(fd);
	return table;
}

static const struct table *find(void)
{
	const struct table *table = atomic_load_explicit(&mapped, memory_order_acquire);
	const struct table *none = NULL;
	struct timespec now;
	int saved = errno;

	if (table != NULL)
		return table;
	/* With more rights than its caller, a program must not do what the caller's environment says. */
	if (getauxval(AT_SECURE) != 0 || clock_gettime(CLOCK_MONOTONIC_COARSE, &now) != 0)
		return NULL;
	if (now.tv_sec < atomic_load(&tried) + RETRY && atomic_load(&tried) != 0)
		return NULL;
	atomic_store(&tried, now.tv_sec);
	table = map();
	if (table != NULL && !atomic_compare_exchange_strong(&mapped, &none, table)) {
		munmap((void *)table, sizeof(*table));
		table = none;
	}
	errno = saved;
	return table;
}

/* The agent writes at any time, so each word is read once, and checked where it is used. */
static uint32_t word(const uint32_t *place)
{
	return __atomic_load_n(place, __ATOMIC_RELAXED);
}

static void copy_entry(const struct entry *from, struct entry *to)
{
	const uint32_t *source = (const uint32_t *)from;
	uint32_t copy[sizeof(*to) / sizeof(uint32_t)];

	for (size_t place = 0; place < sizeof(copy) / sizeof(copy[0]); place++)
		copy[place] = word(source + place);
	memcpy(to, copy, sizeof(*to));
}

/* Copies the first entry that matches. Returns false if there is none, or if the agent stopped in the middle. */
static bool search(const struct table *table, bool (*matches)(const struct entry *, const struct entry *),
		   const struct entry *wanted, struct entry *found)
{
	for (int attempt = 0; attempt < TRIES; attempt++) {
		uint32_t before = __atomic_load_n(&table->sequence, __ATOMIC_ACQUIRE);
		uint32_t count = word(&table->count);
		bool is_found = false;

		if ((before & 1) != 0 || table->magic != TABLE_MAGIC)
			continue;
		if (count > TABLE_ENTRIES)
			count = TABLE_ENTRIES;
		for (uint32_t number = 0; number < count && !is_found; number++) {
			copy_entry(&table->entries[number], found);
			is_found = matches(found, wanted);
		}
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (word(&table->sequence) == before)
			return is_found;
	}
	return false;
}

static bool offers(const struct entry *entry, uint16_t port)
{
	uint32_t count = entry->ranges < TABLE_RANGES ? entry->ranges : TABLE_RANGES;

	for (uint32_t number = 0; number < count; number++)
		if (entry->ports[number].first <= port && port <= entry->ports[number].last)
			return true;
	return false;
}

static bool is_server(const struct entry *entry, const struct entry *wanted)
{
	return entry->address == wanted->address && (entry->flags & (ENTRY_UP | ENTRY_OWN)) == ENTRY_UP &&
	       offers(entry, wanted->ports[0].first);
}

static bool is_own(const struct entry *entry, const struct entry *wanted)
{
	return entry->address == wanted->address && (entry->flags & ENTRY_OWN) != 0 &&
	       entry->network == wanted->network;
}

static bool is_numbered(const struct entry *entry, const struct entry *wanted)
{
	return entry->cid == wanted->cid && entry->index == wanted->index;
}

/* A container has other addresses and other rules than the VM. */
static bool is_in_namespace(const struct table *table)
{
	struct stat status;

	return stat("/proc/self/ns/net", &status) == 0 && status.st_ino == table->netns;
}

bool table_is_enabled(void)
{
	const struct table *table = find();

	return table != NULL && word(&table->enabled) != 0;
}

bool table_find_server(struct in_addr address, uint16_t port, struct entry *to)
{
	const struct table *table = find();
	struct entry wanted = {.address = address.s_addr, .ports = {{.first = port}}};

	return table != NULL && word(&table->enabled) != 0 && search(table, is_server, &wanted, to) &&
	       is_in_namespace(table);
}

bool table_find_own(struct in_addr address, uint32_t network, struct entry *from)
{
	const struct table *table = find();
	struct entry wanted = {.address = address.s_addr, .network = network};

	return table != NULL && search(table, is_own, &wanted, from);
}

bool table_find_address(uint32_t cid, uint16_t index, struct in_addr *address)
{
	const struct table *table = find();
	struct entry wanted = {.cid = cid, .index = index};
	struct entry found;

	if (table == NULL)
		return false;
	if (cid == UINT32_MAX)
		wanted.cid = word(&table->self_cid);
	if (!search(table, is_numbered, &wanted, &found))
		return false;
	address->s_addr = found.address;
	return true;
}
