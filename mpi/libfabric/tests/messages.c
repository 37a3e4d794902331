/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Messages and tagged messages. */
#include "fabric.h"

#define LARGE (1 << 20)

void tagged(bool first) {
  char text[16] = "", own[16] = "";
  int contexts[4];
  if (first) {
    POST(fi_tsend(ep, "one", 4, NULL, other, 0x101, &contexts[0]));
    POST(fi_tsend(ep, "two", 4, NULL, other, 0x202, &contexts[1]));
    POST(fi_tsenddata(ep, "three", 6, NULL, 77, other, 0x303, &contexts[2]));
    POST(fi_send(ep, "untagged", 9, NULL, other, &contexts[3]));
    for (int i = 0; i < 4; i++) {
      struct fi_cq_tagged_entry sent = complete(&contexts[i]);
      CHECK(sent.flags == (FI_SEND | (i == 3 ? FI_MSG : FI_TAGGED)));
    }
    /* To itself. */
    char name[64];
    size_t length = sizeof name;
    fi_addr_t self;
    CHECK(fi_getname(&ep->fid, name, &length) == 0 && length == 24);
    CHECK(fi_av_insert(av, name, 1, &self, 0, NULL) == 1);
    POST(fi_trecv(ep, own, sizeof own, NULL, self, 5, 0, &contexts[0]));
    POST(fi_tsend(ep, "self", 5, NULL, self, 5, &contexts[1]));
    CHECK(complete(&contexts[0]).len == 5 && !strcmp(own, "self"));
    complete(&contexts[1]);
    meet();
    return;
  }
  /* The third first, by a mask, then by a tag, then whatever comes. Another source never matches.
   */
  fi_addr_t nobody = 99;
  CHECK(fi_trecv(ep, own, sizeof own, NULL, nobody, 0, ~0ULL, &contexts[3]) == -FI_EINVAL);
  POST(fi_trecv(ep, text, sizeof text, NULL, other, 0x300, 0xff, &contexts[0]));
  struct fi_cq_tagged_entry got = complete(&contexts[0]);
  CHECK(got.tag == 0x303 && got.len == 6 && got.data == 77 && !strcmp(text, "three"));
  CHECK(got.flags == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA) && got.buf == text);
  POST(fi_trecv(ep, text, sizeof text, NULL, FI_ADDR_UNSPEC, 0x202, 0, &contexts[1]));
  got = complete(&contexts[1]);
  CHECK(got.tag == 0x202 && got.flags == (FI_RECV | FI_TAGGED) && !strcmp(text, "two"));
  POST(fi_trecv(ep, text, sizeof text, NULL, FI_ADDR_UNSPEC, 0, ~0ULL, &contexts[2]));
  CHECK(complete(&contexts[2]).tag == 0x101 && !strcmp(text, "one"));
  POST(fi_recv(ep, text, sizeof text, NULL, other, &contexts[3]));
  got = complete(&contexts[3]);
  CHECK(got.flags == (FI_RECV | FI_MSG) && got.len == 9 && !strcmp(text, "untagged"));
  meet();
}

/* Around each change of protocol; posted before and after the message; in several parts. */
void lengths(bool first) {
  static const size_t lengths[] = {0, 1, 40, 48, 4096, 32744, 32752, 32760, 32768, 32769, LARGE};
  char *bytes = malloc(LARGE);
  for (unsigned i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
    size_t length = lengths[i / 2];
    struct iovec parts[3] = {
        {bytes, length / 3}, {bytes + length / 3, 0}, {bytes + length / 3, length - length / 3}};
    bool early = i % 2;
    if (first) {
      fill(bytes, length, i);
      if (early)
        meet();
      POST(fi_tsendv(ep, parts, NULL, 3, other, i, bytes));
      if (!early)
        meet();
      CHECK(complete(bytes).len == length);
    } else {
      if (!early)
        meet();
      memset(bytes, 0, LARGE);
      POST(fi_trecvv(ep, parts, NULL, 3, other, i, 0, bytes));
      if (early)
        meet();
      CHECK(complete(bytes).len == length);
      CHECK(is_filled(bytes, length, i));
    }
  }
  free(bytes);
}

