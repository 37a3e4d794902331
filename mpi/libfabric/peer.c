/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Peers: connections, and what happens when a peer is lost.
 *
 * An endpoint connects to an address when the program first sends to it, or posts a receive for it.
 * The random key in the address proves that the endpoint there is the one that the program means.
 *
 * The watch is a synchronous message that each endpoint sends to each peer, and that the peer never
 * receives. If the peer's process or VM dies, the send fails, so an endpoint that
 * only waits for the peer finds out as well.
 */
#include "engine.h"

#include <arpa/inet.h>
#include <endian.h>

static int bucket(mx_endpoint_addr_t address) {
  return (int)((address.stuff[0] ^ address.stuff[1] ^ address.stuff[1] >> 32) % 64);
}

static bool same(mx_endpoint_addr_t one, mx_endpoint_addr_t other) {
  return one.stuff[0] == other.stuff[0] && one.stuff[1] == other.stuff[1];
}

uint32_t hash_of(uint64_t nic, uint32_t id) {
  uint64_t mixed = (nic * 0x9e3779b97f4a7c15 + id) * 0xff51afd7ed558ccd;
  return (uint32_t)(mixed >> 32);
}

static void send_watch(endpoint_t *endpoint, peer_t *peer) {
  mx_request_t request;
  operation_t *operation = new_operation(endpoint, OPERATION_WATCH);
  if (operation == NULL)
    return;
  operation->peer = peer;
  operation->requests = 1;
  if (mx.issend(endpoint->mx, NULL, 0, peer->address, MATCH_WATCH, operation, &request) !=
      MX_SUCCESS)
    free_operation(operation);
}

static peer_t *add_peer(endpoint_t *endpoint, mx_endpoint_addr_t source) {
  peer_t *peer = calloc(1, sizeof *peer);
  if (peer == NULL)
    return NULL;
  if (mx.decompose_endpoint_addr(source, &peer->nic, &peer->id) != MX_SUCCESS) {
    free(peer);
    return NULL;
  }
  peer->address = source;
  peer->hash = hash_of(peer->nic, peer->id);
  peer->index = FI_ADDR_NOTAVAIL;
  LIST_INSERT_HEAD(&endpoint->peers[bucket(source)], peer, link);
  /* The first peer of an endpoint is the endpoint itself. */
  if (endpoint->self != NULL)
    send_watch(endpoint, peer);
  return peer;
}

peer_t *peer_of(endpoint_t *endpoint, mx_endpoint_addr_t source) {
  peer_t *peer = endpoint->last_peer;
  if (peer != NULL && same(peer->address, source))
    return peer;
  LIST_FOREACH (peer, &endpoint->peers[bucket(source)], link)
    if (same(peer->address, source))
      break;
  if (peer == NULL)
    peer = add_peer(endpoint, source);
  if (peer != NULL)
    endpoint->last_peer = peer;
  return peer;
}

static bool has_address(const peer_t *peer, const address_t *address) {
  return address != NULL && peer->nic == be64toh(address->nic) &&
         peer->id == ntohl(address->endpoint);
}

fi_addr_t peer_index(endpoint_t *endpoint, const peer_t *constant) {
  peer_t *peer = (peer_t *)constant;
  if (!has_address(peer, address_at(endpoint->addresses, peer->index)))
    peer->index = index_of(endpoint->addresses, peer->nic, peer->id);
  return peer->index;
}

void complain(peer_t *peer, const char *what) {
  if (peer->complained)
    return;
  peer->complained = true;
  say(FI_LOG_WARN, FI_LOG_EP_DATA,
      "the peer with NIC %012llx, endpoint %u violates the protocol: %s",
      (unsigned long long)peer->nic, peer->id, what);
}

static route_t *route_at(endpoint_t *endpoint, fi_addr_t index) {
  if (index >= endpoint->route_count) {
    size_t count = endpoint->addresses->capacity;
    route_t *routes = realloc(endpoint->routes, count * sizeof *routes);
    if (routes == NULL)
      return NULL;
    memset(routes + endpoint->route_count, 0, (count - endpoint->route_count) * sizeof *routes);
    endpoint->routes = routes;
    endpoint->route_count = count;
  }
  return &endpoint->routes[index];
}

