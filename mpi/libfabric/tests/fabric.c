/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Programs against the provider: each scenario runs in two processes.
     fabric [SCENARIO]...                                                */
#include "fabric.h"

struct fi_info *info;
struct fid_fabric *fabric;
struct fid_domain *domain;
struct fid_ep *ep;
struct fid_cq *cq;
struct fid_av *av;
struct fid_cntr *written;
fi_addr_t other;
int channel;
pid_t child;

static fi_addr_t last_source;
static struct fi_cq_tagged_entry kept[64]; /* completions that progress() has read */
static size_t kept_count;

void tell(const void *bytes, size_t length) {
  CHECK(write(channel, bytes, length) == (ssize_t)length);
}

void hear(void *bytes, size_t length) {
  char *next = bytes;
  while (length > 0) {
    ssize_t got = recv(channel, next, length, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) {
      if (cq != NULL)
        progress();
      usleep(100);
      continue;
    }
    CHECK(got > 0);
    next += got;
    length -= (size_t)got;
  }
}

void meet(void) {
  char byte = 'm';
  tell(&byte, 1);
  hear(&byte, 1);
  CHECK(byte == 'm');
}

static ssize_t read_one(struct fi_cq_tagged_entry *entry) {
  return fi_cq_readfrom(cq, entry, 1, &last_source);
}

void progress(void) {
  if (kept_count < 64 && read_one(&kept[kept_count]) == 1)
    kept_count++;
}

static double seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

struct fi_cq_tagged_entry complete(void *context) {
  struct fi_cq_tagged_entry entry;
  ssize_t got;
  double end = seconds() + 20;
  for (size_t i = 0; i < kept_count; i++) {
    if (kept[i].op_context == context) {
      entry = kept[i];
      memmove(&kept[i], &kept[i + 1], (--kept_count - i) * sizeof *kept);
      return entry;
    }
  }
  while ((got = read_one(&entry)) == -FI_EAGAIN)
    CHECK(seconds() < end);
  if (got == -FI_EAVAIL) {
    struct fi_cq_err_entry error = {0};
    fi_cq_readerr(cq, &error, 0);
    fprintf(stderr, "unexpected error: %s\n", fi_strerror(error.err));
  }
  CHECK(got == 1);
  if (entry.op_context != context) {
    CHECK(kept_count < 64);
    kept[kept_count++] = entry;
    return complete(context);
  }
  return entry;
}

struct fi_cq_err_entry fail(void *context, int error) {
  struct fi_cq_tagged_entry entry;
  struct fi_cq_err_entry result = {0};
  ssize_t got;
  double end = seconds() + 20;
  while ((got = read_one(&entry)) != -FI_EAVAIL) {
    CHECK(seconds() < end);
    if (got == 1) {
      CHECK(kept_count < 64);
      kept[kept_count++] = entry;
    }
  }
  CHECK(fi_cq_readerr(cq, &result, 0) == 1);
  if (result.err != error || result.op_context != context)
    fprintf(stderr, "error %d (%s)\n", result.err, fi_strerror(result.err));
  CHECK(result.op_context == context && result.err == error);
  return result;
}

bool is_silent(void) {
  struct fi_cq_tagged_entry entry;
  double end = seconds() + 0.05;
  while (seconds() < end)
    if (read_one(&entry) != -FI_EAGAIN)
      return false;
  return kept_count == 0;
}

void fill(char *bytes, size_t length, unsigned seed) {
  for (size_t i = 0; i < length; i++)
    bytes[i] = (char)(seed * 31 + i * 7 + i / 251);
}

bool is_filled(const char *bytes, size_t length, unsigned seed) {
  for (size_t i = 0; i < length; i++)
    if (bytes[i] != (char)(seed * 31 + i * 7 + i / 251))
      return false;
  return true;
}

static void open_endpoint(void) {
  struct fi_info *hints = fi_allocinfo();
  hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->fabric_attr->prov_name = strdup("vicinity");
  CHECK(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info) == 0);
  fi_freeinfo(hints);
  CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
  CHECK(fi_domain(fabric, info, &domain, NULL) == 0);
  struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
  struct fi_av_attr addresses = {.type = FI_AV_TABLE};
  struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP};
  CHECK(fi_cq_open(domain, &queue, &cq, NULL) == 0);
  CHECK(fi_av_open(domain, &addresses, &av, NULL) == 0);
  CHECK(fi_cntr_open(domain, &counter, &written, NULL) == 0);
  CHECK(fi_endpoint(domain, info, &ep, NULL) == 0);
  CHECK(fi_ep_bind(ep, &av->fid, 0) == 0);
  CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
  CHECK(fi_ep_bind(ep, &written->fid, FI_WRITE) == 0);
  CHECK(fi_enable(ep) == 0);
}

static void exchange_names(void) {
  char own[64], theirs[64];
  size_t length = sizeof own;
  memset(own, 0, sizeof own);
  CHECK(fi_getname(&ep->fid, own, &length) == 0);
  tell(own, sizeof own);
  hear(theirs, sizeof theirs);
  CHECK(fi_av_insert(av, theirs, 1, &other, 0, NULL) == 1);
}

static void close_all(void) {
  CHECK(fi_close(&ep->fid) == 0);
  CHECK(fi_close(&written->fid) == 0);
  CHECK(fi_close(&av->fid) == 0);
  CHECK(fi_close(&cq->fid) == 0);
  CHECK(fi_close(&domain->fid) == 0);
  CHECK(fi_close(&fabric->fid) == 0);
  fi_freeinfo(info);
}

static const struct {
  const char *name;
  void (*run)(bool first);
  bool lonely; /* the other process does not reach the end */
} scenarios[] = {
    {"tagged", tagged, false},
    {"lengths", lengths, false},
    {"truncation", truncation, false},
    {"cancelling", cancelling, false},
    {"probing", probing, false},
    {"injecting", injecting, false},
    {"multi_receive", multi_receive, false},
    {"waiting", waiting, false},
    {"threads", threads, false},
    {"flood", flood, false},
    {"remote_memory", remote_memory, false},
    {"remote_bounds", remote_bounds, false},
    {"killed", killed, true},
    {"liar", liar, false},
};

#define SCENARIOS (sizeof scenarios / sizeof *scenarios)

static void take_part(size_t scenario, bool first) {
  open_endpoint();
  exchange_names();
  scenarios[scenario].run(first);
  if (!scenarios[scenario].lonely)
    meet();
  close_all();
}

static void run(size_t scenario) {
  int pair[2], status;
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  child = fork();
  CHECK(child >= 0);
  channel = pair[child == 0];
  close(pair[child != 0]);
  alarm(60);
  take_part(scenario, child != 0);
  if (child == 0)
    exit(0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(scenarios[scenario].lonely || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
  printf("%s passed\n", scenarios[scenario].name);
  exit(0);
}

/* Each scenario has processes of its own, since libfabric must not be used before a fork. */
int main(int count, char **names) {
  for (size_t i = 0; i < SCENARIOS; i++) {
    bool wanted = count == 1;
    for (int k = 1; k < count; k++)
      wanted |= !strcmp(names[k], scenarios[i].name);
    if (!wanted)
      continue;
    int status;
    fflush(stdout);
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0)
      run(i);
    CHECK(waitpid(process, &status, 0) == process);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fprintf(stderr, "%s failed\n", scenarios[i].name);
      return 1;
    }
  }
  return 0;
}