void truncation(bool first) {
  char *bytes = calloc(1, LARGE);
  size_t sent[] = {100, LARGE, 100, LARGE}, room[] = {60, 50000, 0, 0};
  for (unsigned i = 0; i < 4; i++) {
    if (first) {
      fill(bytes, sent[i], i);
      POST(fi_tsend(ep, bytes, sent[i], NULL, other, i, bytes));
      complete(bytes);
    } else {
      POST(fi_trecv(ep, bytes, room[i], NULL, other, i, 0, bytes));
      struct fi_cq_err_entry error = fail(bytes, FI_ETRUNC);
      CHECK(error.len == room[i] && error.olen == sent[i] - room[i] && error.tag == i);
      CHECK(is_filled(bytes, room[i], i));
    }
  }
  free(bytes);
}

void cancelling(bool first) {
  char text[16], other_text[16];
  if (!first) {
    meet();
    POST(fi_tsend(ep, "late", 5, NULL, other, 9, text));
    complete(text);
    return;
  }
  POST(fi_trecv(ep, text, sizeof text, NULL, other, 9, 0, text));
  POST(fi_trecv(ep, other_text, sizeof other_text, NULL, other, 9, 0, other_text));
  CHECK(fi_cancel(&ep->fid, text) == 0);
  CHECK(fail(text, FI_ECANCELED).flags == (FI_RECV | FI_TAGGED));
  CHECK(fi_cancel(&ep->fid, text) == -FI_ENOENT);
  meet();
  complete(other_text);
  CHECK(!strcmp(other_text, "late"));
}

static ssize_t probe(uint64_t tag, uint64_t flags, void *context, void *to, size_t length) {
  struct iovec part = {to, length};
  struct fi_msg_tagged message = {.msg_iov = &part,
                                  .iov_count = to != NULL,
                                  .addr = FI_ADDR_UNSPEC,
                                  .tag = tag,
                                  .context = context};
  return fi_trecvmsg(ep, &message, flags);
}

void probing(bool first) {
  struct fi_context contexts[4];
  char text[16] = "", *large = malloc(LARGE);
  if (first) {
    POST(fi_tsend(ep, "one", 4, NULL, other, 7, text));
    POST(fi_tsend(ep, "two", 4, NULL, other, 7, text));
    POST(fi_tsenddata(ep, "gone", 5, NULL, 3, other, 8, text));
    fill(large, LARGE, 1);
    POST(fi_tsend(ep, large, LARGE, NULL, other, 9, large));
    POST(fi_tsend(ep, large, LARGE, NULL, other, 10, large));
    for (int i = 0; i < 3; i++)
      complete(text);
    complete(large);
    complete(large);
    free(large);
    return;
  }
  CHECK(probe(1, FI_PEEK, &contexts[0], NULL, 0) == 0);
  fail(&contexts[0], FI_ENOMSG);
  /* The last message, so that all have arrived. */
  for (ssize_t got = -FI_EAVAIL; got != 1;) {
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    CHECK(probe(10, FI_PEEK, &contexts[0], NULL, 0) == 0);
    got = fi_cq_read(cq, &entry, 1);
    if (got == -FI_EAVAIL)
      CHECK(fi_cq_readerr(cq, &error, 0) == 1 && error.err == FI_ENOMSG);
    else
      CHECK(got == 1 && entry.len == LARGE && entry.tag == 10);
  }
  CHECK(probe(7, FI_PEEK | FI_CLAIM, &contexts[0], NULL, 0) == 0);
  CHECK(complete(&contexts[0]).len == 4);
  POST(fi_trecv(ep, text, sizeof text, NULL, other, 7, 0, &contexts[1]));
  complete(&contexts[1]);
  CHECK(!strcmp(text, "two"));
  CHECK(probe(7, FI_CLAIM, &contexts[0], text, sizeof text) == 0);
  complete(&contexts[0]);
  CHECK(!strcmp(text, "one"));
  CHECK(probe(7, FI_CLAIM, &contexts[0], text, sizeof text) == -FI_EINVAL);
  CHECK(probe(8, FI_PEEK | FI_DISCARD, &contexts[0], NULL, 0) == 0);
  CHECK(complete(&contexts[0]).data == 3);
  CHECK(probe(8, FI_PEEK, &contexts[0], NULL, 0) == 0);
  fail(&contexts[0], FI_ENOMSG);
  CHECK(probe(9, FI_PEEK | FI_CLAIM, &contexts[0], NULL, 0) == 0);
  CHECK(complete(&contexts[0]).len == LARGE);
  CHECK(probe(9, FI_CLAIM, &contexts[0], large, LARGE) == 0);
  CHECK(complete(&contexts[0]).len == LARGE && is_filled(large, LARGE, 1));
  CHECK(probe(10, FI_PEEK | FI_DISCARD, &contexts[0], NULL, 0) == 0);
  complete(&contexts[0]);
  free(large);
}

