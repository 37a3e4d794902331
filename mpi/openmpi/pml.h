/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An Open MPI point-to-point messaging layer (PML) on Vicinity's message plane.
 *
 *   MPI program
 *       |  MPI_Send, MPI_Allreduce ...
 *   pml/vicinity (this component): requests and matching
 *       |  mx_inject, mx_next_unexpected
 *       |  (libmyriexpress.so)
 *   message plane
 *
 * A short message is one message of the plane, without a header: its match value has the MPI envelope. The receiver
 * matches it where it arrived, and copies it into the program's memory. A long one is announced in the same way; its
 * data, messages of their own, stay at the sender until the receiver has matched the announcement.
 *
 * Interface: ompi/mca/pml/pml.h of Open MPI 4.1 and 5.0, and docs/message-c.md for mx_*.
 */
#ifndef PML_VICINITY_H
#define PML_VICINITY_H

#include "plane.h"

#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/mca/pml/base/pml_base_bsend.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "ompi/request/request.h"
#include "opal/class/opal_free_list.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/runtime/opal_progress.h"

#include <stdatomic.h>

/* The two upper bits of a match value. VICINITY_WATCH has both. */
#define PML_KIND ((uint64_t)3 << 62)
#define PML_MESSAGE ((uint64_t)0 << 62)
#define PML_ANNOUNCEMENT ((uint64_t)1 << 62)
#define PML_DATA ((uint64_t)2 << 62)

/* Bytes of the longest message that is sent before the receiver asks for it: the longest that is read where it
   arrived. Open MPI's own unexpected messages, and so what this component keeps of them, have no limit. */
#define PML_EAGER_MAX 32768

/* The same for a message for which the receiver's library has granted a credit (mx_isend_with_credit). */
#define PML_CREDIT_MAX 65536

/* Bytes of the longest message with data. mx_segment_t has 32 bits for a length. */
#define PML_DATA_MAX ((size_t)1 << 30)

/* An announcement: a message of its own, behind which `here` bytes of the message may follow. The messages with data
   have the match values `data`, `data` + 1, and so on. */
typedef struct {
  uint64_t length; /* of the MPI message */
  uint64_t data;
  uint32_t pieces; /* messages with data, at least one: the sender of a synchronous message waits for it */
  uint32_t reserved;
} vicinity_announcement_t;

/* The number of messages that carry so many bytes of data. */
static inline uint64_t vicinity_pieces(uint64_t length) {
  return length == 0 ? 1 : (length - 1) / PML_DATA_MAX + 1;
}

/* Whether an announcement from a peer, with `here` bytes behind it, is one that announce (pml_send.c) makes. */
static inline bool vicinity_is_announcement(const vicinity_announcement_t *head, size_t here) {
  return here > 0 ? head->length == here && head->pieces == 1 : head->pieces == vicinity_pieces(head->length);
}

/* A message that has arrived. */
typedef struct {
  uint64_t envelope;
  uint64_t length;
  uint64_t data;
  uint32_t pieces; /* 0: all bytes are here */
  const void *bytes;
  size_t here;                     /* number of bytes at `bytes` */
  struct vicinity_request *sender; /* a send of this process to itself that waits, whose memory has the bytes; or NULL */
} vicinity_message_t;

/* One that no receive has matched. */
typedef struct vicinity_unexpected {
  struct vicinity_unexpected *next;
  vicinity_message_t message;
  unsigned char bytes[];
} vicinity_unexpected_t;

/* What a program sends, or where it receives. */
typedef struct {
  unsigned char *base;
  size_t count;
  struct ompi_datatype_t *datatype;
} vicinity_buffer_t;

/* A send or a receive. */
typedef struct vicinity_request {
  ompi_request_t super;
  struct vicinity_request *next; /* receive: the one posted next */
  uint64_t envelope, mask;       /* receive: which messages match */
  unsigned char *memory;         /* of the program, or NULL if its bytes are not contiguous */
  size_t length;                 /* of the message, or of the room for it */
  _Atomic int holders;           /* the program until it frees the request, and the plane until the request is complete */
  _Atomic int pieces;            /* requests of the library that have not completed */
  bool receives;
  bool buffered;         /* `packed` is in the buffer of MPI_Buffer_attach */
  unsigned char *packed; /* the bytes of a send, or of a long receive, that are not contiguous; or those of a buffered send */
  const vicinity_peer_t *peer;       /* send */
  struct ompi_datatype_t *unpacking; /* receive: the type that `convertor` refers to, or NULL */
  opal_convertor_t convertor;
  vicinity_announcement_t announcement;
  /* Only of a persistent request. */
  vicinity_buffer_t buffer;
  struct ompi_communicator_t *comm;
  int rank, tag;
  mca_pml_base_send_mode_t mode;
} vicinity_request_t;

