/* Sections 1 to 4: a program compiled for the original interface. It includes none of our headers:
   it repeats the original's values, layouts and symbol versions. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

typedef struct { uint64_t a, b; } addr;
typedef struct { void *memory; uint32_t length; } segment;
typedef struct {
  uint32_t code;
  addr source;
  uint64_t match;
  uint32_t message, taken;
  void *context;
} status;
typedef struct { uint32_t key; union { void *handler; uint32_t number; uint8_t bytes[2]; } value; } param;
typedef uint32_t (*error_handler)(char *, uint32_t);

_Static_assert(sizeof(addr) == 16 && sizeof(segment) == 16 && sizeof(param) == 16, "sizes");
_Static_assert(offsetof(segment, length) == 8 && offsetof(param, value) == 8, "places");
_Static_assert(sizeof(status) == 48 && offsetof(status, source) == 8, "status");
_Static_assert(offsetof(status, match) == 24 && offsetof(status, message) == 32, "status");
_Static_assert(offsetof(status, taken) == 36 && offsetof(status, context) == 40, "status");

/* The symbol versions that programs for the original were linked to. */
#define VERSION(name, version) __asm__(".symver " #name "," #name "@" #version)
extern uint32_t mx__init_api(int);
VERSION(mx__init_api, MX_0.92);
extern uint32_t mx_open_endpoint(uint32_t, uint32_t, uint32_t, param *, uint32_t, void **);
VERSION(mx_open_endpoint, MX_0.9);
extern uint32_t mx_decompose_endpoint_addr(addr, uint64_t *, uint32_t *);
VERSION(mx_decompose_endpoint_addr, MX_0.9);
extern uint32_t mx_get_info(void *, uint32_t, void *, uint32_t, void *, uint32_t);
VERSION(mx_get_info, MX_0.91);
extern uint32_t mx_test(void *, void **, status *, uint32_t *);
VERSION(mx_test, MX_0.91);
extern uint32_t mx_wait(void *, void **, uint32_t, status *, uint32_t *);
VERSION(mx_wait, MX_0.91);
extern uint32_t mx_iprobe(void *, uint64_t, uint64_t, status *, uint32_t *);
VERSION(mx_iprobe, MX_0.91);
extern const error_handler MX_ERRORS_ARE_FATAL, MX_ERRORS_RETURN;
extern error_handler mx_set_error_handler(error_handler);
extern uint32_t mx_finalize(void), mx_close_endpoint(void *), mx_get_endpoint_addr(void *, addr *);
extern uint32_t mx_isend(void *, segment *, uint32_t, addr, uint64_t, void *, void **);
extern uint32_t mx_irecv(void *, segment *, uint32_t, uint64_t, uint64_t, void *, void **);
extern uint32_t mx_wait_any(void *, uint32_t, uint64_t, uint64_t, status *, uint32_t *);
extern uint32_t mx_board_number_to_nic_id(uint32_t, uint64_t *);
extern uint32_t mx_connect(void *, uint64_t, uint32_t, uint32_t, uint32_t, addr *);
extern uint32_t mx_register_unexp_handler(void *, int (*)(void *, addr, uint64_t, uint32_t, void *), void *);

static int calls;

static int handler(void *context, addr source, uint64_t match, uint32_t length, void *data) {
  (void)source;
  calls += context == &calls && match == 0x55 && length == 3 && !memcmp(data, "abc", 3);
  return 1;
}

#define CHECK(condition) if (!(condition)) return __LINE__ % 251 + 1

int main(void) {
  void *endpoint, *request, *sent;
  addr own, other;
  status s;
  uint32_t result, id, number;
  uint64_t nic, other_nic;
  char memory[8] = "abc";
  param ids = {2, {.bytes = {4, 60}}};
  segment piece = {memory, 3};
  alarm(300);
  CHECK(mx_set_error_handler(MX_ERRORS_RETURN) == MX_ERRORS_ARE_FATAL);
  CHECK(mx__init_api(0x301) == 0);
  CHECK(mx_get_info(NULL, 13, NULL, 0, &number, 4) == 0 && number == 32768);
  CHECK(mx_open_endpoint(0xffffffff, 0xffffffff, 9, &ids, 1, &endpoint) == 0);
  CHECK(mx_get_endpoint_addr(endpoint, &own) == 0);
  CHECK(mx_board_number_to_nic_id(0, &nic) == 0);
  CHECK(mx_decompose_endpoint_addr(own, &other_nic, &id) == 0 && other_nic == nic);
  CHECK(mx_connect(endpoint, nic, id, 9, 1000, &other) == 0 && !memcmp(&own, &other, 16));
  CHECK(mx_connect(endpoint, nic, id, 8, 1000, &other) == 34);
  CHECK(mx_isend(endpoint, &piece, 1, own, 0x1000000000000077, &piece, &sent) == 0);
  CHECK(mx_iprobe(endpoint, 0, 0, &s, &result) == 0 && result == 1 && s.message == 3);
  piece.memory = memory + 4;
  piece.length = 2;
  CHECK(mx_irecv(endpoint, &piece, 1, 0x77, 0xff, NULL, &request) == 42);
  CHECK(mx_irecv(endpoint, &piece, 1, 0x1000000000000000, 0xf000000000000000, &s, &request) == 0);
  CHECK(mx_wait(endpoint, &request, 0, &s, &result) == 0 && result == 1 && request == NULL);
  CHECK(s.code == 5 && !memcmp(&s.source, &own, 16) && s.match == 0x1000000000000077);
  CHECK(s.message == 3 && s.taken == 2 && s.context == &s && !memcmp(memory + 4, "ab", 3));
  CHECK(mx_wait_any(endpoint, 1000, 0x77, 0xff, &s, &result) == 0 && result == 1);
  CHECK(s.context == &piece && s.taken == 2);
  CHECK(mx_test(endpoint, &sent, &s, &result) == 13);
  CHECK(mx_register_unexp_handler(endpoint, handler, &calls) == 0);
  piece.memory = memory;
  piece.length = 3;
  CHECK(mx_isend(endpoint, &piece, 1, own, 0x55, NULL, NULL) == 0);
  CHECK(mx_wait_any(endpoint, 1, 0x55, 0xff, &s, &result) == 0 && calls <= 1);
  CHECK(mx_close_endpoint(endpoint) == 0 && mx_finalize() == 0);
  return 0;
}
