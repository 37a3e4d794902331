/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An Open MPI matching transport layer (MTL) on Vicinity's message plane.
 *
 *   MPI program
 *       |  MPI_Send, MPI_Allreduce ...
 *   Open MPI: pml/cm (requests)
 *       |  messages with communicator, rank and tag
 *   mtl/vicinity (this component): matching
 *       |  mx_inject, mx_next_unexpected
 *       |  (libmyriexpress.so)
 *   message plane
 *
 * A short message is one message of the plane, without a header: its match value has the MPI envelope. The receiver
 * matches it where it arrived, and copies it into the program's memory. A long one is announced in the same way; its
 * data, messages of their own, stay at the sender until the receiver has matched the announcement.
 *
 * Interface: ompi/mca/mtl/mtl.h of Open MPI 4.1 and 5.0, and docs/message-c.md for mx_*.
 */
#ifndef MTL_VICINITY_H
#define MTL_VICINITY_H

#include "plane.h"

#include "ompi/communicator/communicator.h"
#include "ompi/mca/mtl/base/base.h"
#include "ompi/mca/mtl/mtl.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "opal/datatype/opal_convertor.h"

#include <stdatomic.h>

/* The two upper bits of a match value. VICINITY_WATCH has both. */
#define MTL_KIND ((uint64_t)3 << 62)
#define MTL_MESSAGE ((uint64_t)0 << 62)
#define MTL_ANNOUNCEMENT ((uint64_t)1 << 62)
#define MTL_DATA ((uint64_t)2 << 62)

/* Bytes of the longest message that is sent before the receiver asks for it: the longest that is read where it
   arrived. Open MPI's own unexpected messages, and so what this component keeps of them, have no limit. */
#define MTL_EAGER_MAX 32768

/* The same for a message for which the receiver's library has granted a credit (mx_isend_with_credit). */
#define MTL_CREDIT_MAX 65536

/* Bytes of the longest message with data. mx_segment_t has 32 bits for a length. */
#define MTL_DATA_MAX ((size_t)1 << 30)

/* An announcement: a message of its own, behind which `here` bytes of the message may follow. The messages with data
   have the match values `data`, `data` + 1, and so on. */
typedef struct {
  uint64_t length; /* of the MPI message */
  uint64_t data;
  uint32_t pieces; /* messages with data, at least one: the sender of a synchronous message waits for it */
  uint32_t reserved;
} vicinity_announcement_t;

/* A message that has arrived. */
typedef struct {
  uint64_t envelope;
  uint64_t length;
  uint64_t data;
  uint32_t pieces; /* 0: all bytes are here */
  const void *bytes;
  size_t here; /* number of bytes at `bytes` */
} vicinity_message_t;

/* One that no receive has matched. */
typedef struct vicinity_unexpected {
  struct vicinity_unexpected *next;
  vicinity_message_t message;
  unsigned char bytes[];
} vicinity_unexpected_t;

/* A send or a receive. Open MPI allocates it with its own request. */
typedef struct vicinity_request {
  mca_mtl_request_t super;
  struct vicinity_request *next; /* receive: the one posted next */
  uint64_t envelope, mask;       /* receive: which messages match */
  const vicinity_peer_t *peer;   /* send */
  struct opal_convertor_t *convertor;
  unsigned char *memory; /* of the program, or NULL if its bytes are not contiguous */
  size_t length;         /* at `memory` */
  unsigned char *packed; /* the bytes of a send, or of a long receive, that are not contiguous */
  _Atomic int pieces;    /* requests of the library that have not completed */
  _Atomic bool sent;     /* blocking send */
  vicinity_announcement_t announcement;
} vicinity_request_t;

/* The module: one per process. */
typedef struct {
  mca_mtl_base_module_t super;
  char *library;       /* file name of libmyriexpress.so */
  int connect_timeout; /* milliseconds */
  opal_mutex_t peers_lock;
  vicinity_peer_t *peers;     /* all of them */
  opal_mutex_t matching_lock; /* of the two queues */
  vicinity_request_t *posted, **posted_end;
  vicinity_unexpected_t *unexpected, **unexpected_end;
  _Atomic uint32_t sequence; /* of the next message with data */
} vicinity_mtl_t;

