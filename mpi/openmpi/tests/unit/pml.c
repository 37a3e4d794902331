/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Envelopes have each field once, announcements are checked, and the queues of matching have their order. */
#include "pml.h"

#include <assert.h>

vicinity_pml_t vicinity_pml = {.posted_end = &vicinity_pml.posted, .unexpected_end = &vicinity_pml.unexpected};

static void envelopes(void) {
  static const int tags[] = {0, 1, 255, 256, 32767, PML_TAG_MAX, -1, -37, -256, -32768, -PML_TAG_MAX - 1};
  static const uint32_t numbers[] = {0, 1, 3, 4, 31, 32, 1000, 65535};
  uint64_t seen[11 * 8 * 8];
  size_t count = 0;
  for (size_t c = 0; c < 8; c++)
    for (size_t r = 0; r < 8; r++)
      for (size_t t = 0; t < 11; t++) {
        uint64_t envelope = vicinity_envelope(numbers[c], numbers[r], tags[t]);
        assert((envelope & PML_KIND) == 0);
        assert(vicinity_tag(envelope) == tags[t] && (uint32_t)vicinity_rank(envelope) == numbers[r]);
        for (size_t i = 0; i < count; i++)
          assert(seen[i] != envelope);
        seen[count++] = envelope;
        /* A receive from any source, and of any tag. */
        uint64_t other = vicinity_envelope(numbers[c], 77, tags[t]), any = ~PML_RANK_BITS;
        assert((envelope & any) == (other & any));
        other = vicinity_envelope(numbers[c], numbers[r], 77), any = ~PML_TAG_BITS;
        assert(((envelope & any) == (other & any)) == (tags[t] >= 0));
      }
  /* Two of them share a cache line. */
  assert(vicinity_envelope(3, 31, 255) < 65536 && vicinity_envelope(0, 1, -12) < 65536);
}

static void queues(void) {
  vicinity_request_t requests[4] = {0};
  for (uint64_t i = 0; i < 4; i++) {
    requests[i].envelope = i % 2;
    requests[i].mask = 1;
    vicinity_add_posted(&requests[i]);
  }
  assert(vicinity_take_posted(5) == &requests[1]);
  assert(vicinity_remove_posted(&requests[3]) && !vicinity_remove_posted(&requests[3]));
  assert(vicinity_take_posted(5) == NULL);
  vicinity_add_posted(&requests[1]);
  assert(vicinity_take_posted(0) == &requests[0] && vicinity_take_posted(0) == &requests[2]);
  assert(vicinity_take_posted(1) == &requests[1] && vicinity_take_posted(1) == NULL);
  vicinity_add_posted(&requests[0]);
  assert(vicinity_take_posted(0) == &requests[0]);

  vicinity_unexpected_t messages[3] = {0};
  for (uint64_t i = 0; i < 3; i++) {
    messages[i].message.envelope = i;
    vicinity_add_unexpected(&messages[i]);
  }
  assert(vicinity_find_unexpected(0, 0, false) == &messages[0]);
  assert(vicinity_find_unexpected(2, ~PML_KIND, true) == &messages[2]);
  vicinity_add_unexpected(&messages[2]);
  assert(vicinity_find_unexpected(0, 0, true) == &messages[0] && vicinity_find_unexpected(0, 0, true) == &messages[1]);
  assert(vicinity_find_unexpected(0, 0, true) == &messages[2] && vicinity_find_unexpected(0, 0, true) == NULL);
}

/* An announcement that names more bytes than it has, or another number of pieces, would have the receiver read beyond it, or wait. */
static void announcements(void) {
  static const struct {
    uint64_t length;
    uint32_t pieces;
    size_t here;
    bool sound;
  } cases[] = {{0, 1, 0, true},
               {1, 1, 1, true},
               {32744, 1, 32744, true},
               {32745, 1, 0, true},
               {PML_DATA_MAX, 1, 0, true},
               {PML_DATA_MAX + 1, 2, 0, true},
               {5 * PML_DATA_MAX, 5, 0, true},
               {0, 0, 0, false},
               {1, 1, 2, false},
               {100000, 1, 10, false},
               {10, 2, 10, false},
               {10, 0, 10, false},
               {PML_DATA_MAX + 1, 1, 0, false},
               {PML_DATA_MAX, 2, 0, false},
               {UINT64_MAX, 1, 0, false},
               {UINT64_MAX, 0, 0, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    vicinity_announcement_t head = {.length = cases[i].length, .pieces = cases[i].pieces};
    assert(vicinity_is_announcement(&head, cases[i].here) == cases[i].sound);
  }
}

int main(void) {
  envelopes();
  announcements();
  queues();
  return 0;
}
