/* Functions that MX 1.2 added to its first interface. */
#ifndef MX_EXTENSIONS_H
#define MX_EXTENSIONS_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MX_HAS_ICONNECT_V2 1

/* A parameter of this library only: bytes, at most 32768, of the longest message that the handler of
   unexpected messages gets with its data. The bytes are in val.unexp_queue_max. */
#define MX_PARAM_HANDLER_DATA ((mx_param_key_t)0x5601)

typedef enum {
  MX_RECV_CONTINUE = 0, /* match again, then buffer the message */
  MX_RECV_FINISHED = 1  /* the handler has consumed the message */
} mx_unexp_handler_action_t;

/*
 * The library calls the handler for each message that matches no receive. data is NULL for messages
 * above 4096 bytes (or MX_PARAM_HANDLER_DATA) and for those of mx_issend. The handler may post sends and receives. It must not
 * wait, and it cannot close the endpoint. No thread makes progress until the handler returns.
 */
typedef mx_unexp_handler_action_t (*mx_unexp_handler_t)(
    void *context, mx_endpoint_addr_t source, uint64_t match_info,
    uint32_t length, void *data);

mx_return_t mx_register_unexp_handler(mx_endpoint_t endpoint,
                                      mx_unexp_handler_t handler,
                                      void *context);

/* The status of the request has the address of the peer and this match_info. */
mx_return_t mx_iconnect(mx_endpoint_t endpoint, uint64_t nic_id,
                        uint32_t endpoint_id, uint32_t key, uint64_t match_info,
                        void *context, mx_request_t *request);
mx_return_t mx_disconnect(mx_endpoint_t endpoint, mx_endpoint_addr_t addr);
mx_return_t mx_decompose_endpoint_addr2(mx_endpoint_addr_t addr,
                                        uint64_t *nic_id, uint32_t *endpoint_id,
                                        uint32_t *session_id);
mx_return_t mx_set_endpoint_addr_context(mx_endpoint_addr_t addr,
                                         void *context);
mx_return_t mx_get_endpoint_addr_context(mx_endpoint_addr_t addr,
                                         void **context);

/* The library does not report the completion of the request. It uses the request's memory until the
   message has completed. */
mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t *request);
mx_return_t mx_progress(mx_endpoint_t endpoint);

/* Sets the timeout of a connect, or of all later connects when request is NULL. Sends and receives
   need no timeout: the library detects that a peer ended. */
mx_return_t mx_set_request_timeout(mx_endpoint_t endpoint, mx_request_t request,
                                   uint32_t timeout_ms);

/*
 * Only this library has the following. It is for programs with a matching of their own, such as MPI
 * libraries, which post few receives or none.
 */

/* A parameter: with 1 in val.unexp_queue_max, messages that match no receive stay where they arrive
   until mx_next_unexpected takes them, and no handler is called. mx_probe does not find them. */
#define MX_PARAM_IN_PLACE ((mx_param_key_t)0x5602)

/* A parameter: with 1 in val.unexp_queue_max, the program promises that no two of its calls for this
   endpoint run at the same time, whatever threads make them, and not mx_wakeup either. Then a short
   message needs no locked instruction, which costs tens of nanoseconds. A call beside another one
   fails with MX_BUSY as far as the library notices. */
#define MX_PARAM_SERIALIZED ((mx_param_key_t)0x5603)

typedef struct {
  mx_endpoint_addr_t source;
  uint64_t match_info;
  uint32_t length;
  uint32_t reserved;
  const void *data; /* NULL for messages that their sender has offered: those of mx_issend, and those above 32768 bytes without a credit */
} mx_unexpected_t;

/*
 * Makes progress, and takes the next messages that match no receive, of one peer: at most max, of which
 * result is the number; 0 means that there is none. data is in memory that the sender can write, and is
 * valid until the next such call for this endpoint, which consumes the messages: only one thread at a time
 * may make these calls. Other calls are allowed meanwhile. A message with data == NULL comes alone.
 */
mx_return_t mx_next_unexpected(mx_endpoint_t endpoint, mx_unexpected_t *messages, uint32_t max,
                               uint32_t *result);

/* Keeps one of the messages that were taken last, by its number from 0: it completes a receive that matches it,
   or waits for one. */
mx_return_t mx_keep_unexpected(mx_endpoint_t endpoint, uint32_t number);

/* Sends a message of at most 32768 bytes, if there is room for it: then result is 1, and the memory may
   be reused. Otherwise result is 0 and nothing is sent; mx_isend waits for room, or says why not. */
mx_return_t mx_inject(mx_endpoint_t endpoint, mx_segment_t *segments, uint32_t count,
                      mx_endpoint_addr_t dest, uint64_t match_info, uint32_t *result);

/*
 * As mx_inject, for a message of at most 24 bytes in three words: its first byte is the lowest one of the first word, and the bytes
 * behind its last one are 0. A program that has the bytes in registers saves more than half of the instructions of mx_inject, which
 * makes such words of segments.
 */
mx_return_t mx_inject_words(mx_endpoint_t endpoint, const uint64_t words[3], uint32_t length, mx_endpoint_addr_t dest,
                            uint64_t match_info, uint32_t *result);