void injecting(bool first) {
  size_t most = info->tx_attr->inject_size;
  char *bytes = malloc(most + 1);
  if (first) {
    for (unsigned i = 0; i < 200; i++) {
      fill(bytes, most, i);
      POST(fi_tinjectdata(ep, bytes, most, i, other, 4));
      memset(bytes, 0, most);
    }
    CHECK(fi_tinject(ep, bytes, most + 1, other, 4) == -FI_EMSGSIZE);
    CHECK(fi_inject(ep, bytes, most + 1, other) == -FI_EMSGSIZE);
    CHECK(is_silent());
  } else {
    for (unsigned i = 0; i < 200; i++) {
      POST(fi_trecv(ep, bytes, most, NULL, other, 4, 0, bytes));
      struct fi_cq_tagged_entry got = complete(bytes);
      CHECK(got.data == i && got.len == most && is_filled(bytes, most, i));
    }
  }
  free(bytes);
}

void multi_receive(bool first) {
  char *bytes = malloc(LARGE);
  size_t starts[] = {0, 1000, 101000, 101000, 103000}, total = 0;
  size_t sizes[] = {1000, 100000, 0, 2000, 3000}, least = 4096;
  if (first) {
    meet();
    fill(bytes, LARGE, 5);
    for (int i = 0; i < 5; i++) {
      POST(fi_send(ep, bytes, sizes[i], NULL, other, bytes));
      complete(bytes);
    }
    free(bytes);
    return;
  }
  struct iovec part = {bytes, 109000};
  struct fi_msg message = {
      .msg_iov = &part, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &part};
  CHECK(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least) == 0);
  CHECK(fi_recvmsg(ep, &message, FI_MULTI_RECV) == 0);
  meet();
  /* The long message may complete after those that follow it. */
  for (int i = 0; i < 5; i++) {
    struct fi_cq_tagged_entry got = complete(&part);
    size_t start = (size_t)((char *)got.buf - bytes);
    int which = 0;
    while (which < 5 && !(starts[which] == start && sizes[which] == got.len))
      which++;
    CHECK(which < 5 && is_filled(got.buf, got.len, 5));
    CHECK(!(got.flags & FI_MULTI_RECV) == (i < 4));
    total += got.len;
  }
  CHECK(total == 106000);
  free(bytes);
}

