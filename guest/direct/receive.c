// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes packets out of rings. A ring may contain anything: every field is read once, checked, and
 * then used.
 *
 * A packet is copied once, out of the view. Passing the view's pages to the stack would save that
 * copy, but the stack cannot return a page from a socket that no program reads, and a view must be
 * removable at any time. (For the same reason the kernel copies zero-copy pages of a guest before a
 * socket gets them: skb_orphan_frags_rx().)
 */
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "direct.h"

/* Length of an skb's linear part, which holds short packets and the headers of long ones. */
#define LINEAR 256

struct piece {
	const u8 *from;
	u32 length;
};

struct parsed {
	struct virtio_net_hdr offload;
	u32 length;
	u32 count;
	struct piece piece[DIRECT_SEGMENTS];
};

/* Reads each word of an entry once. */
static union direct_entry read_entry(struct direct_ring *ring, u32 number)
{
	const u64 *from = (const u64 *)direct_entry(ring, number);
	union direct_entry entry;
	u64 *to = (u64 *)&entry;

	to[0] = READ_ONCE(from[0]);
	to[1] = READ_ONCE(from[1]);
	return entry;
}

static bool parse_segment(const struct direct_rx *rx, u32 number, struct piece *piece)
{
	union direct_entry entry = read_entry(rx->ring, number);
	u32 length = le32_to_cpu(entry.segment.length);
	u64 offset;

	if (!length || !direct_ram_offset(&rx->ram, le64_to_cpu(entry.segment.start), length,
					  &offset))
		return false;
	if (offset > rx->view->size || length > rx->view->size - offset)
		return false;
	piece->from = rx->view->memory + offset;
	piece->length = length;
	return true;
}

/* Returns false for an invalid packet. */
static bool parse(const struct direct_rx *rx, u32 available, struct parsed *parsed)
{
	union direct_entry entry = read_entry(rx->ring, rx->consumed);
	u32 left = le32_to_cpu(entry.packet.length);
	u32 i;

	parsed->offload = entry.packet.offload;
	parsed->length = left;
	parsed->count = le16_to_cpu(entry.packet.segments);
	if (left < ETH_HLEN || left > DIRECT_MAX_LENGTH)
		return false;
	if (!parsed->count || parsed->count > DIRECT_SEGMENTS || parsed->count >= available)
		return false;
	for (i = 0; i < parsed->count; i++) {
		struct piece *piece = &parsed->piece[i];

		if (!parse_segment(rx, rx->consumed + 1 + i, piece) || piece->length > left)
			return false;
		left -= piece->length;
	}
	return !left;
}

static struct sk_buff *allocate(struct direct *direct, u32 length)
{
	u32 head = min_t(u32, length, LINEAR);
	struct sk_buff *skb;
	int error;

	if (head == length) {
		skb = napi_alloc_skb(&direct->napi, length);
		if (skb)
			skb_put(skb, length);
		return skb;
	}
	skb = alloc_skb_with_frags(NET_SKB_PAD + NET_IP_ALIGN + head, length - head,
				   PAGE_ALLOC_COSTLY_ORDER, &error, GFP_ATOMIC | __GFP_NOWARN);
	if (!skb)
		return NULL;
	skb_reserve(skb, NET_SKB_PAD + NET_IP_ALIGN);
	skb_put(skb, head);
	skb->data_len = length - head;
	skb->len = length;
	return skb;
}

static struct sk_buff *copy_out(struct direct *direct, struct direct_rx *rx,
				const struct parsed *parsed)
{
	struct sk_buff *skb = allocate(direct, parsed->length);
	u32 at = 0;
	u32 i;

	if (!skb) {
		rx->no_memory++;
		return NULL;
	}
	for (i = 0; i < parsed->count; i++) {
		skb_store_bits(skb, at, parsed->piece[i].from, parsed->piece[i].length);
		at += parsed->piece[i].length;
	}
	/* Has the sender reused its pages meanwhile? Pairs with end_session(). */
	virt_rmb();
	if (direct_read32(&rx->ring->session) == rx->session)
		return skb;
	rx->late++;
	kfree_skb(skb);
	return NULL;
}

/* Whether the IP packet at this offset contains TCP. */
bool direct_is_tcp(const struct sk_buff *skb, int at)
{
	const struct ipv6hdr *ipv6;
	const struct iphdr *ip;
	struct ipv6hdr ipv6_copy;
	struct iphdr ip_copy;

	switch (skb->protocol) {
	case htons(ETH_P_IP):
		ip = skb_header_pointer(skb, at, sizeof(ip_copy), &ip_copy);
		return ip && ip->protocol == IPPROTO_TCP;
	case htons(ETH_P_IPV6):
		ipv6 = skb_header_pointer(skb, at, sizeof(ipv6_copy), &ipv6_copy);
		return ipv6 && ipv6->nexthdr == IPPROTO_TCP;
	default:
		return false;
	}
}

static void deliver(struct direct *direct, struct direct_rx *rx, struct sk_buff *skb,
		    const struct parsed *parsed)
{
	skb->dev = direct->dev;
	skb_reset_mac_header(skb);
	if (virtio_net_hdr_to_skb(skb, &parsed->offload, true)) {
		rx->invalid++;
		kfree_skb(skb);
		return;
	}
	dev_sw_netstats_rx_add(direct->dev, skb->len);
	skb->protocol = eth_type_trans(skb, direct->dev);
	/* TCP's flow control limits what a socket has to take. */
	if (!direct_is_tcp(skb, 0))
		direct->poll_memory += skb->truesize;
	napi_gro_receive(&direct->napi, skb);
}