/*
 * Messages above 32768 bytes are offered, and the receiver asks for them. A receiver that finds it faster to get messages of up to 65536
 * bytes at once grants the sender credits, each for one message, which mx_isend uses. A program with a protocol of its own for long messages sends them
 * by mx_isend_with_credit, as by mx_isend. Without a credit, result is 0 and nothing is sent.
 */
mx_return_t mx_isend_with_credit(mx_endpoint_t endpoint, mx_segment_t *segments, uint32_t count, mx_endpoint_addr_t dest,
                                 uint64_t match_info, void *context, mx_request_t *request, uint32_t *result);

/* Uses a credit, if result is 1, for a message that the program sends in pieces of at most 32768 bytes each. If result is 0, the program sends the data by
   mx_issend, when its receiver wants them: a synchronous message is always offered, and the answer renews the credits. */
mx_return_t mx_use_credit(mx_endpoint_t endpoint, mx_endpoint_addr_t dest, uint64_t length, uint32_t *result);

/*
 * For programs that have another network, too. The uplink of a host's daemon is a process of its own, to which programs that poll leave
 * little time. result is 1 if this process reaches other hosts only by an uplink, because its user does not get the uplink's interface.
 */
mx_return_t mx_needs_uplink(mx_endpoint_t endpoint, uint32_t *result);

/* result is 1 if a peer that is connected is on another host. */
mx_return_t mx_is_on_other_host(mx_endpoint_t endpoint, mx_endpoint_addr_t addr, uint32_t *result);

/* result is 1 if this program and that of a connected peer on another host send each other datagrams of UDP, without an uplink. */
mx_return_t mx_is_reached_by_datagrams(mx_endpoint_t endpoint, mx_endpoint_addr_t addr, uint32_t *result);

/*
 * One-sided access. A process allocates memory on the heap of its VM or host, and passes a handle to its
 * peers in a way of its own. The peers access the memory themselves, by loads, stores and atomic
 * operations of their processor, while the process makes no call. That works between the members of a
 * trust group, and between the processes of a member. result is 0 if nothing was done: the memory was
 * freed, the process has ended, the peer is not in the group, another process writes there for long, or
 * the handle is wrong. Then a message has to do. A put that was not done may have written a part.
 */
typedef struct {
  uint32_t unit;
  uint32_t generation;
  uint64_t offset;
  uint64_t length;
} mx_heap_handle_t;

typedef enum {
  MX_HEAP_ADD = 0,
  MX_HEAP_AND = 1,
  MX_HEAP_OR = 2,
  MX_HEAP_XOR = 3,
  MX_HEAP_SWAP = 4
} mx_heap_op_t;

/* memory is NULL if no peer of the group is connected, there is no room, or the process has 128 blocks. A
   block takes a multiple of 64 KiB and a descriptor, begins at a page, and has the bytes of earlier users. It stays until it is freed or the
   process ends, also when the endpoint is closed. */
mx_return_t mx_heap_alloc(mx_endpoint_t endpoint, uint64_t length, void **memory);

/* result is 0 if no block begins there. */
mx_return_t mx_heap_free(void *memory, uint32_t *result);

/* The handle of a part of a block, for peers. result is 0 if the bytes are not all in one block. */
mx_return_t mx_heap_handle(const void *memory, uint64_t length, mx_heap_handle_t *handle,
                           uint32_t *result);

/* offset is from the start of the handle's memory. */
mx_return_t mx_heap_put(mx_endpoint_t endpoint, mx_endpoint_addr_t dest,
                        const mx_heap_handle_t *handle, uint64_t offset, const void *bytes,
                        uint64_t length, uint32_t *result);
mx_return_t mx_heap_get(mx_endpoint_t endpoint, mx_endpoint_addr_t source,
                        const mx_heap_handle_t *handle, uint64_t offset, void *bytes,
                        uint64_t length, uint32_t *result);

/* Loads an aligned word of 8 bytes, for which the program waits in a loop: until it is `least`, or later in a sequence.
   Its writer stores it last, with release order. Then what the writer stored before is visible after this call. If
   processors are scarce and the word is not yet there, the call yields or sleeps for 50 microseconds. */
mx_return_t mx_heap_look(mx_endpoint_t endpoint, mx_endpoint_addr_t source,
                         const mx_heap_handle_t *handle, uint64_t offset, uint64_t least,
                         uint64_t *value, uint32_t *result);

/* Change a word of 4 or 8 bytes, which must be aligned; before is its value before. The owner may use
   the processor's atomic operations on it at the same time. */
mx_return_t mx_heap_fetch(mx_endpoint_t endpoint, mx_endpoint_addr_t peer,
                          const mx_heap_handle_t *handle, uint64_t offset, uint32_t width,
                          mx_heap_op_t operation, uint64_t operand, uint64_t *before,
                          uint32_t *result);
mx_return_t mx_heap_compare_and_swap(mx_endpoint_t endpoint, mx_endpoint_addr_t peer,
                                     const mx_heap_handle_t *handle, uint64_t offset,
                                     uint32_t width, uint64_t expected, uint64_t value,
                                     uint64_t *before, uint32_t *result);

int mx__regcache_clean(void *memory, unsigned long length);

#ifdef __cplusplus
}
#endif

#endif
