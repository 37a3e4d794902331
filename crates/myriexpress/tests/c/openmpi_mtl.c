/* Section 7: what Open MPI's mtl/mx relies on. Four processes on one board form one job. */
#include "check.h"

#define RANKS 4
/* Match value: 16 bits of context, 16 bits of source, 32 bits of tag, whose top bit is reserved. */
#define MATCH(source, tag) (1ull << 48 | (uint64_t)(source) << 32 | (uint32_t)(tag))
#define ANY_SOURCE 0xffff0000ffffffffu
#define ANY_TAG 0xffffffff80000000u

static int modex[RANKS][2];

/* The processes of the job exchange addresses through pipes. */
static uint32_t exchange_ids(int rank, uint32_t own, uint32_t *ids) {
  for (int i = 0; i < RANKS; i++)
    CHECK(write(modex[i][1], (uint32_t[]){(uint32_t)rank, own}, 8) == 8);
  for (int i = 0; i < RANKS; i++) {
    uint32_t pair[2];
    CHECK(read(modex[rank][0], pair, 8) == 8);
    ids[pair[0]] = pair[1];
  }
  return 0;
}

static void rank(int me) {
  mx_endpoint_t endpoint;
  mx_endpoint_addr_t own, peers[RANKS];
  uint64_t nic;
  uint32_t id, ids[RANKS], result;
  mx_request_t request, peeked;
  mx_status_t status;
  static char in[RANKS][70000], out[70000];
  mx_set_error_handler(MX_ERRORS_RETURN);
  OK(mx_init());
  OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 0, &endpoint));
  OK(mx_get_endpoint_addr(endpoint, &own));
  OK(mx_decompose_endpoint_addr(own, &nic, &id));
  exchange_ids(me, id, ids);
  /* All processes connect to all others at the same time. */
  for (int i = 0; i < RANKS; i++) {
    mx_return_t code;
    do
      code = mx_connect(endpoint, nic, ids[i], KEY, 1000, &peers[i]);
    while (code == MX_TIMEOUT);
    OK(code);
  }
  memset(out, me + 1, sizeof out);
  static const uint32_t lengths[] = {0, 10, 5000, 70000};
  for (int round = 0; round < 40; round++) {
    uint32_t length = lengths[round % 4];
    for (int i = 0; i < RANKS; i++) {
      /* Standard mode in even rounds, synchronous mode in odd ones. */
      mx_segment_t segment = {out, length};
      OK((round % 2 ? mx_issend : mx_isend)(endpoint, &segment, 1, peers[i], MATCH(me, round),
                                            &peers[i], &request));
    }
    /* Half of the receives select a source, and half match any source and tag. */
    for (int i = 0; i < RANKS; i++) {
      uint64_t mask = round % 4 < 2 ? ~0ull : ANY_SOURCE & ANY_TAG;
      mx_segment_t segment = {in[i], sizeof in[i]};
      OK(mx_irecv(endpoint, &segment, 1, MATCH(i, round) & mask, mask, in[i], &request));
    }
    /* The progress engine: mx_ipeek, then mx_context, then mx_test, which must succeed. */
    for (int left = 2 * RANKS; left > 0;) {
      OK(mx_ipeek(endpoint, &peeked, &result));
      if (!result)
        continue;
      void *context;
      OK(mx_context(&peeked, &context));
      OK(mx_test(endpoint, &peeked, &status, &result));
      CHECK(result == 1 && status.context == context && status.code == MX_STATUS_SUCCESS);
      CHECK(status.xfer_length == length);
      int receive = (char *)context >= in[0] && (char *)context < in[RANKS];
      if (receive) {
        int source = (int)(status.match_info >> 32 & 0xffff);
        CHECK(length == 0 || *(char *)context == source + 1);
        CHECK(!memcmp(&status.source, &peers[source], sizeof own));
      }
      left--;
    }
    /* A barrier, so that wildcard receives match no message of another round. */
    for (int i = 0; i < RANKS; i++)
      OK(mx_isend(endpoint, NULL, 0, peers[i], MATCH(me, 0x80000000u), NULL, NULL));
    for (int i = 0; i < RANKS; i++) {
      OK(mx_irecv(endpoint, NULL, 0, MATCH(i, 0x80000000u), ~0ull, NULL, &request));
      finish(endpoint, &request);
    }
  }
  OK(mx_iprobe(endpoint, 0, 0, &status, &result));
  CHECK(result == 0);
  /* A receive without a matching message is cancelled. */
  OK(mx_irecv(endpoint, NULL, 0, MATCH(me, 5), ~0ull, NULL, &request));
  OK(mx_cancel(endpoint, &request, &result));
  CHECK(result == 1);
  /* No process closes its endpoint while another process waits for its last message. */
  exchange_ids(me, id, ids);
  OK(mx_close_endpoint(endpoint));
  OK(mx_finalize());
}

int main(void) {
  pid_t children[RANKS];
  for (int i = 0; i < RANKS; i++)
    CHECK(!pipe(modex[i]));
  alarm(HANG);
  for (int i = 0; i < RANKS; i++)
    if (!(children[i] = fork())) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(HANG);
      rank(i);
      exit(0);
    }
  for (int i = 0; i < RANKS; i++) {
    int status;
    CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
  }
  return 0;
}
