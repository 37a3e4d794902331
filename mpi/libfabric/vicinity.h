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
 * the provider matches, and uses MX as an ordered transport of packets (wire.h). An operation of the
 * program is an operation_t until its completion is in a queue. All progress is made by the program's
 * calls. The lock of the domain protects everything that belongs to the domain.
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
   that the peer does not take. Beyond, the peer's messages stay in the plane, which holds it back. */
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
/* The format for libfabric, which has no number for this provider. */
#define FI_ADDR_VICINITY (FI_PROV_SPECIFIC | 0x7663)

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
  unsigned empty; /* reads without an event since the last one */
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

/* A process that exchanges packets with an endpoint. */
typedef struct peer {
  LIST_ENTRY(peer) link;
  mx_endpoint_addr_t address;
  uint64_t nic;
  uint32_t id;
  uint32_t hash; /* of its NIC and its id, which is in the match values of its packets */
  fi_addr_t index; /* in the address vector, when it was looked up last */
  bool lost;
  size_t unexpected; /* bytes */
  int replies;       /* that have not left */
  int held;          /* packets that stay in the plane until there is room */
  bool complained;   /* a violation of the protocol was logged */
} peer_t;

/* What an endpoint knows about an index of its address vector. */
typedef struct {
  peer_t *peer; /* NULL: not connected */
  bool connecting;
  int error; /* why the last connect failed */
} route_t;

enum operation_kind {
  OPERATION_SEND = 1,  /* a packet, and perhaps its DONE */
  OPERATION_OFFER,     /* waits for ACCEPT, then sends the bytes */
  OPERATION_RECEIVE,   /* posted */
  OPERATION_FETCH,     /* a receive that waits for the bytes of an offer */
  OPERATION_WRITE,     /* a packet and its DONE */
  OPERATION_WRITE_OFFER,
  OPERATION_READ,      /* waits for the bytes, or for DONE with an error */
  OPERATION_REPLY,     /* a packet that the program does not know about */
  OPERATION_ANSWER,    /* sends the bytes that a peer reads */
  OPERATION_STORE,     /* receives the bytes that a peer writes */
  OPERATION_CONNECT,
  OPERATION_WATCH,
};

struct operation {
  TAILQ_ENTRY(operation) link;
  enum operation_kind kind;
  uint32_t index, generation; /* its number on the wire */
  bool linked;                /* in a list of posted receives */
  bool wants_reply;           /* the peer has to answer */
  bool accepted;              /* of an offer */
  bool confirms;              /* the peer waits for DONE, with the number `answered` */
  bool silent;                /* no completion for success */
  bool multi;                 /* FI_MULTI_RECV */
  int error;
  int requests;               /* of MX, which refer to this operation */
  int pieces;                 /* of a multi-receive buffer: transfers that are under way */
  endpoint_t *endpoint;
  peer_t *peer;
  operation_t *parent;        /* the multi-receive buffer that this transfer fills */
  region_t *region;
  mx_request_t request;       /* that receives the bytes */
  void *context;
  uint64_t flags;             /* of the completion */
  uint64_t tag, ignore, data;
  uint64_t answered;
  bool has_data;
  fi_addr_t source;           /* of a receive: whom it matches; of a connect: the index */
  void *buffer;
  size_t length;              /* bytes of memory, or of the message */
  size_t taken;               /* bytes received */
  size_t excess;              /* bytes that did not fit */
  uint32_t segment_count;     /* of the memory */
  mx_segment_t segments[IOV_MAX_COUNT + 1]; /* the first is for the words of a packet */
  uint64_t words[WORDS_MAX];
  char *copy;                 /* of injected bytes */
};

TAILQ_HEAD(operations, operation);

/* A message that no receive matches yet. */
typedef struct unexpected {
  TAILQ_ENTRY(unexpected) link;
  peer_t *peer;
  bool offer;
  bool confirms;
  bool has_data;
  uint64_t tag, data;
  uint64_t operation; /* of the sender of an offer */
  size_t length;
  void *claimed; /* the context of the FI_PEEK that claimed it */
  char bytes[];
} unexpected_t;

TAILQ_HEAD(unexpecteds, unexpected);

/* Messages and tagged messages never match each other. */
typedef struct {
  struct operations posted;
  struct unexpecteds unexpected;
  struct unexpecteds claimed;
} matching_t;

enum counter_kind { COUNT_SEND, COUNT_RECV, COUNT_READ, COUNT_WRITE, COUNT_REMOTE_READ,
                    COUNT_REMOTE_WRITE, COUNT_KINDS };

struct endpoint {
  struct fid_ep fid;
  domain_t *domain;
  mx_endpoint_t mx;
  address_t address;
  uint64_t caps;
  uint32_t hash;
  bool enabled;
  addresses_t *addresses;
  queue_t *send_queue, *receive_queue;
  bool send_selective, receive_selective;
  uint64_t send_flags, receive_flags; /* op_flags */
  counter_t *counters[COUNT_KINDS];
  size_t multi_min;
  matching_t messages, tagged;
  route_t *routes; /* by index of the address vector */
  size_t route_count;
  LIST_HEAD(, peer) peers[64];
  peer_t *last_peer;
  peer_t *self;
  operation_t **operations; /* by number */
  uint32_t operation_count, operation_capacity;
  struct operations free_operations;
  int requests;          /* of MX, without the watches */
  unsigned calls;
  int held;              /* packets of all peers that stay in the plane */
  _Atomic int postponed; /* packets that arrived outside of progress() */
};

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
  __typeof__(&mx_progress) progress;
  const mx_error_handler_t *errors_return;
} vicinity_mx_t;

extern vicinity_mx_t mx;

