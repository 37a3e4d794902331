/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Puts the bytes of a short message together in words, for mx_inject_words.
 *
 * Most messages were written just before. A load that has more bytes than one store had waits until all stores before it are in the
 * cache: also those of the last message (docs/design/2026-11-short-messages.md). So no load may have more bytes than the program's
 * stores, and the compiler must not join loads.
 */
#ifndef VICINITY_WORDS_H
#define VICINITY_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VICINITY_WORDS 3

/* Bytes of the longest data that vicinity_load_data loads. */
#define VICINITY_DATA_MAX 8

#define VICINITY_LOAD(type)                                                                        \
  static inline uint64_t vicinity_load_##type(const unsigned char *from) {                         \
    type##_t value;                                                                                \
    memcpy(&value, from, sizeof value);                                                            \
    __asm__ volatile("" : "+r"(value));                                                            \
    return value;                                                                                  \
  }
VICINITY_LOAD(uint8)
VICINITY_LOAD(uint16)
VICINITY_LOAD(uint32)
#undef VICINITY_LOAD

/* Loads data of a program as a number, the first byte lowest: by four bytes, because most data are numbers of four or eight. */
static inline uint64_t vicinity_load_data(const unsigned char *from, size_t length) {
  if (length == 8)
    return vicinity_load_uint32(from) | vicinity_load_uint32(from + 4) << 32;
  uint64_t value = 0;
  size_t at = 0;
  for (; at + 4 <= length; at += 4)
    value |= vicinity_load_uint32(from + at) << 8 * at;
  for (; at < length; at++)
    value |= vicinity_load_uint8(from + at) << 8 * at;
  return value;
}

/* Bytes of ob1's header of a match: fields of 2, 2, 4, 4 and 2 bytes, as ob1 stores them (mca_pml_ob1_match_hdr_t; the first one is
   the type and the flags). */
#define VICINITY_OB1_HEADER 14

/* Loads such a header, and up to VICINITY_DATA_MAX bytes of data behind it. */
static inline void vicinity_load_fragment(uint64_t words[VICINITY_WORDS], const unsigned char *header,
                                          const unsigned char *data, size_t length) {
  uint64_t payload = vicinity_load_data(data, length);
  words[0] = vicinity_load_uint16(header) | vicinity_load_uint16(header + 2) << 16 |
             vicinity_load_uint32(header + 4) << 32;
  words[1] = vicinity_load_uint32(header + 8) | vicinity_load_uint16(header + 12) << 32 | payload << 48;
  words[2] = payload >> 16;
}

#endif
