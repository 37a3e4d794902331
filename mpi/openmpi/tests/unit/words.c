/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Words have the bytes of a message, at each length and alignment, and zeros behind them. */
#include "words.h"

#include <assert.h>

static unsigned char memory[64];

static void is_message(const uint64_t words[VICINITY_WORDS], const unsigned char *header, size_t header_length,
                       const unsigned char *data, size_t length) {
  unsigned char expected[8 * VICINITY_WORDS] = {0};
  memcpy(expected, header, header_length);
  memcpy(expected + header_length, data, length);
  assert(memcmp(words, expected, sizeof expected) == 0);
}

int main(void) {
  for (size_t i = 0; i < sizeof memory; i++)
    memory[i] = (unsigned char)(255 - i);
  for (size_t length = 0; length <= VICINITY_DATA_MAX; length++)
    for (size_t at = 0; at < 16; at++) {
      const unsigned char *header = memory + at, *data = memory + 40 - at;
      uint64_t alone[VICINITY_WORDS] = {vicinity_load_data(data, length)}, words[VICINITY_WORDS];
      is_message(alone, header, 0, data, length);
      vicinity_load_fragment(words, header, data, length);
      is_message(words, header, VICINITY_OB1_HEADER, data, length);
    }
  return 0;
}
