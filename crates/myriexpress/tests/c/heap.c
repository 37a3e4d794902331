/* One-sided access between two members of the message plane:
     heap MEMBER OTHER own           has memory on its heap, of a process that is killed and of its own
     heap MEMBER OTHER origin        accesses that memory
     heap MEMBER OTHER relay own|origin   the members are in no group: there is no heap */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>

enum { VICTIM = 2, OWNER = 3, ORIGIN = 1, BYTES = 200000, UNIT = 65536 };

static mx_endpoint_t endpoint;
static mx_endpoint_addr_t peer;
static const char *other_member;

/* Connects to an endpoint of the other member. */
static mx_endpoint_addr_t reach(uint32_t id) {
  mx_endpoint_addr_t found;
  mx_return_t code;
  uint64_t nic;
  do {
    usleep(1000);
    code = mx_hostname_to_nic_id((char *)other_member, &nic);
    if (code == MX_SUCCESS)
      code = mx_connect(endpoint, nic, id, KEY, MX_INFINITE, &found);
  } while (code != MX_SUCCESS);
  return found;
}

static mx_heap_handle_t handle_of(const void *memory, uint64_t length) {
  mx_heap_handle_t handle;
  uint32_t found = 7;
  OK(mx_heap_handle(memory, length, &handle, &found));
  CHECK(found == 1);
  return handle;
}

static unsigned char *allocate(uint64_t length) {
  void *memory = &memory;
  OK(mx_heap_alloc(endpoint, length, &memory));
  CHECK(memory == NULL || (uintptr_t)memory % 4096 == 0);
  return memory;
}

static void pass(void *bytes, uint32_t length) {
  CHECK(send_to(endpoint, peer, bytes, length, 1).code == MX_STATUS_SUCCESS);
}

static void await(void *bytes, uint32_t length) {
  CHECK(receive(endpoint, bytes, length, 1, MX_MATCH_MASK_NONE).code == MX_STATUS_SUCCESS);
}

static int put(mx_endpoint_addr_t to, mx_heap_handle_t handle, uint64_t offset, const void *bytes,
               uint64_t length) {
  uint32_t done = 7;
  OK(mx_heap_put(endpoint, to, &handle, offset, bytes, length, &done));
  CHECK(done <= 1);
  return (int)done;
}

static int get(mx_endpoint_addr_t from, mx_heap_handle_t handle, uint64_t offset, void *bytes,
               uint64_t length) {
  uint32_t done = 7;
  OK(mx_heap_get(endpoint, from, &handle, offset, bytes, length, &done));
  CHECK(done <= 1);
  return (int)done;
}

static int add(mx_heap_handle_t handle, uint64_t offset, uint64_t *before) {
  uint32_t done = 7;
  OK(mx_heap_fetch(endpoint, peer, &handle, offset, 8, MX_HEAP_ADD, 1, before, &done));
  return (int)done;
}

/* Waits for a word that is already there, or that is never there. */
static int look(mx_endpoint_addr_t from, mx_heap_handle_t handle, uint64_t offset, uint64_t least, uint64_t *value) {
  uint32_t done = 7;
  OK(mx_heap_look(endpoint, from, &handle, offset, least, value, &done));
  CHECK(done <= 1);
  return (int)done;
}

static unsigned yields;
static bool counts_yields;

/* In place of the C library's function, for the library as well. */
int sched_yield(void) {
  if (!counts_yields)
    return (int)syscall(SYS_sched_yield);
  yields++;
  return 0;
}

/* Polls between accesses wait for nothing: the program does not yield its processor in them, nor sleep. */
static void poll_between_accesses(mx_heap_handle_t handle, const void *bytes) {
  uint32_t found;
  mx_status_t status;
  counts_yields = true;
  for (int i = 0; i < 200000; i++)
    OK(mx_test_any(endpoint, 0, 0, &status, &found));
  CHECK(yields > 0);
  yields = 0;
  for (int i = 0; i < 20000; i++) {
    CHECK(put(peer, handle, 16, bytes, 8));
    OK(mx_test_any(endpoint, 0, 0, &status, &found));
  }
  CHECK(yields == 0);
  uint64_t value, present;
  /* This look may be one without success, which yields. */
  CHECK(look(peer, handle, 16, 0, &present));
  yields = 0;
  for (int i = 0; i < 20000; i++) {
    CHECK(look(peer, handle, 16, present, &value) && value == present);
    OK(mx_test_any(endpoint, 0, 0, &status, &found));
  }
  CHECK(yields == 0);
  counts_yields = false;
}

