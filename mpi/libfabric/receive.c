/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Receives of messages and tagged messages; FI_PEEK, FI_CLAIM and FI_DISCARD; fi_cancel. */
#include "engine.h"

static uint64_t type_of(bool tagged) { return FI_RECV | (tagged ? FI_TAGGED : FI_MSG); }

static void add_event(endpoint_t *endpoint, bool tagged, void *context, const unexpected_t *message,
                      int error, uint64_t tag) {
  event_t event = {.context = context,
                   .flags = type_of(tagged),
                   .tag = tag,
                   .error = error,
                   .source = FI_ADDR_NOTAVAIL};
  if (message != NULL) {
    event.flags |= message->has_data ? FI_REMOTE_CQ_DATA : 0;
    event.length = message->length;
    event.data = message->data;
    event.tag = message->tag;
    event.source = peer_index(endpoint, message->peer);
  }
  if (endpoint->receive_queue != NULL)
    queue_add(endpoint->receive_queue, &event);
}

static ssize_t peek(endpoint_t *endpoint, bool tagged, matching_t *matching,
                    const struct fi_msg_tagged *wanted, uint64_t flags) {
  progress(endpoint);
  unexpected_t *message =
      find_unexpected(endpoint, matching, wanted->addr, wanted->tag, wanted->ignore);
  add_event(endpoint, tagged, wanted->context, message, message == NULL ? FI_ENOMSG : 0,
            wanted->tag);
  if (message == NULL || !(flags & (FI_CLAIM | FI_DISCARD)))
    return 0;
  TAILQ_REMOVE(&matching->unexpected, message, link);
  if (flags & FI_DISCARD) {
    drop_unexpected(endpoint, message);
    return 0;
  }
  message->claimed = wanted->context;
  TAILQ_INSERT_TAIL(&matching->claimed, message, link);
  return 0;
}

/* Removes the message that FI_PEEK | FI_CLAIM with this context has found. */
static unexpected_t *take_claimed(matching_t *matching, const void *context) {
  unexpected_t *message;
  TAILQ_FOREACH (message, &matching->claimed, link)
    if (message->claimed == context)
      break;
  if (message != NULL)
    TAILQ_REMOVE(&matching->claimed, message, link);
  return message;
}

static operation_t *new_receive(endpoint_t *endpoint, bool tagged,
                                const struct fi_msg_tagged *wanted, uint64_t flags, int *error) {
  operation_t *operation = new_operation(endpoint, OPERATION_RECEIVE);
  *error = operation == NULL ? -FI_ENOMEM : 0;
  if (operation == NULL)
    return NULL;
  *error = set_memory(operation, wanted->msg_iov, wanted->iov_count);
  if (*error == 0 && (flags & FI_MULTI_RECV) && (wanted->iov_count != 1 || tagged))
    *error = -FI_EINVAL;
  if (*error != 0) {
    free_operation(operation);
    return NULL;
  }
  operation->multi = flags & FI_MULTI_RECV;
  operation->context = wanted->context;
  operation->source = endpoint->caps & FI_DIRECTED_RECV ? wanted->addr : FI_ADDR_UNSPEC;
  operation->tag = wanted->tag;
  operation->ignore = wanted->ignore;
  operation->flags = type_of(tagged);
  operation->silent = endpoint->receive_selective && !(flags & FI_COMPLETION);
  return operation;
}

/* A receive from one peer fails if this peer is lost, so the endpoint has to be connected. */
static int connect_to_source(endpoint_t *endpoint, fi_addr_t source) {
  peer_t *peer;
  if (source == FI_ADDR_UNSPEC)
    return 0;
  int result = peer_at(endpoint, source, &peer);
  return result == -FI_EAGAIN ? 0 : result;
}

