/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the provider's processes send each other. Each of them checks what it receives: a peer may
 * send anything.
 *
 * A message of the plane is one of three, by its match value:
 *
 *   bit 63 62 61..48   47..16          15..8   7..0
 *        0  0      0   sender's hash   flags   kind     a packet: words, then bytes
 *        1  0   the receiver's operation                the bytes of an operation, without a header
 *        0  1      0                                    a watch, see peer.c
 *
 * The words of a packet are of 64 bits, in the byte order of the machines, which have the same:
 *
 *   kind           words                                    bytes
 *   MESSAGE        [tag] [data] [operation]                 the message
 *   OFFER          [tag] [data] operation, length           none
 *   WRITE          [data] operation, key, address           what to write
 *   WRITE_OFFER    [data] operation, key, address, length   none
 *   READ           operation, key, address, length          none
 *   ACCEPT         operation, receiver's operation, length  none
 *   DONE           operation, error                         none
 *
 * A message of up to PACKET_MAX bytes is one packet. A longer one is offered; when the receiver
 * knows where the bytes go, it posts a receive for them, and accepts. So long messages are never
 * buffered.
 *
 *   sender                       receiver
 *     | OFFER(operation) ---------> |   matches a receive
 *     | <--- ACCEPT(its operation)  |   has posted mx_irecv for the bytes
 *     | bytes --------------------> |   are in the program's memory
 *     | <--- DONE                   |   after a write, or if the sender has asked for it
 */
#ifndef VICINITY_WIRE_H
#define VICINITY_WIRE_H

#include <stdint.h>

#define PACKET_MAX 32768 /* bytes with the words: what a handler of unexpected messages gets */
#define WORDS_MAX 5

#define MATCH_BYTES ((uint64_t)1 << 63)
#define MATCH_WATCH ((uint64_t)1 << 62)
#define MATCH_PACKET(hash, flags, kind)                                                            \
  ((uint64_t)(hash) << 16 | (uint64_t)(flags) << 8 | (uint64_t)(kind))

enum packet_kind {
  PACKET_MESSAGE = 1,
  PACKET_OFFER,
  PACKET_WRITE,
  PACKET_WRITE_OFFER,
  PACKET_READ,
  PACKET_ACCEPT,
  PACKET_DONE,
};

enum packet_flag {
  FLAG_TAGGED = 1, /* the packet has a tag */
  FLAG_DATA = 2,   /* it has remote CQ data */
  FLAG_REPLY = 4,  /* the sender waits for DONE: the message is delivered */
};

#endif