/* A process has 128 blocks at most. */
static void allocate_all(void) {
  void *blocks[200];
  uint32_t freed;
  int count = 0;
  while (count < 200 && (blocks[count] = allocate(1)) != NULL)
    count++;
  CHECK(count == 128);
  for (int i = 0; i < count; i++) {
    OK(mx_heap_free(blocks[i], &freed));
    CHECK(freed == 1);
  }
}

/* Has memory, and is killed. */
static void victim(void) {
  begin();
  endpoint = open_at(VICTIM);
  peer = reach(ORIGIN);
  unsigned char *memory = allocate(BYTES);
  CHECK(memory != NULL);
  mx_heap_handle_t handle = handle_of(memory, BYTES);
  pass(&handle, sizeof handle);
  for (;;)
    pause();
}

static void own(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    victim();
  }
  char byte = 0;
  begin();
  endpoint = open_at(OWNER);
  CHECK(allocate(1) == NULL);
  peer = reach(ORIGIN);
  /* The origin has put into the child's memory. */
  await(&byte, 1);
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
  allocate_all();
  unsigned char *memory = allocate(BYTES);
  CHECK(memory != NULL && allocate((uint64_t)1 << 40) == NULL);
  memset(memory, 7, BYTES);
  mx_heap_handle_t handle = handle_of(memory + 8, BYTES - 8);
  uint32_t found = 7;
  /* What is not in a block has no handle, and cannot be freed. */
  const void *outside[] = {&found, memory + 8, memory - 1, memory + BYTES};
  for (int i = 0; i < 4; i++) {
    mx_heap_handle_t none;
    OK(mx_heap_handle(outside[i], BYTES - 7, &none, &found));
    CHECK(found == 0);
    OK(mx_heap_free((void *)outside[i], &found));
    CHECK(found == 0);
  }
  pass(&handle, sizeof handle);
  await(&byte, 1);
  /* Nothing that the origin tried has written here. */
  for (int i = 0; i < BYTES; i++)
    CHECK(memory[i] == 7);
  memset(memory, 0, BYTES);
  pass(&byte, 1);
  /* Both add at the same time. */
  for (int i = 0; i < 10000; i++)
    atomic_fetch_add((_Atomic uint64_t *)(memory + 8), 1);
  await(&byte, 1);
  uint64_t sum;
  memcpy(&sum, memory + 8, sizeof sum);
  CHECK(sum == 20000 && is_filled(memory + 16, BYTES - 16, 3));
  memcpy(&sum, memory, sizeof sum);
  CHECK(sum == 0);
  OK(mx_heap_free(memory, &found));
  CHECK(found == 1);
  memory = allocate(BYTES);
  memset(memory, 9, BYTES);
  pass(&byte, 1);
  await(&byte, 1);
  for (int i = 0; i < BYTES; i++)
    CHECK(memory[i] == 9);
  OK(mx_close_endpoint(endpoint));
  /* The memory stays. */
  memory[0] = 1;
  OK(mx_heap_free(memory, &found));
  CHECK(found == 1);
}

/* Handles that no peer made. */
static void lie(mx_heap_handle_t handle, unsigned char *bytes) {
  mx_heap_handle_t wrong[] = {handle, handle, handle, handle, handle};
  wrong[0].unit = UINT32_MAX;
  wrong[1].unit = 100000;
  wrong[2].generation += 2;
  wrong[3].generation += 1;
  wrong[4].offset = UINT64_MAX - 1;
  for (int i = 0; i < 5; i++) {
    uint64_t before = 5;
    CHECK(!put(peer, wrong[i], 0, bytes, 100));
    CHECK(!get(peer, wrong[i], 0, bytes, 100));
    CHECK(!add(wrong[i], 0, &before) && before == 5);
  }
  /* A length that reaches behind the heap. */
  handle.length = UINT64_MAX;
  CHECK(!put(peer, handle, (uint64_t)1 << 32, bytes, 1));
}

