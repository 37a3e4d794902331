/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The two queues of matching: receives in the order in which they were posted, messages in the order in which they
   arrived. */
#include "pml.h"

vicinity_request_t *vicinity_take_posted(uint64_t envelope) {
  vicinity_request_t **place = &vicinity_pml.posted, *request;
  for (; (request = *place) != NULL; place = &request->next)
    if ((envelope & request->mask) == request->envelope)
      break;
  if (request != NULL && (*place = request->next) == NULL)
    vicinity_pml.posted_end = place;
  return request;
}

bool vicinity_remove_posted(vicinity_request_t *request) {
  vicinity_request_t **place = &vicinity_pml.posted;
  while (*place != NULL && *place != request)
    place = &(*place)->next;
  if (*place == NULL)
    return false;
  if ((*place = request->next) == NULL)
    vicinity_pml.posted_end = place;
  return true;
}

void vicinity_add_posted(vicinity_request_t *request) {
  request->next = NULL;
  *vicinity_pml.posted_end = request;
  vicinity_pml.posted_end = &request->next;
}

vicinity_unexpected_t *vicinity_find_unexpected(uint64_t envelope, uint64_t mask, bool take) {
  vicinity_unexpected_t **place = &vicinity_pml.unexpected, *unexpected;
  for (; (unexpected = *place) != NULL; place = &unexpected->next)
    if ((unexpected->message.envelope & mask) == envelope)
      break;
  if (take && unexpected != NULL && (*place = unexpected->next) == NULL)
    vicinity_pml.unexpected_end = place;
  return unexpected;
}

void vicinity_add_unexpected(vicinity_unexpected_t *unexpected) {
  unexpected->next = NULL;
  *vicinity_pml.unexpected_end = unexpected;
  vicinity_pml.unexpected_end = &unexpected->next;
}