static int start_connect(endpoint_t *endpoint, fi_addr_t index, route_t *route,
                         const address_t *address) {
  mx_request_t request;
  operation_t *operation = new_operation(endpoint, OPERATION_CONNECT);
  if (operation == NULL)
    return -FI_ENOMEM;
  operation->source = index;
  operation->requests = 1;
  mx_return_t code = mx.iconnect(endpoint->mx, be64toh(address->nic), ntohl(address->endpoint),
                                 ntohl(address->key), 0, operation, &request);
  if (code != MX_SUCCESS) {
    say(FI_LOG_WARN, FI_LOG_EP_CTRL, "the message plane does not reach NIC %012llx: %s",
        (unsigned long long)be64toh(address->nic), mx.strerror(code));
    free_operation(operation);
    return -FI_EHOSTUNREACH;
  }
  route->connecting = true;
  return -FI_EAGAIN;
}

int peer_at(endpoint_t *endpoint, fi_addr_t index, peer_t **peer) {
  const address_t *address = address_at(endpoint->addresses, index);
  route_t *route = address == NULL ? NULL : route_at(endpoint, index);
  if (address == NULL)
    return -FI_EINVAL;
  if (route == NULL)
    return -FI_ENOMEM;
  if (route->peer != NULL && has_address(route->peer, address)) {
    *peer = route->peer;
    return 0;
  }
  route->peer = NULL;
  if (has_address(endpoint->self, address)) {
    *peer = route->peer = endpoint->self;
    return 0;
  }
  if (route->error != 0) {
    int error = route->error;
    route->error = 0;
    return -error;
  }
  if (route->connecting)
    return -FI_EAGAIN;
  return start_connect(endpoint, index, route, address);
}

void connect_done(operation_t *operation, const mx_status_t *status) {
  endpoint_t *endpoint = operation->endpoint;
  fi_addr_t index = operation->source;
  route_t *route = &endpoint->routes[index];
  peer_t *peer = status->code == MX_STATUS_SUCCESS ? peer_of(endpoint, status->source) : NULL;
  free_operation(operation);
  route->connecting = false;
  if (peer != NULL) {
    route->peer = peer;
    return;
  }
  say(FI_LOG_WARN, FI_LOG_EP_CTRL, "a connect to a peer failed: %s", mx.strstatus(status->code));
  route->error = FI_ECONNREFUSED;
  fail_receives(endpoint, &endpoint->tagged, index, FI_ECONNREFUSED);
  fail_receives(endpoint, &endpoint->messages, index, FI_ECONNREFUSED);
}

/* Ends an operation that waits for a lost peer. */
static void abandon(operation_t *operation) {
  uint32_t cancelled = 0;
  bool fetches = operation->kind == OPERATION_FETCH || operation->kind == OPERATION_READ ||
                 operation->kind == OPERATION_STORE;
  if (operation->kind == OPERATION_WATCH || operation->kind == OPERATION_REPLY)
    return;
  operation->wants_reply = false;
  operation->error = FI_ECONNRESET;
  if (fetches &&
      mx.cancel(operation->endpoint->mx, &operation->request, &cancelled) == MX_SUCCESS &&
      cancelled)
    operation->requests--;
  finish_if_done(operation);
}

static void drop_offers(endpoint_t *endpoint, struct unexpecteds *list, const peer_t *peer) {
  unexpected_t *message, *next;
  for (message = TAILQ_FIRST(list); message != NULL; message = next) {
    next = TAILQ_NEXT(message, link);
    if (message->peer == peer && message->offer) {
      TAILQ_REMOVE(list, message, link);
      drop_unexpected(endpoint, message);
    }
  }
}

void watch_done(operation_t *operation, const mx_status_t *status) {
  endpoint_t *endpoint = operation->endpoint;
  peer_t *peer = operation->peer;
  free_operation(operation);
  if (status->code == MX_STATUS_SUCCESS) {
    complain(peer, "it received a watch");
    return;
  }
  fi_addr_t index = peer_index(endpoint, peer);
  peer->lost = true;
  for (uint32_t i = 0; i < endpoint->operation_count; i++)
    if (endpoint->operations[i]->kind != 0 && endpoint->operations[i]->peer == peer)
      abandon(endpoint->operations[i]);
  drop_offers(endpoint, &endpoint->tagged.unexpected, peer);
  drop_offers(endpoint, &endpoint->messages.unexpected, peer);
  for (size_t i = 0; i < endpoint->route_count; i++)
    if (endpoint->routes[i].peer == peer)
      endpoint->routes[i].peer = NULL;
  if (index == FI_ADDR_NOTAVAIL)
    return;
  fail_receives(endpoint, &endpoint->tagged, index, FI_ECONNRESET);
  fail_receives(endpoint, &endpoint->messages, index, FI_ECONNRESET);
}