static void origin(void) {
  static unsigned char bytes[BYTES];
  mx_heap_handle_t late, handle;
  uint64_t before, nic;
  uint32_t done = 7, id;
  char byte = 0;
  fill(bytes, BYTES, 3);
  begin();
  endpoint = open_at(ORIGIN);
  peer = reach(VICTIM);
  await(&late, sizeof late);
  CHECK(put(peer, late, 0, bytes, BYTES) && get(peer, late, 0, bytes, BYTES));
  CHECK(is_filled(bytes, BYTES, 3));
  mx_endpoint_addr_t killed = peer;
  peer = reach(OWNER);
  pass(&byte, 1);
  await(&handle, sizeof handle);
  /* The new block is in the same place. A late put reaches no program, by either address. */
  CHECK(handle.unit == late.unit && handle.generation != late.generation);
  CHECK(!put(killed, late, 0, bytes, BYTES) && !put(peer, late, 0, bytes, BYTES));
  CHECK(!get(peer, late, 0, bytes, BYTES));
  CHECK(handle.length == BYTES - 8);
  CHECK(!put(peer, handle, 1, bytes, BYTES - 8) && !put(peer, handle, UINT64_MAX, bytes, 1));
  CHECK(!put(peer, handle, BYTES - 8, bytes, 1) && put(peer, handle, BYTES - 8, NULL, 0));
  CHECK(!add(handle, 4, &before) && !add(handle, BYTES - 8, &before));
  CHECK(!look(peer, handle, 4, 0, &before) && !look(peer, handle, BYTES - 8, 0, &before));
  CHECK(!look(peer, late, 0, 0, &before) && look(peer, handle, 0, 0, &before) && before == 0x0707070707070707);
  lie(handle, bytes);
  RETURNS(MX_BAD_PARAM_VAL, mx_heap_fetch(endpoint, peer, &handle, 0, 2, MX_HEAP_ADD, 1, &before, &done));
  RETURNS(MX_BAD_PARAM_VAL, mx_heap_fetch(endpoint, peer, &handle, 0, 8, 5, 1, &before, &done));
  RETURNS(MX_BAD_SEG_MEM, mx_heap_put(endpoint, peer, NULL, 0, bytes, 1, &done));
  RETURNS(MX_BAD_SEG_MEM, mx_heap_put(endpoint, peer, &handle, 0, NULL, 1, &done));
  mx_endpoint_addr_t self;
  OK(mx_get_endpoint_addr(endpoint, &self));
  OK(mx_decompose_endpoint_addr(self, &nic, &id));
  OK(mx_connect(endpoint, nic, id, KEY, MX_INFINITE, &self));
  CHECK(!put(self, handle, 0, bytes, 1));
  pass(&byte, 1);
  await(&byte, 1);
  fill(bytes, BYTES, 3);
  CHECK(put(peer, handle, 8, bytes, BYTES - 16));
  poll_between_accesses(handle, bytes + 8);
  for (int i = 0; i < 10000; i++)
    while (!add(handle, 0, &before))
      ;
  OK(mx_heap_compare_and_swap(endpoint, peer, &handle, 0, 8, 1, 2, &before, &done));
  CHECK(done == 1 && before >= 10000);
  CHECK(look(peer, handle, 0, 0, &before) && before >= 10000);
  CHECK(look(peer, handle, 0, before + 20000, &before) && before >= 10000);
  pass(&byte, 1);
  await(&byte, 1);
  CHECK(!put(peer, handle, 0, bytes, 1) && !add(handle, 0, &before) && !look(peer, handle, 0, 0, &before));
  pass(&byte, 1);
  /* The peer closes its endpoint then. */
  OK(mx_close_endpoint(endpoint));
}

/* Without a group, the members share no memory. */
static void relay(uint32_t id) {
  mx_heap_handle_t handle = {0, 2, 0, 100};
  char byte = 0;
  begin();
  endpoint = open_at(id);
  peer = reach(id == ORIGIN ? OWNER : ORIGIN);
  CHECK(allocate(1) == NULL && !put(peer, handle, 0, &byte, 1));
  barrier(endpoint, peer);
  OK(mx_close_endpoint(endpoint));
}

int main(int count, char **words) {
  CHECK(count >= 4);
  alarm(HANG);
  other_member = words[2];
  const char *role = words[count - 1];
  int is_origin = !strcmp(role, "origin");
  if (count == 5)
    relay(is_origin ? ORIGIN : OWNER);
  else if (is_origin)
    origin();
  else
    own();
  return 0;
}