void waiting(bool first) {
  struct fi_cq_tagged_entry entry;
  char text[8];
  if (first) {
    meet();
    usleep(200000);
    POST(fi_tsend(ep, "go", 3, NULL, other, 1, text));
    complete(text);
    return;
  }
  POST(fi_trecv(ep, text, sizeof text, NULL, other, 1, 0, text));
  CHECK(fi_cq_sread(cq, &entry, 1, NULL, 20) == -FI_EAGAIN);
  CHECK(fi_cq_signal(cq) == 0);
  CHECK(fi_cq_sread(cq, &entry, 1, NULL, -1) == -FI_EAGAIN);
  meet();
  CHECK(fi_cq_sread(cq, &entry, 1, NULL, 10000) == 1);
  CHECK(entry.op_context == text && !strcmp(text, "go"));
}

#define ROUNDS 2000
static _Atomic int finished;

/* Each thread exchanges messages of its tag. One thread reads the queue for both. */
static void *talk(void *number) {
  uint64_t tag = (uint64_t)(uintptr_t)number;
  for (uint64_t i = 0; i < ROUNDS; i++) {
    ssize_t posted;
    while ((posted = fi_tinjectdata(ep, &i, sizeof i, i, other, tag)) == -FI_EAGAIN)
      sched_yield();
    CHECK(posted == 0);
  }
  finished++;
  return NULL;
}

void threads(bool first) {
  pthread_t workers[3];
  static uint64_t values[3];
  uint64_t expected[3] = {0};
  meet();
  for (uintptr_t i = 0; i < 3; i++)
    CHECK(pthread_create(&workers[i], NULL, talk, (void *)i) == 0);
  for (uint64_t tag = 0; tag < 3; tag++)
    POST(fi_trecv(ep, &values[tag], 8, NULL, other, tag, 0, &values[tag]));
  for (int left = 3 * ROUNDS; left > 0;) {
    struct fi_cq_tagged_entry entry;
    ssize_t got = fi_cq_read(cq, &entry, 1);
    if (got == -FI_EAGAIN)
      continue;
    CHECK(got == 1 && entry.tag < 3);
    CHECK(values[entry.tag] == expected[entry.tag] && entry.data == expected[entry.tag]);
    left--;
    if (++expected[entry.tag] < ROUNDS)
      POST(fi_trecv(ep, &values[entry.tag], 8, NULL, other, entry.tag, 0, &values[entry.tag]));
  }
  while (finished < 3)
    progress();
  for (int i = 0; i < 3; i++)
    pthread_join(workers[i], NULL);
  (void)first;
}

/* More messages than a receiver keeps; the answer to a write overtakes those that stay in the
 * plane. */
#define FLOOD 2300
#define PART 31000
void flood(bool first) {
  static char bytes[PART], numbers[FLOOD][32], target[8];
  struct fi_cq_tagged_entry entry;
  struct fid_mr *mr;
  int context;
  if (first) {
    CHECK(fi_mr_reg(domain, target, 8, FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL) == 0);
    for (unsigned i = 0; i < FLOOD; i++) {
      memcpy(numbers[i], &i, sizeof i);
      struct iovec parts[2] = {{numbers[i], 32}, {bytes, PART}};
      struct fi_msg_tagged message = {
          .msg_iov = parts, .iov_count = 2, .addr = other, .tag = 1, .context = bytes};
      POST(fi_tsendmsg(ep, &message, 0));
      fi_cq_read(cq, &entry, 1);
    }
    meet();
    while (!target[7])
      fi_cq_read(cq, &entry, 1);
    meet();
    CHECK(fi_close(&mr->fid) == 0);
    return;
  }
  meet();
  POST(fi_write(ep, "written", 8, NULL, other, 0, 1, &context));
  complete(&context);
  POST(fi_write(ep, "WRITTEN!", 8, NULL, other, 0, 1, &context));
  complete(&context);
  static char got[PART + 32];
  for (unsigned i = 0; i < FLOOD; i++) {
    POST(fi_trecv(ep, got, sizeof got, NULL, other, 1, 0, got));
    CHECK(complete(got).len == sizeof got);
    unsigned number;
    memcpy(&number, got, sizeof number);
    CHECK(number == i);
  }
  meet();
}
