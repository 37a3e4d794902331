/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The endpoint of this process on the message plane, and its peers: what the components for messages share, the BTL
 * (vicinity.h) and the PML (pml.h). Each of them links these files, and has an endpoint of its own.
 */
#ifndef VICINITY_PLANE_H
#define VICINITY_PLANE_H

#include "abi.h"

#include "opal/util/output.h"
#include "opal/util/proc.h"

#include "mx_extensions.h"
#include "mx_io.h"
#include "myriexpress.h"

/* What a process publishes for its peers (the modex), in network byte order. */
typedef struct {
  uint32_t format; /* VICINITY_CARD_FORMAT */
  uint32_t endpoint;
  uint64_t nic;
  uint32_t key; /* random, so that an equal address on another plane does not answer */
  uint32_t flags; /* VICINITY_NEEDS_UPLINK, VICINITY_LONG_BY_TCP */
} vicinity_card_t;

/* All ranks of a communicator must make the same agreement about collective operations (coll_exchange.c), which 4 has, and must choose the
   component for each peer alike: 3 has the flags, and with 5, ranks that send each other datagrams do not leave their messages to another
   network. So ranks with a package of another format use other components of Open MPI. */
#define VICINITY_CARD_FORMAT 5

/* Only the process of a daemon's uplink reaches other hosts (mx_needs_uplink), or datagrams do. */
#define VICINITY_NEEDS_UPLINK 1u

/* Where tcp is in use, it is to carry long messages to other hosts (other_hosts.c). Both ends have to publish this. */
#define VICINITY_LONG_BY_TCP 2u

/* The match value of a watch: a synchronous message that each rank sends to each peer, and that the
   peer receives only when MPI ends. If the peer's process or VM dies, the send fails, so a rank that
   waits for the peer, and sends nothing, finds out as well. Its two upper bits are set, as in no other message. */
#define VICINITY_WATCH ((uint64_t)3 << 62)

/* A peer that the plane reaches. */
typedef struct vicinity_peer {
  mx_endpoint_addr_t address;
  struct opal_proc_t *proc; /* NULL: not reached */
  uint32_t key;             /* that the peer has published */
  bool self;                /* this process (pml_peers.c) */
  bool near;                /* on this host, so that the kernel can copy between the processes */
  bool other_host;          /* mx_is_on_other_host */
  bool by_datagrams;        /* mx_is_reached_by_datagrams */
  uint32_t flags;           /* that the peer has published */
  long long ended; /* when the peer closed its endpoint without a word, or 0 */
  struct vicinity_peer *next_ended, *next;
} vicinity_peer_t;

/* A component has one endpoint. */
typedef struct {
  const mca_base_component_t *component; /* under whose name processes publish their addresses */
  mx_endpoint_t endpoint;
  uint64_t nic;
  uint32_t id; /* of the endpoint */
  uint32_t key;
  uint32_t flags;         /* to publish */
  int watches;            /* received from peers */
  int peers;              /* number of watches sent */
  vicinity_peer_t *ended; /* peers whose end has no explanation yet */
  bool failed;            /* an error was reported; the job is about to end */
  opal_mutex_t progress_lock;
  _Atomic int requests; /* of the library, that have not completed, without watches */
} vicinity_plane_t;

extern vicinity_plane_t vicinity_plane;

/* mx.c: the functions of libmyriexpress.so, which is loaded when MPI starts. */
typedef struct {
  __typeof__(&mx__init_api) init_api;
  __typeof__(&mx_set_error_handler) set_error_handler;
  __typeof__(&mx_strerror) strerror;
  __typeof__(&mx_strstatus) strstatus;
  __typeof__(&mx_open_endpoint) open_endpoint;
  __typeof__(&mx_close_endpoint) close_endpoint;
  __typeof__(&mx_get_endpoint_addr) get_endpoint_addr;
  __typeof__(&mx_decompose_endpoint_addr) decompose_endpoint_addr;
  __typeof__(&mx_iconnect) iconnect;
  __typeof__(&mx_cancel) cancel;
  __typeof__(&mx_isend) isend;
  __typeof__(&mx_issend) issend;
  __typeof__(&mx_irecv) irecv;
  __typeof__(&mx_test) test;
  __typeof__(&mx_wait) wait;
  __typeof__(&mx_ipeek) ipeek;
  __typeof__(&mx_needs_uplink) needs_uplink;
  __typeof__(&mx_is_on_other_host) is_on_other_host;
  __typeof__(&mx_is_reached_by_datagrams) is_reached_by_datagrams;
  __typeof__(&mx_inject) inject;
  __typeof__(&mx_inject_words) inject_words;
  __typeof__(&mx_isend_with_credit) isend_with_credit;
  __typeof__(&mx_use_credit) use_credit;
  __typeof__(&mx_next_unexpected) next_unexpected;
  __typeof__(&mx_keep_unexpected) keep_unexpected;
  __typeof__(&mx_heap_alloc) heap_alloc;
  __typeof__(&mx_heap_free) heap_free;
  __typeof__(&mx_heap_handle) heap_handle;
  __typeof__(&mx_heap_put) heap_put;
  __typeof__(&mx_heap_get) heap_get;
  __typeof__(&mx_heap_look) heap_look;
  __typeof__(&mx_heap_fetch) heap_fetch;
  __typeof__(&mx_heap_compare_and_swap) heap_compare_and_swap;
  const mx_error_handler_t *errors_return;
} vicinity_mx_t;