OBJ_CLASS_DECLARATION(vicinity_request_t);

typedef struct {
  char *library;       /* file name of libmyriexpress.so */
  int connect_timeout; /* milliseconds */
  opal_mutex_t peers_lock;
  vicinity_peer_t *peers;     /* all of them */
  opal_mutex_t matching_lock; /* of the two queues */
  vicinity_request_t *posted, **posted_end;
  vicinity_unexpected_t *unexpected, **unexpected_end;
  opal_free_list_t requests;
  _Atomic uint32_t sequence; /* of the next message with data */
} vicinity_pml_t;

extern vicinity_pml_t vicinity_pml;

typedef struct {
  mca_pml_base_component_t super;
  const vicinity_heap_t *heap; /* NULL where Open MPI does not use this PML, before MPI has started and after it has ended */
} vicinity_pml_component_t;

/* The name that Open MPI looks for: mca_<framework>_<component>_component. */
__attribute__((visibility("default"))) extern vicinity_pml_component_t mca_pml_vicinity_component;

/*
 * The envelope: 16 bits of communicator, 16 of the sender's rank in it, 30 of tag, whose sign Open MPI uses for
 * messages of its own. Two short messages whose match values have up to 16 bits share a cache line on their way
 * (docs/design/2026-11-short-messages.md), so the lower bits of each field are there:
 *
 *   61      48 47     37 36      16 15   14 13    9   8    7      0
 *   [ comm hi ][ rank hi ][ tag hi  ][ comm ][ rank ][sign][ tag    ]
 */
#define PML_TAG_MAX ((1 << 29) - 1)
#define PML_TAG_BITS ((uint64_t)0xff | (uint64_t)0x1fffff << 16)
#define PML_RANK_BITS ((uint64_t)0x1f << 9 | (uint64_t)0x7ff << 37)

static inline uint64_t vicinity_envelope(uint32_t communicator, uint32_t rank, int tag) {
  /* The same as below, for most messages. */
  if ((communicator >> 2 | rank >> 5 | (uint32_t)tag >> 8) == 0)
    return communicator << 14 | rank << 9 | (uint32_t)tag;
  bool negative = tag < 0;
  uint64_t number = negative ? ~(uint32_t)tag : (uint32_t)tag;
  uint64_t sender = rank, context = communicator;
  return (number & 0xff) | (uint64_t)negative << 8 | (sender & 0x1f) << 9 | (context & 3) << 14 |
         (number >> 8) << 16 | (sender >> 5) << 37 | (context >> 2) << 48;
}

static inline int vicinity_tag(uint64_t envelope) {
  uint32_t number = (uint32_t)((envelope & 0xff) | (envelope >> 8 & 0x1fffff00));
  return envelope & 0x100 ? (int)~number : (int)number;
}

static inline int vicinity_rank(uint64_t envelope) {
  return (int)((envelope >> 9 & 0x1f) | (envelope >> 32 & 0xffe0));
}

/* The match values of messages with data: the sender's key, and a number. */
static inline uint64_t vicinity_data(uint32_t key, uint32_t number) {
  return PML_DATA | (uint64_t)(key & 0x3fffffff) << 32 | number;
}

static inline uint64_t vicinity_data_piece(uint64_t data, uint32_t piece) {
  return (data & 0xffffffff00000000) | (uint32_t)(data + piece);
}

/* pml_peers.c */
int vicinity_pml_add_procs(struct ompi_proc_t **procs, size_t count);
int vicinity_pml_del_procs(struct ompi_proc_t **procs, size_t count);

/* pml_request.c. A new request has an MPI_ERROR of MPI_SUCCESS, and is not active. NULL: no memory. */
int vicinity_make_requests(void);
vicinity_request_t *vicinity_new_request(struct ompi_communicator_t *comm, bool receives, bool persistent);
vicinity_request_t *vicinity_new_persistent(const void *base, size_t count, struct ompi_datatype_t *datatype, int rank,
                                            int tag, struct ompi_communicator_t *comm, bool receives);