extern vicinity_mtl_t vicinity_mtl;

/* The name that Open MPI looks for: mca_<framework>_<component>_component. */
__attribute__((visibility("default"))) extern mca_mtl_base_component_2_0_0_t mca_mtl_vicinity_component;

/*
 * The envelope: 16 bits of communicator, 16 of the sender's rank in it, 30 of tag, whose sign Open MPI uses for
 * messages of its own. Two short messages whose match values have up to 16 bits share a cache line on their way
 * (docs/design/2026-11-short-messages.md), so the lower bits of each field are there:
 *
 *   61      48 47     37 36      16 15   14 13    9   8    7      0
 *   [ comm hi ][ rank hi ][ tag hi  ][ comm ][ rank ][sign][ tag    ]
 */
#define MTL_TAG_MAX ((1 << 29) - 1)
#define MTL_TAG_BITS ((uint64_t)0xff | (uint64_t)0x1fffff << 16)
#define MTL_RANK_BITS ((uint64_t)0x1f << 9 | (uint64_t)0x7ff << 37)

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
  return MTL_DATA | (uint64_t)(key & 0x3fffffff) << 32 | number;
}

static inline uint64_t vicinity_data_piece(uint64_t data, uint32_t piece) {
  return (data & 0xffffffff00000000) | (uint32_t)(data + piece);
}

/* mtl_peers.c */
int vicinity_mtl_add_procs(struct mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs);
int vicinity_mtl_del_procs(struct mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs);

/* mtl_send.c */
int vicinity_mtl_send(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int dest, int tag,
                      struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode);
int vicinity_mtl_isend(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int dest, int tag,
                       struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode, bool blocking,
                       mca_mtl_request_t *request);
/* A request of the library, for a part of this send, has completed. */
void vicinity_part_sent(vicinity_request_t *request, const mx_status_t *status);

/* mtl_memory.c: where the bytes of a convertor are. `memory` is NULL if they are not contiguous. */
void vicinity_find_memory(struct opal_convertor_t *convertor, uint32_t direction, unsigned char **memory,
                          size_t *length);
bool vicinity_pack(struct opal_convertor_t *convertor, unsigned char *to, size_t length);
void vicinity_unpack(struct opal_convertor_t *convertor, const void *from, size_t length);

/* mtl_match.c: queues. The caller holds matching_lock. */
vicinity_request_t *vicinity_take_posted(uint64_t envelope);
bool vicinity_remove_posted(vicinity_request_t *request);
void vicinity_add_posted(vicinity_request_t *request);
/* The first message that matches; takes it out of the queue if `take` is set. NULL if there is none. */
vicinity_unexpected_t *vicinity_find_unexpected(uint64_t envelope, uint64_t mask, bool take);
void vicinity_add_unexpected(vicinity_unexpected_t *unexpected);

/* mtl_receive.c */
int vicinity_mtl_irecv(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag,
                       struct opal_convertor_t *convertor, mca_mtl_request_t *request);
int vicinity_mtl_imrecv(struct mca_mtl_base_module_t *mtl, struct opal_convertor_t *convertor,
                        struct ompi_message_t **message, mca_mtl_request_t *request);
int vicinity_mtl_cancel(struct mca_mtl_base_module_t *mtl, mca_mtl_request_t *request, int flag);
/* Which messages a receive matches. */
void vicinity_select(struct ompi_communicator_t *comm, int source, int tag, uint64_t *envelope, uint64_t *mask);

/* mtl_probe.c */
int vicinity_mtl_iprobe(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag,
                        int *found, struct ompi_status_public_t *status);
int vicinity_mtl_improbe(struct mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag,
                         int *found, struct ompi_message_t **message, struct ompi_status_public_t *status);

#endif
