/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Remote memory, and peers that die. */
#include "fabric.h"

#define SIZE (1 << 20)
#define GUARD 4096

void remote_memory(bool first) {
  char *memory = calloc(1, SIZE), *back = calloc(1, SIZE);
  struct fid_mr *mr;
  int context;
  if (first) {
    size_t sizes[] = {0, 1, 30000, 40000, SIZE - 8};
    meet();
    for (unsigned i = 0; i < 5; i++) {
      fill(memory, sizes[i], i);
      POST(fi_write(ep, memory, sizes[i], NULL, other, 8, 42, &context));
      struct fi_cq_tagged_entry done = complete(&context);
      CHECK(done.flags == (FI_RMA | FI_WRITE) && done.len == sizes[i]);
      memset(back, 0, SIZE);
      POST(fi_read(ep, back, sizes[i], NULL, other, 8, 42, &context));
      CHECK(complete(&context).flags == (FI_RMA | FI_READ));
      CHECK(is_filled(back, sizes[i], i));
    }
    CHECK(fi_cntr_read(written) == 5);
    POST(fi_inject_write(ep, "inject", 7, other, 0, 42));
    CHECK(fi_cntr_wait(written, 6, 10000) == 0);
    CHECK(is_silent());
    POST(fi_writedata(ep, "data", 5, NULL, 1234, other, 0, 42, &context));
    complete(&context);
    POST(fi_writedata(ep, memory, 50000, NULL, 5678, other, 8, 42, &context));
    complete(&context);
    meet();
  } else {
    CHECK(fi_mr_reg(domain, memory, SIZE, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 42, 0, &mr, NULL) ==
          0);
    struct fid_mr *again;
    CHECK(fi_mr_reg(domain, memory, SIZE, FI_REMOTE_READ, 0, 42, 0, &again, NULL) == -FI_ENOKEY);
    meet();
    struct fi_cq_tagged_entry got = complete(NULL);
    CHECK(got.data == 1234 && got.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
    CHECK(!strcmp(memory, "data"));
    got = complete(NULL);
    CHECK(got.data == 5678 && got.len == 50000);
    meet();
    CHECK(fi_close(&mr->fid) == 0);
  }
  free(memory);
  free(back);
}

/* What is refused is not written; the peer gets an error. */
void remote_bounds(bool first) {
  char *memory = calloc(1, SIZE + 2 * GUARD);
  struct fid_mr *writable, *readable;
  int context;
  if (first) {
    memset(memory, 'x', SIZE);
    meet();
    struct {
      uint64_t address, length, key;
      bool read;
    } wrong[] = {
        {SIZE - 3, 4, 1, false},
        {SIZE, 1, 1, false},
        {SIZE - 39999, 40000, 1, false},
        {UINT64_MAX - 3, 8, 1, false},
        {UINT64_MAX, 40000, 1, false},
        {0, 4, 3, false},
        {0, 4, 2, false},
        {0, 40000, 2, false},
        {0, 4, 1, true},
        {SIZE - 3, 4, 2, true},
        {SIZE - 1, 40000, 2, true},
        {UINT64_MAX, 2, 2, true},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
      if (wrong[i].read)
        POST(fi_read(ep, memory, wrong[i].length, NULL, other, wrong[i].address, wrong[i].key,
                     &context));
      else
        POST(fi_write(ep, memory, wrong[i].length, NULL, other, wrong[i].address, wrong[i].key,
                      &context));
      fail(&context, FI_EACCES);
    }
    CHECK(fi_cntr_readerr(written) == 8);
    POST(fi_write(ep, memory, SIZE, NULL, other, 0, 1, &context));
    complete(&context);
    meet();
  } else {
    char *start = memory + GUARD;
    CHECK(fi_mr_reg(domain, start, SIZE, FI_REMOTE_WRITE, 0, 1, 0, &writable, NULL) == 0);
    CHECK(fi_mr_reg(domain, start, SIZE, FI_REMOTE_READ, 0, 2, 0, &readable, NULL) == 0);
    meet();
    meet();
    for (int i = 0; i < GUARD; i++)
      CHECK(memory[i] == 0 && start[SIZE + i] == 0);
    for (int i = 0; i < SIZE; i++)
      CHECK(start[i] == 'x');
    CHECK(fi_close(&writable->fid) == 0 && fi_close(&readable->fid) == 0);
    free(memory);
    return meet();
  }
  free(memory);
  meet();
}

/* The other process ends without a word. */
void killed(bool first) {
  char *bytes = calloc(1, SIZE), text[8];
  int contexts[4];
  if (!first) {
    POST(fi_tsend(ep, "alive", 6, NULL, other, 1, text));
    complete(text);
    meet();
    for (;;)
      pause();
  }
  POST(fi_trecv(ep, text, sizeof text, NULL, other, 1, 0, text));
  complete(text);
  meet();
  /* A receive, an offer that is not accepted, a read and a write that are not answered. */
  POST(fi_trecv(ep, bytes, SIZE, NULL, other, 2, 0, &contexts[0]));
  POST(fi_tsend(ep, bytes, SIZE, NULL, other, 3, &contexts[1]));
  POST(fi_read(ep, bytes, 8, NULL, other, 0, 1, &contexts[2]));
  POST(fi_write(ep, bytes, 8, NULL, other, 0, 1, &contexts[3]));
  CHECK(is_silent());
  CHECK(kill(child, SIGKILL) == 0);
  int left = 0xf;
  while (left != 0) {
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    ssize_t got = fi_cq_read(cq, &entry, 1);
    CHECK(got == -FI_EAGAIN || got == -FI_EAVAIL);
    if (got == -FI_EAGAIN)
      continue;
    CHECK(fi_cq_readerr(cq, &error, 0) == 1 && error.err == FI_ECONNRESET);
    left &= ~(1 << ((int *)error.op_context - contexts));
  }
  /* There is no endpoint any more. */
  ssize_t posted;
  while ((posted = fi_tsend(ep, text, 1, NULL, other, 4, text)) == -FI_EAGAIN)
    continue;
  CHECK(posted == -FI_ECONNREFUSED || posted == -FI_EHOSTUNREACH);
  free(bytes);
}
