/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Progress: what has arrived, and what has completed. */
#include "plane.h"

/* Messages and completions in one call, so that other components make progress, too. */
#define MESSAGES_MAX 16
#define COMPLETIONS_MAX 32

/* Without sends and receives that wait, only each of this number of calls looks at the watches. */
#define WATCH_INTERVAL 512

/* Whether vicinity_progress runs, under progress_lock: Open MPI's callbacks may make progress themselves. */
static bool progressing;

/* Passes the messages that have arrived to Open MPI, which reads them where they arrived. The library
   counts the calls that find nothing, and then yields the processor. */
static int take_messages(void) {
  mx_unexpected_t messages[MESSAGES_MAX];
  uint32_t count = 0;
  if (vicinity_mx.next_unexpected(vicinity_plane.endpoint, messages, MESSAGES_MAX, &count) !=
      MX_SUCCESS)
    return 0;
  for (uint32_t i = 0; i < count; i++)
    vicinity_arrived(&messages[i], i);
  return (int)count;
}

/* Ends completed requests. */
static int complete(void) {
  vicinity_plane_t *plane = &vicinity_plane;
  int count = 0;
  static unsigned calls;
  bool all = ++calls % WATCH_INTERVAL == 0;
  if (all && plane->ended != NULL)
    vicinity_check_ended();
  while (count < COMPLETIONS_MAX && (plane->requests > 0 || all)) {
    mx_request_t request;
    mx_status_t status;
    uint32_t found = 0;
    if (vicinity_mx.ipeek(plane->endpoint, &request, &found) != MX_SUCCESS || !found ||
        vicinity_mx.test(plane->endpoint, &request, &status, &found) != MX_SUCCESS || !found)
      break;
    count++;
    uintptr_t context = (uintptr_t)status.context, kind = context & VICINITY_KINDS;
    void *owner = (void *)(context & ~(uintptr_t)VICINITY_KINDS);
    if (kind == VICINITY_WATCHING) {
      vicinity_watch_ended(owner, &status);
      continue;
    }
    plane->requests--;
    vicinity_completed(kind, owner, &status);
  }
  return count;
}

int vicinity_progress(void) {
  vicinity_plane_t *plane = &vicinity_plane;
  if (OPAL_THREAD_TRYLOCK(&plane->progress_lock) != 0)
    return 0;
  /* Only without threads, where the lock does nothing: otherwise a callback's trylock fails. So there is nothing to unlock. */
  if (progressing)
    return 0;
  progressing = true;
  int count = take_messages() + complete();
  progressing = false;
  OPAL_THREAD_UNLOCK(&plane->progress_lock);
  return count;
}