static ssize_t receive(endpoint_t *endpoint, bool tagged, const struct fi_msg_tagged *wanted,
                       uint64_t flags) {
  matching_t *matching = tagged ? &endpoint->tagged : &endpoint->messages;
  if (flags & FI_PEEK)
    return peek(endpoint, tagged, matching, wanted, flags);
  unexpected_t *claimed = NULL;
  if ((flags & FI_CLAIM) && (claimed = take_claimed(matching, wanted->context)) == NULL)
    return -FI_EINVAL;
  if (claimed != NULL && (flags & FI_DISCARD)) {
    add_event(endpoint, tagged, wanted->context, claimed, 0, 0);
    drop_unexpected(endpoint, claimed);
    return 0;
  }
  int error;
  operation_t *operation = new_receive(endpoint, tagged, wanted, flags, &error);
  if (operation == NULL) {
    if (claimed != NULL)
      TAILQ_INSERT_TAIL(&matching->claimed, claimed, link);
    return error;
  }
  if (claimed != NULL) {
    receive_unexpected(endpoint, claimed, operation);
    return 0;
  }
  operation->linked = operation->multi;
  if (operation->multi)
    TAILQ_INSERT_TAIL(&matching->posted, operation, link);
  if (match_arrived(endpoint, matching, operation))
    return 0;
  error = connect_to_source(endpoint, operation->source);
  if (error != 0) {
    if (operation->linked)
      TAILQ_REMOVE(&matching->posted, operation, link);
    free_operation(operation);
    return error;
  }
  if (!operation->linked)
    TAILQ_INSERT_TAIL(&matching->posted, operation, link);
  operation->linked = true;
  return 0;
}

static ssize_t post(endpoint_t *endpoint, bool tagged, const struct fi_msg_tagged *message,
                    uint64_t flags) {
  if (!endpoint->enabled)
    return -FI_EOPBADSTATE;
  pthread_mutex_lock(&endpoint->domain->lock);
  ssize_t result = receive(endpoint, tagged, message, flags);
  pthread_mutex_unlock(&endpoint->domain->lock);
  return result;
}

static bool cancel_in(matching_t *matching, const void *context) {
  operation_t *operation;
  TAILQ_FOREACH (operation, &matching->posted, link)
    if (operation->context == context)
      break;
  if (operation == NULL)
    return false;
  TAILQ_REMOVE(&matching->posted, operation, link);
  operation->linked = false;
  /* The last message that is under way returns a multi-receive buffer. */
  if (operation->pieces == 0)
    finish(operation, FI_ECANCELED);
  return true;
}

ssize_t cancel_receive(fid_t fid, void *context) {
  endpoint_t *endpoint = (endpoint_t *)fid;
  pthread_mutex_lock(&endpoint->domain->lock);
  bool found = cancel_in(&endpoint->tagged, context) || cancel_in(&endpoint->messages, context);
  pthread_mutex_unlock(&endpoint->domain->lock);
  return found ? 0 : -FI_ENOENT;
}

ssize_t receive_vector(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                       fi_addr_t source, void *context) {
  struct fi_msg_tagged message = {.msg_iov = iov,
                                  .desc = desc,
                                  .iov_count = count,
                                  .addr = source,
                                  .ignore = ~(uint64_t)0,
                                  .context = context};
  return post(endpoint_of(ep), false, &message, endpoint_of(ep)->receive_flags);
}

ssize_t receive_buffer(struct fid_ep *ep, void *buffer, size_t length, void *desc, fi_addr_t source,
                       void *context) {
  struct iovec iov = {buffer, length};
  return receive_vector(ep, &iov, &desc, 1, source, context);
}

ssize_t receive_message(struct fid_ep *ep, const struct fi_msg *message, uint64_t flags) {
  struct fi_msg_tagged tagged = {.msg_iov = message->msg_iov,
                                 .desc = message->desc,
                                 .iov_count = message->iov_count,
                                 .addr = message->addr,
                                 .ignore = ~(uint64_t)0,
                                 .context = message->context};
  return post(endpoint_of(ep), false, &tagged, flags);
}

ssize_t tagged_receive_vector(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                              fi_addr_t source, uint64_t tag, uint64_t ignore, void *context) {
  struct fi_msg_tagged message = {.msg_iov = iov,
                                  .desc = desc,
                                  .iov_count = count,
                                  .addr = source,
                                  .tag = tag,
                                  .ignore = ignore,
                                  .context = context};
  return post(endpoint_of(ep), true, &message, endpoint_of(ep)->receive_flags);
}

ssize_t tagged_receive_buffer(struct fid_ep *ep, void *buffer, size_t length, void *desc,
                              fi_addr_t source, uint64_t tag, uint64_t ignore, void *context) {
  struct iovec iov = {buffer, length};
  return tagged_receive_vector(ep, &iov, &desc, 1, source, tag, ignore, context);
}

ssize_t tagged_receive_message(struct fid_ep *ep, const struct fi_msg_tagged *message,
                               uint64_t flags) {
  return post(endpoint_of(ep), true, message, flags);
}