/* Ends a session after an invalid packet. The sender has to start a new one. */
static void end_invalid_session(struct direct *direct, struct direct_rx *rx)
{
	rx->invalid++;
	rx->broken = rx->session;
	rx->session = 0;
	rx->view = NULL;
	direct_write32(&rx->ring->accepted, 0);
}

/* Receives one packet. Returns false if there is none. */
static bool receive_packet(struct direct *direct, u32 peer)
{
	struct direct_rx *rx = &direct->peer[peer].rx;
	/* Pairs with the release in post(). */
	u32 available = le32_to_cpu(virt_load_acquire(&rx->ring->produced)) - rx->consumed;
	struct parsed parsed;
	struct sk_buff *skb;

	if (!available)
		return false;
	if (available > DIRECT_ENTRIES || !parse(rx, available, &parsed)) {
		end_invalid_session(direct, rx);
		return false;
	}
	skb = copy_out(direct, rx, &parsed);
	/* Longer than an ACK: the peer may wait for an answer, so our packets are no stream. */
	if (parsed.length > DIRECT_ACK_LENGTH)
		WRITE_ONCE(direct->peer[peer].tx.streak, 0);
	rx->consumed += parsed.count + 1;
	/* From now on the sender may reuse its pages. */
	virt_store_release(&rx->ring->consumed, cpu_to_le32(rx->consumed));
	if (skb)
		deliver(direct, rx, skb, &parsed);
	return true;
}

static void wake_sender(struct direct *direct, u32 peer)
{
	struct direct_rx *rx = &direct->peer[peer].rx;

	/* Either the sender sees our new index, or we see `waiting`. */
	virt_mb();
	if (READ_ONCE(rx->ring->waiting) && xchg(&rx->ring->waiting, 0)) {
		rx->wakes++;
		direct_ring_doorbell(direct, peer);
	}
}

static int receive_from(struct direct *direct, u32 peer, int budget)
{
	struct direct_rx *rx = &direct->peer[peer].rx;
	u32 session = rx->session;
	int received = 0;

	while (received < budget && direct->poll_memory < DIRECT_QUOTA && rx->session &&
	       receive_packet(direct, peer))
		received++;
	if (received)
		wake_sender(direct, peer);
	if (session && !rx->session)
		direct_ring_doorbell(direct, peer);
	return received;
}

/* Whether a session is to start or end. */
static bool has_session_change(const struct direct_peer *peer)
{
	u32 session = direct_read32(&peer->rx.ring->session);
	u32 accepted = direct_read32(&peer->tx.ring->accepted);

	return (session != peer->rx.session && session != peer->rx.broken) ||
	       (accepted == peer->tx.session) != peer->tx.up;
}

bool direct_has_packets(const struct direct *direct)
{
	u32 peer;

	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		const struct direct_rx *rx = &direct->peer[peer].rx;

		if (READ_ONCE(rx->session) &&
		    direct_read32(&rx->ring->produced) != READ_ONCE(rx->consumed))
			return true;
	}
	return false;
}

/* Requests doorbells, and checks the rings once more. */
static void prepare_to_sleep(struct direct *direct)
{
	WRITE_ONCE(direct->self->asleep, 1);
	/* Either we see a packet, or its sender sees `asleep`. */
	virt_mb();
	if (direct_has_packets(direct))
		napi_schedule(&direct->napi);
	else
		direct_start_busy_poll(direct);
}

int direct_poll(struct napi_struct *napi, int budget)
{
	struct direct *direct = container_of(napi, struct direct, napi);
	bool update = direct_routing_changed(direct);
	bool complete;
	int done = 0;
	u32 i;

	direct_poll_started(direct);
	WRITE_ONCE(direct->polling, smp_processor_id());
	if (READ_ONCE(direct->self->asleep))
		WRITE_ONCE(direct->self->asleep, 0);
	direct->poll_memory = 0;
	/* Start with another peer each time, so that a busy peer does not use up the budget. */
	direct->first_peer++;
	for (i = 0; i < DIRECT_MEMBERS; i++) {
		u32 peer = (direct->first_peer + i) % DIRECT_MEMBERS;

		if (peer == direct->id)
			continue;
		direct_reap(direct, peer);
		done += receive_from(direct, peer, budget - done);
		update |= has_session_change(&direct->peer[peer]);
	}
	if (update)
		direct_schedule_update(direct);
	/* This may also deliver packets, which TCP acknowledges. */
	complete = napi_complete_done(napi, done);
	WRITE_ONCE(direct->polling, DIRECT_NO_CPU);
	direct_ring_deferred(direct, true);
	if (complete) {
		if (done >= budget || direct->poll_memory >= DIRECT_QUOTA)
			direct_defer_poll(direct);
		else if (!READ_ONCE(direct->polls_while_sending))
			prepare_to_sleep(direct);
	}
	/* Returning the whole budget would mean that polling is not complete. */
	return min(done, budget - 1);
}