/* Loads the library and opens the plane, once. Returns false and writes the reason if that fails. */
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

/* operation.c */
operation_t *new_operation(endpoint_t *endpoint, enum operation_kind kind);
void free_operation(operation_t *operation);
/* The number of an operation for peers, and the operation of a number, or NULL. */
uint64_t operation_number(const operation_t *operation);
operation_t *operation_of(endpoint_t *endpoint, uint64_t number);
/* Sets the memory of an operation; fails if there are too many parts, or too many bytes. */
int set_memory(operation_t *operation, const struct iovec *iov, size_t count);
/* Copies bytes into the memory of an operation from this position on. Returns how many fitted. */
size_t fill_memory(operation_t *operation, const void *bytes, size_t length);
/* Shortens the memory of an operation to this length. */
void shorten_memory(operation_t *operation, size_t length);
/* Ends an operation: reports it to the program and frees it. */
void finish(operation_t *operation, int error);
/* Ends an operation as soon as neither its request nor its reply is missing. */
void finish_if_done(operation_t *operation);
/* Reports an event that is no completion of an operation of this process. */
void report_remote_write(endpoint_t *endpoint, const peer_t *peer, uint64_t data, size_t length);

/* peer.c */
peer_t *peer_of(endpoint_t *endpoint, mx_endpoint_addr_t source);
/* Returns the peer at an index of the address vector. Starts to connect if necessary, and then fails
   with -FI_EAGAIN. */
int peer_at(endpoint_t *endpoint, fi_addr_t index, peer_t **peer);
fi_addr_t peer_index(endpoint_t *endpoint, const peer_t *peer);
uint32_t hash_of(uint64_t nic, uint32_t id);
void connect_done(operation_t *operation, const mx_status_t *status);
void watch_done(operation_t *operation, const mx_status_t *status);
/* Logs that a peer violates the protocol, once for each peer. */
void complain(peer_t *peer, const char *what);

/* progress.c */
void progress(endpoint_t *endpoint);
/* Sends a packet: the words of the operation and, if `bytes`, its memory. */
int send_packet(operation_t *operation, enum packet_kind kind, unsigned flags, unsigned words,
                bool bytes);
/* Sends the memory of an operation to an operation of the peer. That it completes does not mean that the
   bytes have arrived. */
int send_bytes(operation_t *operation, uint64_t to);
/* Posts the receive of bytes into `length` bytes of the operation's memory. */
int receive_bytes(operation_t *operation, size_t length);
/* Sends a packet without bytes that the program does not know about. */
void send_reply(endpoint_t *endpoint, peer_t *peer, enum packet_kind kind, unsigned words,
                const uint64_t *values);

/* arrival.c */
mx_unexp_handler_action_t arrived(void *context, mx_endpoint_addr_t source, uint64_t match,
                                  uint32_t length, void *data);
/* Handles packets that stayed in the plane. */
void take_held(endpoint_t *endpoint);
/* The endpoint whose packets this thread may handle at once. */
extern __thread endpoint_t *handling;

/* matching.c */
typedef struct {
  peer_t *peer;
  bool tagged, offer, confirms, has_data;
  uint64_t tag, data, operation;
  const char *bytes;
  size_t length;
} message_t;
bool message_arrived(endpoint_t *endpoint, const message_t *message);
/* Matches a receive with what has arrived. Returns false if nothing matches. */
bool match_arrived(endpoint_t *endpoint, matching_t *matching, operation_t *operation);
unexpected_t *find_unexpected(endpoint_t *endpoint, matching_t *matching, fi_addr_t source,
                              uint64_t tag, uint64_t ignore);
/* Receives a message that was removed from its list. */
void receive_unexpected(endpoint_t *endpoint, unexpected_t *message, operation_t *operation);
void drop_unexpected(endpoint_t *endpoint, unexpected_t *message);
void fail_receives(endpoint_t *endpoint, matching_t *matching, fi_addr_t source, int error);

/* receive.c, send.c, rma.c */
extern struct fi_ops_msg message_ops;
extern struct fi_ops_tagged tagged_ops;
extern struct fi_ops_rma rma_ops;
ssize_t cancel_receive(fid_t fid, void *context);
ssize_t receive_buffer(struct fid_ep *ep, void *buffer, size_t length, void *desc,
                       fi_addr_t source, void *context);
ssize_t receive_vector(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                       fi_addr_t source, void *context);
ssize_t receive_message(struct fid_ep *ep, const struct fi_msg *message, uint64_t flags);
ssize_t tagged_receive_buffer(struct fid_ep *ep, void *buffer, size_t length, void *desc,
                              fi_addr_t source, uint64_t tag, uint64_t ignore, void *context);
ssize_t tagged_receive_vector(struct fid_ep *ep, const struct iovec *iov, void **desc,
                              size_t count, fi_addr_t source, uint64_t tag, uint64_t ignore,
                              void *context);
ssize_t tagged_receive_message(struct fid_ep *ep, const struct fi_msg_tagged *message,
                               uint64_t flags);
/* Prepares an operation of the program that sends to a peer. `silent` is that of the call. */
int start_operation(endpoint_t *endpoint, enum operation_kind kind, fi_addr_t to,
                    const struct iovec *iov, size_t count, uint64_t flags, bool silent,
                    operation_t **operation);

/* rma_target.c */
void write_arrived(endpoint_t *endpoint, peer_t *peer, bool offer, unsigned flags,
                   const uint64_t *words, const char *bytes, size_t length);
void read_arrived(endpoint_t *endpoint, peer_t *peer, const uint64_t *words);

static inline endpoint_t *endpoint_of(struct fid_ep *fid) { return (endpoint_t *)fid; }

#endif
