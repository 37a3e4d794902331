/*
 * Everybody sends everybody messages of each protocol, and looks at each byte that comes.
 *
 *   all_to_all RANK NAME:ENDPOINT...
 *
 * The list is the same for all; RANK says which place in it is one's own, from 0. A NAME is a member or
 * host, or "localhost" for the own one. Who comes first waits for the others, two minutes at most.
 */
#include <myriexpress.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY 0xa11
#define PATIENCE_S 120
#define TRY_MS 5000

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

static void must(const char *what, mx_return_t code) {
  if (code != MX_SUCCESS)
    fail(what, mx_strerror(code));
}

static unsigned char byte_of(unsigned from, unsigned to, uint32_t at) {
  return (unsigned char)(from * 41 + to * 7 + at);
}

/* The sender and the kind, so no receive gets another's message. */
static uint64_t match(unsigned from, unsigned kind) {
  return (uint64_t)from << 32 | kind;
}

/* NAME:ENDPOINT; a name may have a colon. */
static uint32_t parse(char *word, char name[MX_MAX_HOSTNAME_LEN]) {
  char *colon = strrchr(word, ':');
  if (!colon || colon - word >= MX_MAX_HOSTNAME_LEN)
    fail(word, "not NAME:ENDPOINT");
  memcpy(name, word, (size_t)(colon - word));
  name[colon - word] = 0;
  return (uint32_t)strtoul(colon + 1, NULL, 10);
}

/* Others may not be there yet, and their names not known. */
static mx_endpoint_addr_t find(mx_endpoint_t endpoint, char *word) {
  char name[MX_MAX_HOSTNAME_LEN];
  uint32_t id = parse(word, name);
  time_t end = time(NULL) + PATIENCE_S;
  mx_endpoint_addr_t peer;
  mx_return_t code;
  do {
    uint64_t nic;
    code = mx_hostname_to_nic_id(name, &nic);
    if (code == MX_SUCCESS)
      code = mx_connect(endpoint, nic, id, KEY, TRY_MS, &peer);
    if (code == MX_SUCCESS)
      return peer;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  } while (time(NULL) < end);
  fail(word, mx_strerror(code));
  return peer;
}

static struct message take(uint32_t length) {
  struct message message = {.bytes = malloc(length)};
  if (!message.bytes)
    fail("malloc", "no memory");
  return message;
}

/* It is over when its receiver has it. */
static struct message give(mx_endpoint_t endpoint, mx_endpoint_addr_t peer, unsigned from, unsigned to,
                           unsigned kind) {
  struct message message = take(lengths[kind]);
  for (uint32_t at = 0; at < lengths[kind]; at++)
    message.bytes[at] = byte_of(from, to, at);
  mx_segment_t segment = {message.bytes, lengths[kind]};
  must("mx_issend", mx_issend(endpoint, &segment, 1, peer, match(from, kind), NULL, &message.request));
  return message;
}

static struct message expect(mx_endpoint_t endpoint, unsigned from, unsigned kind) {
  struct message message = take(lengths[kind]);
  mx_segment_t segment = {message.bytes, lengths[kind]};
  must("mx_irecv", mx_irecv(endpoint, &segment, 1, match(from, kind), MX_MATCH_MASK_NONE, NULL,
                            &message.request));
  return message;
}

static void finish(mx_endpoint_t endpoint, struct message *message, unsigned kind) {
  mx_status_t status;
  uint32_t ended;
  must("mx_wait", mx_wait(endpoint, &message->request, MX_INFINITE, &status, &ended));
  if (status.code != MX_STATUS_SUCCESS)
    fail("a message", mx_strstatus(status.code));
  if (status.xfer_length != lengths[kind])
    fail("a message", "not whole");
}

static void check(const struct message *message, unsigned from, unsigned to, unsigned kind) {
  for (uint32_t at = 0; at < lengths[kind]; at++)
    if (message->bytes[at] != byte_of(from, to, at))
      fail("a message", "other bytes came than were sent");
}

static void exchange(mx_endpoint_t endpoint, unsigned own, unsigned count, mx_endpoint_addr_t *peers) {
  struct message(*in)[KINDS] = calloc(count, sizeof *in);
  struct message(*out)[KINDS] = calloc(count, sizeof *out);
  if (!in || !out)
    fail("calloc", "no memory");
  for (unsigned other = 0; other < count; other++)
    for (unsigned kind = 0; kind < KINDS; kind++) {
      in[other][kind] = expect(endpoint, other, kind);
      out[other][kind] = give(endpoint, peers[other], own, other, kind);
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
  must("mx_init", mx_init());
  must("mx_open_endpoint", mx_open_endpoint(MX_ANY_NIC, parse(all[own], name), KEY, NULL, 0, &endpoint));
  /* A message to oneself is one, too. */
  for (unsigned other = 0; other < count; other++)
    peers[other] = find(endpoint, all[other]);
  exchange(endpoint, own, count, peers);
  must("mx_close_endpoint", mx_close_endpoint(endpoint));
  must("mx_finalize", mx_finalize());
  printf("%u of %u has all %zu messages\n", own, count, (size_t)count * KINDS);
  free(peers);
  return 0;
}
