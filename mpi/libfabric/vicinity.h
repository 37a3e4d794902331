/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A libfabric provider on Vicinity's message plane.
 *
 *   program, MPICH, Intel MPI, Open MPI ...
 *       |  fi_tsend, fi_trecv, fi_write, fi_cq_read ...
 *   libfabric.so
 *       |  tables of functions                          provider.c info.c domain.c endpoint.c
 *   libvicinity-fi.so (this provider)
 *       |  API      send.c receive.c rma.c              addresses.c region.c queue.c counter.c
 *       |  engine   matching.c arrival.c rma_target.c   operation.c peer.c progress.c
 *       |  mx_isend, mx_irecv, handler of unexpected messages       mx.c
 *   libmyriexpress.so: the message plane
 *
 * libfabric matches a message by its tag of 64 bits, and by its source. MX has 64 bits for both, so
 * the provider matches, and uses MX as an ordered transport of packets (wire.h). An operation of
 * the program is an operation_t until its completion is in a queue. All progress is made by the
 * program's calls. The lock of the domain protects everything that belongs to the domain.
 *
 * Interface: the manual pages of libfabric 1.17, and docs/message-c.md for mx_*.
 */
#ifndef VICINITY_H
#define VICINITY_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "mx_extensions.h"
#include "mx_io.h"
#include "myriexpress.h"
#include "wire.h"

/* Limits that fi_getinfo reports. */
#define INJECT_MAX 4096
#define IOV_MAX_COUNT 8
#define MESSAGE_MAX ((size_t)1 << 31)
#define QUEUE_SIZE 65536

/* What one peer may make this process keep: bytes of messages that no receive matches, and replies
   that the peer does not take. Beyond, the peer's messages stay in the plane, which holds it back.
 */
#define UNEXPECTED_MAX ((size_t)64 << 20)
#define UNEXPECTED_OVERHEAD 128
#define REPLIES_MAX 1024

/* The address of an endpoint, in network byte order. The program passes it to its peers. */
typedef struct {
  uint32_t format; /* ADDRESS_FORMAT */
  uint32_t endpoint;
  uint64_t nic;
  uint32_t key; /* random, so that an equal address on another plane does not answer */
  uint32_t reserved;
} address_t;

#define ADDRESS_FORMAT 0x76696331 /* "vic1" */
/* The format for libfabric, which has no number for this provider. FI_PROV_SPECIFIC of libfabric 1. */
#define FI_ADDR_VICINITY ((1U << 31) | 0x7663)

/* FI_MR_BASIC and FI_MR_SCALABLE, which programs for libfabric 1 use. The headers of libfabric 2 warn of
   these names. */
#define MR_BASIC (1 << 0)
#define MR_SCALABLE (1 << 1)

typedef struct {
  struct fid_fabric fid;
  int users;
} fabric_t;

typedef struct region region_t;
typedef struct endpoint endpoint_t;
typedef struct operation operation_t;

typedef struct {
  struct fid_domain fid;
  fabric_t *fabric;
  uint32_t api;
  pthread_mutex_t lock;
  int users;
  int mr_mode;
  uint64_t next_key;
  LIST_HEAD(, region) regions[64]; /* by key */
} domain_t;

/* Memory that peers may read or write. */
struct region {
  struct fid_mr fid;
  domain_t *domain;
  LIST_ENTRY(region) link;
  char *base;
  size_t length;
  uint64_t start; /* the address that peers use for `base` */
  uint64_t access;
  int users; /* transfers that are under way */
};

/* An address vector. An index that was removed has no address. */
typedef struct {
  struct fid_av fid;
  domain_t *domain;
  int users;
  size_t count, capacity;
  struct {
    address_t address;
    bool used;
  } *entries;
} addresses_t;

/* A completion, or an error. */
typedef struct {
  void *context;
  uint64_t flags;
  size_t length;
  void *buffer;
  uint64_t data;
  uint64_t tag;
  fi_addr_t source;
  size_t excess;
  int error; /* 0: a completion */
} event_t;

typedef struct {
  endpoint_t **list;
  size_t count;
} bound_t;

