/*
 * Each process sends messages of each protocol to all processes, and checks every byte that arrives.
 *
 *   all_to_all RANK NAME:ENDPOINT...
 *
 * All processes get the same list; RANK is the index of the own entry, from 0. A NAME is a member or
 * host, or "localhost". A process waits for the others for at most two minutes.
 */
#include <myriexpress.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY 0xa11
#define TIMEOUT_S 120
#define CONNECT_MS 5000

/* Eager, medium, large. */
static const uint32_t lengths[] = {8, 5000, 100000};
#define KINDS (sizeof lengths / sizeof *lengths)

struct message {
  mx_request_t request;
  unsigned char *bytes;
};

static void fail(const char *what, const char *why) {
  fprintf(stderr, "all_to_all: %s: %s\n", what, why);
  exit(1);
}

static void check_code(const char *what, mx_return_t code) {
  if (code != MX_SUCCESS)
    fail(what, mx_strerror(code));
}

static unsigned char byte_of(unsigned from, unsigned to, uint32_t at) {
  return (unsigned char)(from * 41 + to * 7 + at);
}

/* The match value contains the sender and the kind, so each receive matches one message. */
static uint64_t match(unsigned from, unsigned kind) {
  return (uint64_t)from << 32 | kind;
}

/* Parses NAME:ENDPOINT. The name may contain a colon. */
static uint32_t parse(char *word, char name[MX_MAX_HOSTNAME_LEN]) {
  char *colon = strrchr(word, ':');
  if (!colon || colon - word >= MX_MAX_HOSTNAME_LEN)
    fail(word, "not NAME:ENDPOINT");
  memcpy(name, word, (size_t)(colon - word));
  name[colon - word] = 0;
  return (uint32_t)strtoul(colon + 1, NULL, 10);
}

/* Other processes may not have started yet, and their names may be unknown. */
static mx_endpoint_addr_t find(mx_endpoint_t endpoint, char *word) {
  char name[MX_MAX_HOSTNAME_LEN];
  uint32_t id = parse(word, name);
  time_t end = time(NULL) + TIMEOUT_S;
  mx_endpoint_addr_t peer;
  mx_return_t code;
  do {
    uint64_t nic;
    code = mx_hostname_to_nic_id(name, &nic);
    if (code == MX_SUCCESS)
      code = mx_connect(endpoint, nic, id, KEY, CONNECT_MS, &peer);
    if (code == MX_SUCCESS)
      return peer;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  } while (time(NULL) < end);
  fail(word, mx_strerror(code));
  return peer;
}

static struct message allocate(uint32_t length) {
  struct message message = {.bytes = malloc(length)};
  if (!message.bytes)
    fail("malloc", "no memory");
  return message;
}

/* The send completes when the message is received. */
static struct message start_send(mx_endpoint_t endpoint, mx_endpoint_addr_t peer, unsigned from, unsigned to,
                           unsigned kind) {
  struct message message = allocate(lengths[kind]);
  for (uint32_t at = 0; at < lengths[kind]; at++)
    message.bytes[at] = byte_of(from, to, at);
  mx_segment_t segment = {message.bytes, lengths[kind]};
  check_code("mx_issend", mx_issend(endpoint, &segment, 1, peer, match(from, kind), NULL, &message.request));
  return message;
}

static struct message start_receive(mx_endpoint_t endpoint, unsigned from, unsigned kind) {
  struct message message = allocate(lengths[kind]);
  mx_segment_t segment = {message.bytes, lengths[kind]};
  check_code("mx_irecv", mx_irecv(endpoint, &segment, 1, match(from, kind), MX_MATCH_MASK_NONE, NULL,
                            &message.request));
  return message;
}

static void finish(mx_endpoint_t endpoint, struct message *message, unsigned kind) {
  mx_status_t status;
  uint32_t ended;
  check_code("mx_wait", mx_wait(endpoint, &message->request, MX_INFINITE, &status, &ended));
  if (status.code != MX_STATUS_SUCCESS)
    fail("a message", mx_strstatus(status.code));
  if (status.xfer_length != lengths[kind])
    fail("a message", "incomplete");
}

static void check(const struct message *message, unsigned from, unsigned to, unsigned kind) {
  for (uint32_t at = 0; at < lengths[kind]; at++)
    if (message->bytes[at] != byte_of(from, to, at))
      fail("a message", "a byte differs from what was sent");
}

static void exchange(mx_endpoint_t endpoint, unsigned own, unsigned count, mx_endpoint_addr_t *peers) {
  struct message(*in)[KINDS] = calloc(count, sizeof *in);
  struct message(*out)[KINDS] = calloc(count, sizeof *out);
  if (!in || !out)
    fail("calloc", "no memory");
  for (unsigned other = 0; other < count; other++)
    for (unsigned kind = 0; kind < KINDS; kind++) {
      in[other][kind] = start_receive(endpoint, other, kind);
      out[other][kind] = start_send(endpoint, peers[other], own, other, kind);
    }
  for (unsigned other = 0; other < count; other++)
    for (unsigned kind = 0; kind < KINDS; kind++) {
      finish(endpoint, &in[other][kind], kind);
      check(&in[other][kind], other, own, kind);
      finish(endpoint, &out[other][kind], kind);
      free(in[other][kind].bytes);
      free(out[other][kind].bytes);
    }
  free(in);
  free(out);
}

int main(int words, char **word) {
  if (words < 3) {
    fprintf(stderr, "usage: all_to_all RANK NAME:ENDPOINT...\n");
    return 2;
  }
  unsigned own = (unsigned)strtoul(word[1], NULL, 10), count = (unsigned)words - 2;
  char **all = word + 2;
  if (own >= count)
    fail(word[1], "no such rank");
  char name[MX_MAX_HOSTNAME_LEN];
  mx_endpoint_t endpoint;
  mx_endpoint_addr_t *peers = calloc(count, sizeof *peers);
  if (!peers)
    fail("calloc", "no memory");

  mx_set_error_handler(MX_ERRORS_RETURN);
  check_code("mx_init", mx_init());
  check_code("mx_open_endpoint", mx_open_endpoint(MX_ANY_NIC, parse(all[own], name), KEY, NULL, 0, &endpoint));
  /* The process also sends messages to itself. */
  for (unsigned other = 0; other < count; other++)
    peers[other] = find(endpoint, all[other]);
  exchange(endpoint, own, count, peers);
  check_code("mx_close_endpoint", mx_close_endpoint(endpoint));
  check_code("mx_finalize", mx_finalize());
  printf("%u of %u has all %zu messages\n", own, count, (size_t)count * KINDS);
  free(peers);
  return 0;
}
