/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A copy that avoids a slow case of glibc 2.36 (Debian 12), whose memcpy uses `rep movsb` from 4 KiB on. AMD's Zen 3 and 4 carry that
   out 15 times slower where the target's offset in its page is 1 to 31 bytes behind the source's (glibc's bug 30994): a message at the begin of a
   page, and memory of malloc, which often begins 16 bytes behind that of a page. Other processors copy as fast there, and slower in pieces. */
#ifndef VICINITY_COPY_H
#define VICINITY_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Zen 3 and 4 are AMD's family 19h. */
static inline bool vicinity_copies_slowly(void) {
#if defined(__x86_64__)
  return __builtin_cpu_is("amdfam19h");
#else
  return false;
#endif
}

static inline void vicinity_copy(void *to, const void *from, size_t count) {
  uintptr_t behind = ((uintptr_t)to - (uintptr_t)from) % 4096;
  bool in_pieces = count >= 4096 && behind > 0 && behind < 32 && vicinity_copies_slowly();
  size_t piece = in_pieces ? 2048 : count;
  for (size_t at = 0; at < count; at += piece) {
    size_t left = count - at;
    memcpy((char *)to + at, (const char *)from + at, left < piece ? left : piece);
  }
}

#endif