extern vicinity_mx_t vicinity_mx;

/* Loads the library; returns false and writes the reason when that fails. */
bool vicinity_mx_load(const char *file, char *reason, size_t size);

/* plane.c. vicinity_open returns false and writes the reason when it fails. vicinity_close is called after the job's
   last barrier. */
bool vicinity_open(const char *library, bool threads, char *reason, size_t size);
int vicinity_publish(const mca_base_component_t *component);
void vicinity_close(void);
/* Writes that a peer is lost, and returns the text. */
const char *vicinity_loss(struct opal_proc_t *proc, const char *reason, char *text, size_t size);

/* progress.c: passes on what has arrived, and ends completed requests. */
int vicinity_progress(void);

/* connect.c: after vicinity_publish. */
/* Reads the address of a process's VM or host, as the process has published it; false if there is none that is usable. */
bool vicinity_read_member(struct opal_proc_t *proc, uint64_t *member);
/* Makes peers of `count` processes: connects to all of them at the same time, as they do, and sends each of
   them a watch. A process without a structure in `peers` is left out. The field `proc` of a peer that is not reached
   stays NULL, after a call of vicinity_unreachable. */
int vicinity_connect(size_t count, struct opal_proc_t **procs, vicinity_peer_t **peers, int milliseconds);

/* heap.c: the memory of MPI_Alloc_mem, MPI_Win_allocate and short collective operations, for the components mpool, osc and coll, which
   are other files of the same package. */
typedef struct {
  uint32_t version; /* VICINITY_HEAP_VERSION */
  void *(*alloc)(size_t length, size_t alignment); /* NULL: no heap, or no room */
  void (*free)(void *memory);
  bool (*has)(void *memory, size_t length, mx_heap_handle_t *handle); /* whether it is on the heap */
  /* vicinity_read_member. A process that has published no usable address has not this package, or no message plane. */
  bool (*member)(struct opal_proc_t *proc, uint64_t *member);
  /* Access to the heap of a peer of the component that has this table. Each returns false if it could not. */
  bool (*look)(const vicinity_peer_t *peer, const mx_heap_handle_t *handle, uint64_t offset, uint64_t least,
               uint64_t *value);
  bool (*get)(const vicinity_peer_t *peer, const mx_heap_handle_t *handle, uint64_t offset, void *bytes,
              uint64_t length);
} vicinity_heap_t;

#define VICINITY_HEAP_VERSION 0x56480004

extern const vicinity_heap_t vicinity_heap;

/* watch.c */
bool vicinity_watch(vicinity_peer_t *peer);
void vicinity_watch_ended(vicinity_peer_t *peer, const mx_status_t *status);
void vicinity_check_ended(void);
void vicinity_answer_watches(void);
long long vicinity_now(void);

/* The kind of a request is in the low bits of its context, which is the address of its owner. */
enum { VICINITY_SEND = 0, VICINITY_RECEIVE = 1, VICINITY_WATCHING = 2, VICINITY_RMA = 3, VICINITY_KINDS = 3 };

static inline void *vicinity_context(void *owner, uintptr_t kind) {
  return (void *)((uintptr_t)owner | kind);
}

/* The following is different in each component. */

/* How the component is named in sentences for the user. */
extern const char vicinity_name[];

/* Where Open MPI describes the choice of components of this kind. */
int vicinity_stream(void);

/* Whether Open MPI has another component for a process on another host. */
bool vicinity_has_other_network(void);

/* A process cannot be connected. */
void vicinity_unreachable(struct opal_proc_t *proc, const char *reason);

/* Ends the job, because a peer is lost (NULL: another error). Only the first call does something. */
void vicinity_fail(struct opal_proc_t *proc, const char *reason);

/* A message has arrived, with this number for mx_keep_unexpected. */
void vicinity_arrived(const mx_unexpected_t *message, uint32_t number);

/* A request of this kind has completed. */
void vicinity_completed(uintptr_t kind, void *owner, const mx_status_t *status);

/* Writes a line at the verbosity at which Open MPI describes the choice of components. */
#define VICINITY_EXPLAIN(format, ...)                                                              \
  opal_output_verbose(10, vicinity_stream(), "%s: " format, vicinity_name, ##__VA_ARGS__)

#endif
