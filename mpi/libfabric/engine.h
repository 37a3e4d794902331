/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The engine of an endpoint: peers, operations, matching and progress. */
#ifndef VICINITY_ENGINE_H
#define VICINITY_ENGINE_H

#include "vicinity.h"

/* A process that exchanges packets with an endpoint. */
typedef struct peer {
  LIST_ENTRY(peer) link;
  mx_endpoint_addr_t address;
  uint64_t nic;
  uint32_t id;
  uint32_t hash;   /* of its NIC and its id, which is in the match values of its packets */
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
  OPERATION_SEND = 1, /* a packet, and perhaps its DONE */
  OPERATION_OFFER,    /* waits for ACCEPT, then sends the bytes */
  OPERATION_RECEIVE,  /* posted */
  OPERATION_FETCH,    /* a receive that waits for the bytes of an offer */
  OPERATION_WRITE,    /* a packet and its DONE */
  OPERATION_WRITE_OFFER,
  OPERATION_READ,   /* waits for the bytes, or for DONE with an error */
  OPERATION_REPLY,  /* a packet that the program does not know about */
  OPERATION_ANSWER, /* sends the bytes that a peer reads */
  OPERATION_STORE,  /* receives the bytes that a peer writes */
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
  int requests; /* of MX, which refer to this operation */
  int pieces;   /* of a multi-receive buffer: transfers that are under way */
  endpoint_t *endpoint;
  peer_t *peer;
  operation_t *parent; /* the multi-receive buffer that this transfer fills */
  region_t *region;
  mx_request_t request; /* that receives the bytes */
  void *context;
  uint64_t flags; /* of the completion */
  uint64_t tag, ignore, data;
  uint64_t answered;
  bool has_data;
  fi_addr_t source; /* of a receive: whom it matches; of a connect: the index */
  void *buffer;
  size_t length;                            /* bytes of memory, or of the message */
  size_t taken;                             /* bytes received */
  size_t excess;                            /* bytes that did not fit */
  uint32_t segment_count;                   /* of the memory */
  mx_segment_t segments[IOV_MAX_COUNT + 1]; /* the first is for the words of a packet */
  uint64_t words[WORDS_MAX];
  char *copy; /* of injected bytes */
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

enum counter_kind {
  COUNT_SEND,
  COUNT_RECV,
  COUNT_READ,
  COUNT_WRITE,
  COUNT_REMOTE_READ,
  COUNT_REMOTE_WRITE,
  COUNT_KINDS
};

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
  int held;              /* packets of all peers that stay in the plane */
  _Atomic int postponed; /* packets that arrived outside of progress() */
};

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
/* Returns the peer at an index of the address vector. Starts to connect if necessary, and then
   fails with -FI_EAGAIN. */
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
/* Sends the memory of an operation to an operation of the peer. That it completes does not mean
   that the bytes have arrived. */
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
ssize_t receive_buffer(struct fid_ep *ep, void *buffer, size_t length, void *desc, fi_addr_t source,
                       void *context);
ssize_t receive_vector(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                       fi_addr_t source, void *context);
ssize_t receive_message(struct fid_ep *ep, const struct fi_msg *message, uint64_t flags);
ssize_t tagged_receive_buffer(struct fid_ep *ep, void *buffer, size_t length, void *desc,
                              fi_addr_t source, uint64_t tag, uint64_t ignore, void *context);
ssize_t tagged_receive_vector(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                              fi_addr_t source, uint64_t tag, uint64_t ignore, void *context);
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
