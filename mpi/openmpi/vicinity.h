/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An Open MPI byte transfer layer (BTL) on Vicinity's message plane.
 *
 *   MPI program
 *       |  MPI_Send, MPI_Allreduce ...
 *   Open MPI: pml/ob1 (matching, protocols)
 *       |  fragments with a one-byte tag            |                     |
 *   btl/vicinity (this component)               btl/vader             btl/tcp
 *       |  mx_inject, mx_next_unexpected            same VM               other peers, and long messages to other hosts
 *       |  (libmyriexpress.so)
 *   message plane: shared memory between the processes of a host, VMs and the host
 *
 * A fragment is one message: the tag is in the message's match value, so a fragment has no header of
 * this component. The sender's memory is copied once into the shared memory, and ob1 reads the
 * fragment there. The plane keeps the order of the messages of a pair, and holds a fast sender back.
 *
 * Interface: opal/mca/btl/btl.h of Open MPI 4.1 and 5.0, whose differences are in abi.h, and
 * docs/message-c.md for mx_*.
 */
#ifndef BTL_VICINITY_H
#define BTL_VICINITY_H

#include "plane.h"

#include "opal/class/opal_free_list.h"
#include "opal/class/opal_pointer_array.h"

/* The match values of RMA, see rma.h. The low half of VICINITY_RMA_DATA is the origin's operation. */
#define VICINITY_RMA_REQUEST ((uint64_t)2 << 32)
#define VICINITY_RMA_ANSWER ((uint64_t)3 << 32)
#define VICINITY_RMA_DATA ((uint64_t)4 << 32)

/* In the match values of fragments beside the tag: the module that sends. ob1 answers by the same one. */
#define VICINITY_OTHER_HOSTS ((uint64_t)1 << 40)

/* Bytes of the longest message that is read where it arrives. */
#define VICINITY_IN_PLACE_MAX 32768

/* Bytes of a fragment of the list that most fragments are of: headers, and data that are not contiguous. */
#define VICINITY_SMALL_FRAGMENT 8192

/* A peer that the plane reaches. Open MPI's name of the structure is fixed. */
struct mca_btl_base_endpoint_t {
  vicinity_peer_t plane;
  mca_btl_base_module_t *module; /* that sends to it */
  _Atomic int requests; /* operations of RMA that the peer has not answered */
  bool direct;          /* an access to the peer's heap was reported */
};

/* A fragment to send. Open MPI gets `base`. */
typedef struct {
  mca_btl_base_descriptor_t base;
  /* The bytes in `data`, and those in the program's memory, if any. */
  mca_btl_base_segment_t segments[2];
  struct mca_btl_base_endpoint_t *peer;
  opal_free_list_t *list;
  unsigned char data[];
} vicinity_fragment_t;

OBJ_CLASS_DECLARATION(vicinity_fragment_t);

/* A message that is fetched: its bytes do not fit into the plane's shared memory at once. */
typedef struct {
  mx_endpoint_addr_t source;
  uint64_t match;
  unsigned char data[];
} vicinity_received_t;

/* The first module: Open MPI uses no other BTL to send to its peers. The component has a second module, vicinity_other_hosts. Both
   use the fields after `super`, because a process has one endpoint. */
typedef struct {
  mca_btl_base_module_t super;
  opal_free_list_t small_fragments; /* of VICINITY_SMALL_FRAGMENT bytes */
  opal_free_list_t large_fragments; /* of vicinity_large_fragment() bytes */
  opal_pointer_array_t regions;    /* registered memory */
  opal_pointer_array_t operations; /* that RMA's targets have not answered */
  opal_mutex_t region_lock;
  mca_btl_base_module_error_cb_fn_t error;
} vicinity_module_t;

extern vicinity_module_t vicinity_module;

/* other_hosts.c: the module of the peers on other hosts to which `tcp` sends long messages. */
extern mca_btl_base_module_t vicinity_other_hosts;

typedef struct {
  mca_btl_base_component_t super;
  const vicinity_heap_t *heap; /* NULL before MPI has started and after it has ended */
  char *library;         /* file name of libmyriexpress.so */
  int connect_timeout;   /* milliseconds */
  int fragments_max;     /* of each free list; -1: no limit */
  bool long_by_tcp;      /* whether to publish VICINITY_LONG_BY_TCP */
} vicinity_component_t;

/* The name that Open MPI looks for: mca_<framework>_<component>_component. */
__attribute__((visibility("default"))) extern vicinity_component_t mca_btl_vicinity_component;

/* find_heap.c: NULL if neither btl/vicinity nor pml/vicinity of this package is in use, or not that one. */
const vicinity_heap_t *vicinity_find_heap(void);
const vicinity_heap_t *vicinity_find_heap_of_pml(void);
mca_btl_base_module_t *vicinity_find_transfers(void);
/* Memory that a program asked for; NULL as alloc of the heap. */
void *vicinity_alloc_for_program(const vicinity_heap_t *heap, size_t length, size_t alignment);

/* peers.c */
/* The module of another BTL, if it is in use. */
const mca_btl_base_module_t *vicinity_find_module(const char *name);
int vicinity_add_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                       struct mca_btl_base_endpoint_t **peers, opal_bitmap_t *reachable);
int vicinity_del_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                       struct mca_btl_base_endpoint_t **peers);

/* other_hosts.c */
/* Makes the second module like the first one, with the parameters that the user has set. */
void vicinity_other_hosts_start(void);
/* Takes a peer that the first module has connected. Returns whether the second one sends to it. */
bool vicinity_other_hosts_take(struct mca_btl_base_endpoint_t *peer);
void vicinity_other_hosts_stop(void);

/* send.c */
/* Bytes of the longest fragment, as the user may have set it. */
size_t vicinity_large_fragment(void);
mca_btl_base_descriptor_t *vicinity_alloc(mca_btl_base_module_t *btl,
                                          struct mca_btl_base_endpoint_t *peer, uint8_t order,
                                          size_t size, uint32_t flags);
int vicinity_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor);
mca_btl_base_descriptor_t *vicinity_prepare(mca_btl_base_module_t *btl,
                                            struct mca_btl_base_endpoint_t *peer,
                                            opal_convertor_t *convertor, uint8_t order,
                                            size_t reserve, size_t *size, uint32_t flags);
int vicinity_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                  mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag);
int vicinity_send_immediate(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                            opal_convertor_t *convertor, void *header, size_t header_size,
                            size_t payload_size, uint8_t order, uint32_t flags,
                            mca_btl_base_tag_t tag, mca_btl_base_descriptor_t **descriptor);
/* Ends a fragment whose message has completed with this status. */
void vicinity_sent(vicinity_fragment_t *fragment, const mx_status_t *status);

/* rma.c and rma_target.c: what arrived, and what has completed */
void vicinity_requested(mx_endpoint_addr_t source, const void *data, size_t length);
void vicinity_answered(mx_endpoint_addr_t source, const void *data, size_t length);
void vicinity_rma_completed(void *owner, const mx_status_t *status);

#endif