typedef struct {
  struct fid_cq fid;
  domain_t *domain;
  int users;
  enum fi_cq_format format;
  bool waits;
  bool signaled;
  bool overrun;
  event_t *ring;
  size_t capacity; /* a power of two */
  size_t limit;    /* no progress is made with more events than this */
  size_t head, count;
  bound_t endpoints;
} queue_t;

typedef struct {
  struct fid_cntr fid;
  domain_t *domain;
  int users;
  uint64_t value, errors;
  bound_t endpoints;
} counter_t;

/* mx.c: the functions of libmyriexpress.so, which is loaded when libfabric looks for providers. */
typedef struct {
  __typeof__(&mx__init_api) init_api;
  __typeof__(&mx_set_error_handler) set_error_handler;
  __typeof__(&mx_strerror) strerror;
  __typeof__(&mx_strstatus) strstatus;
  __typeof__(&mx_board_number_to_nic_id) board_number_to_nic_id;
  __typeof__(&mx_open_endpoint) open_endpoint;
  __typeof__(&mx_close_endpoint) close_endpoint;
  __typeof__(&mx_wakeup) wakeup;
  __typeof__(&mx_get_endpoint_addr) get_endpoint_addr;
  __typeof__(&mx_decompose_endpoint_addr) decompose_endpoint_addr;
  __typeof__(&mx_register_unexp_handler) register_unexp_handler;
  __typeof__(&mx_iconnect) iconnect;
  __typeof__(&mx_isend) isend;
  __typeof__(&mx_issend) issend;
  __typeof__(&mx_irecv) irecv;
  __typeof__(&mx_cancel) cancel;
  __typeof__(&mx_test) test;
  __typeof__(&mx_test_any) test_any;
  __typeof__(&mx_peek) peek;
  __typeof__(&mx_iprobe) iprobe;
  const mx_error_handler_t *errors_return;
} vicinity_mx_t;

extern vicinity_mx_t mx;

/* Loads the library and opens the plane, once. Returns false and writes the reason if that fails.
 */
bool mx_ready(char *reason, size_t size);

/* provider.c */
extern struct fi_provider provider;
int open_fabric(struct fi_fabric_attr *attributes, struct fid_fabric **fabric, void *context);
/* Writes to libfabric's log. */
void say(enum fi_log_level level, enum fi_log_subsys part, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Members of tables of functions that the provider does not have. */
int no_bind(struct fid *fid, struct fid *other, uint64_t flags);
int no_control(struct fid *fid, int command, void *argument);
int no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

/* info.c */
int get_info(uint32_t version, const char *node, const char *service, uint64_t flags,
             const struct fi_info *hints, struct fi_info **info);

/* domain.c */
int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                void *context);
/* Adds an endpoint to those that a queue or counter makes progress for. */
int bind_endpoint(bound_t *bound, endpoint_t *endpoint);
void unbind_endpoint(bound_t *bound, endpoint_t *endpoint);

/* region.c */
extern struct fi_ops_mr region_ops;
/* Returns the memory of a region that a peer may access in this way, or NULL. */
char *region_memory(domain_t *domain, uint64_t key, uint64_t address, uint64_t length,
                    uint64_t access, region_t **region);

/* addresses.c */
int open_addresses(struct fid_domain *domain, struct fi_av_attr *attributes, struct fid_av **av,
                   void *context);
/* Returns the address at an index, or NULL. */
const address_t *address_at(const addresses_t *addresses, fi_addr_t index);
/* Returns the index of an endpoint's address, or FI_ADDR_NOTAVAIL. */
fi_addr_t index_of(const addresses_t *addresses, uint64_t nic, uint32_t id);

/* queue.c */
int open_queue(struct fid_domain *domain, struct fi_cq_attr *attributes, struct fid_cq **cq,
               void *context);
void queue_add(queue_t *queue, const event_t *event);

/* counter.c */
int open_counter(struct fid_domain *domain, struct fi_cntr_attr *attributes,
                 struct fid_cntr **counter, void *context);
int open_event_queue(struct fid_fabric *fabric, struct fi_eq_attr *attributes, struct fid_eq **eq,
                     void *context);
long long now(void); /* milliseconds */

/* endpoint.c */
int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **endpoint,
                  void *context);

/* options.c */
extern struct fi_ops_ep endpoint_option_ops;
extern struct fi_ops_cm endpoint_name_ops;

#endif
