/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Finds out that a peer is lost, see VICINITY_WATCH. A peer that ends MPI regularly receives the
   watches before it closes its endpoint. */
#include "plane.h"

#include <time.h>

/* Milliseconds that this process has to end MPI, too, after a peer that did not receive the watch in
   time: all ranks leave MPI_Finalize's last synchronisation together, but not at the same instant. */
#define GRACE 1000

long long vicinity_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* Sends the watch to a peer; returns false if the peer is lost already. */
bool vicinity_watch(vicinity_peer_t *peer) {
  mx_request_t request;
  vicinity_plane.peers++;
  return vicinity_mx.issend(vicinity_plane.endpoint, NULL, 0, peer->address, VICINITY_WATCH,
                            vicinity_context(peer, VICINITY_WATCHING), &request) == MX_SUCCESS;
}

void vicinity_watch_ended(vicinity_peer_t *peer, const mx_status_t *status) {
  if (status->code == MX_STATUS_SUCCESS)
    return;
  peer->ended = vicinity_now();
  peer->next_ended = vicinity_plane.ended;
  vicinity_plane.ended = peer;
}

void vicinity_check_ended(void) {
  vicinity_peer_t *peer = vicinity_plane.ended;
  for (; peer != NULL; peer = peer->next_ended)
    if (vicinity_now() - peer->ended > GRACE)
      vicinity_fail(peer->proc, "its process or VM ended");
}

/* Receives the peers' watches, so that they know that this process ends regularly. */
void vicinity_answer_watches(void) {
  int answered = 0;
  long long end = vicinity_now() + GRACE;
  do {
    for (; answered < vicinity_plane.watches; answered++)
      vicinity_mx.irecv(vicinity_plane.endpoint, NULL, 0, VICINITY_WATCH, MX_MATCH_MASK_NONE, NULL,
                        NULL);
    vicinity_progress();
  } while (answered < vicinity_plane.peers && vicinity_now() < end);
}