/* A program, or the plane, does not use the request any more. */
void vicinity_let_go(vicinity_request_t *request);
/* Tells the program, and lets go. The status has been set. */
void vicinity_complete(vicinity_request_t *request);
/* Waits for a request that the program has not seen, frees it, and returns its error. `status` may be MPI_STATUS_IGNORE. */
int vicinity_wait(vicinity_request_t *request, ompi_status_public_t *status);
int vicinity_pml_start(size_t count, ompi_request_t **requests);

/* pml_send.c */
int vicinity_pml_isend_init(const void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                            mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, ompi_request_t **request);
int vicinity_pml_isend(const void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                       mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, ompi_request_t **request);
int vicinity_pml_send(const void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                      mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm);
int vicinity_start_send(vicinity_request_t *persistent);
/* A part of this send has completed: the announcement or data. */
void vicinity_part_ended(vicinity_request_t *request);
/* A request of the library, for a part of this send, has completed. */
void vicinity_part_sent(vicinity_request_t *request, const mx_status_t *status);

/* pml_memory.c: where the bytes of a buffer are. NULL: they are not contiguous, if there are any. */
static inline unsigned char *vicinity_find_memory(const vicinity_buffer_t *buffer, size_t *length) {
  const opal_datatype_t *type = &buffer->datatype->super;
  *length = type->size * buffer->count;
  if (!opal_datatype_is_contiguous_memory_layout(type, (int32_t)(buffer->count == 1 ? 1 : 2)) && *length > 0)
    return NULL;
  return buffer->base + type->true_lb;
}
/* Packs `length` bytes. */
bool vicinity_pack(const vicinity_buffer_t *buffer, unsigned char *to, size_t length);
/* Makes a receive unpack what arrives. */
bool vicinity_prepare_unpacking(vicinity_request_t *request, const vicinity_buffer_t *buffer);
void vicinity_unpack(vicinity_request_t *request, const void *from, size_t length);

/* pml_match.c: queues. The caller holds matching_lock. */
vicinity_request_t *vicinity_take_posted(uint64_t envelope);
bool vicinity_remove_posted(vicinity_request_t *request);
void vicinity_add_posted(vicinity_request_t *request);
/* The first message that matches; takes it out of the queue if `take` is set. NULL if there is none. */
vicinity_unexpected_t *vicinity_find_unexpected(uint64_t envelope, uint64_t mask, bool take);
void vicinity_add_unexpected(vicinity_unexpected_t *unexpected);

/* pml_receive.c */
int vicinity_pml_irecv_init(void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                            struct ompi_communicator_t *comm, ompi_request_t **request);
int vicinity_pml_irecv(void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                       struct ompi_communicator_t *comm, ompi_request_t **request);
int vicinity_pml_recv(void *base, size_t count, struct ompi_datatype_t *datatype, int rank, int tag,
                      struct ompi_communicator_t *comm, ompi_status_public_t *status);
int vicinity_pml_imrecv(void *base, size_t count, struct ompi_datatype_t *datatype, struct ompi_message_t **message,
                        ompi_request_t **request);
int vicinity_pml_mrecv(void *base, size_t count, struct ompi_datatype_t *datatype, struct ompi_message_t **message,
                       ompi_status_public_t *status);
int vicinity_start_receive(vicinity_request_t *persistent);
/* A message, whose bytes are valid during the call, or until its sender is told. */
void vicinity_deliver(const vicinity_message_t *message);
/* Which messages a receive matches. */
void vicinity_select(struct ompi_communicator_t *comm, int rank, int tag, uint64_t *envelope, uint64_t *mask);

/* pml_probe.c */
int vicinity_pml_iprobe(int rank, int tag, struct ompi_communicator_t *comm, int *found, ompi_status_public_t *status);
int vicinity_pml_probe(int rank, int tag, struct ompi_communicator_t *comm, ompi_status_public_t *status);
int vicinity_pml_improbe(int rank, int tag, struct ompi_communicator_t *comm, int *found, struct ompi_message_t **message,
                         ompi_status_public_t *status);
int vicinity_pml_mprobe(int rank, int tag, struct ompi_communicator_t *comm, struct ompi_message_t **message,
                        ompi_status_public_t *status);

#endif
