/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the scenarios share: an endpoint, the other process, and checks. */
#ifndef FABRIC_TEST_H
#define FABRIC_TEST_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);            \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)

/* Repeats a call until the provider takes it. */
#define POST(call)                                                                                 \
  do {                                                                                             \
    ssize_t posted_;                                                                               \
    while ((posted_ = (call)) == -FI_EAGAIN)                                                       \
      progress();                                                                                  \
    if (posted_ != 0)                                                                              \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, fi_strerror((int)-posted_));              \
    CHECK(posted_ == 0);                                                                           \
  } while (0)

/* The state of this process. `channel` is a socket to the other one. */
extern struct fi_info *info;
extern struct fid_fabric *fabric;
extern struct fid_domain *domain;
extern struct fid_ep *ep;
extern struct fid_cq *cq;
extern struct fid_av *av;
extern struct fid_cntr *written;
extern fi_addr_t other;
extern int channel;
extern pid_t child;

void tell(const void *bytes, size_t length);
void hear(void *bytes, size_t length);
void meet(void); /* a barrier of the two processes that makes progress meanwhile */
void progress(void);
/* Returns the next completion; it must have this context. */
struct fi_cq_tagged_entry complete(void *context);
/* Returns the next error; it must have this context. */
struct fi_cq_err_entry fail(void *context, int error);
/* Whether nothing completes within some milliseconds. */
bool is_silent(void);
void fill(char *bytes, size_t length, unsigned seed);
bool is_filled(const char *bytes, size_t length, unsigned seed);

/* The scenarios. `first` is true in one of the processes. */
void tagged(bool first);
void lengths(bool first);
void truncation(bool first);
void cancelling(bool first);
void probing(bool first);
void injecting(bool first);
void multi_receive(bool first);
void waiting(bool first);
void threads(bool first);
void flood(bool first);
void remote_memory(bool first);
void remote_bounds(bool first);
void killed(bool first);
void liar(bool first);

#endif
