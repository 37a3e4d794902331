// SPDX-License-Identifier: GPL-2.0-only
/*
 * Puts packets into rings. Each peer has its own transmit queue, so that a slow peer does not delay
 * others. The queue with our own number is for multicast and never stops.
 */
#include <linux/etherdevice.h>
#include <linux/io.h>

#include "direct.h"

static u32 room(const struct direct_tx *tx)
{
	return DIRECT_ENTRIES - (tx->produced - tx->consumed);
}

static bool has_room(const struct direct_tx *tx)
{
	return room(tx) > DIRECT_SEGMENTS;
}

/* Most copies that wait for a peer. A copy is one segment, so all fit into the ring. */
#define RESEND_MAX (DIRECT_ENTRIES / 4)

/* STREAM_COUNT packets of at least this length without an answer of the peer are a stream. */
#define STREAM_LENGTH (16 * 1024)
#define STREAM_COUNT 8
/* Packets of a stream that share a doorbell, at most. */
#define BATCH 16
/* ACKs that share a doorbell, at most. */
#define ACKNOWLEDGEMENTS 8

/* Copies held packets for the next session; the caller holds tx->lock. */
void direct_copy_held(struct direct_tx *tx)
{
	struct sk_buff *copy;
	u32 i;

	tx->resend_since = jiffies;
	for (i = tx->first; i != tx->next && skb_queue_len(&tx->resend) < RESEND_MAX; i++) {
		copy = skb_copy(tx->held[i & (DIRECT_ENTRIES - 1)].skb,
				GFP_ATOMIC | __GFP_NOWARN);
		if (copy)
			__skb_queue_tail(&tx->resend, copy);
	}
}

/* The caller holds tx->lock. */
void direct_purge_resend(struct direct_tx *tx)
{
	__skb_queue_purge(&tx->resend);
}

/* Frees all held packets; the caller holds tx->lock and has ended the session. */
void direct_release_held(struct direct_tx *tx)
{
	while (tx->first != tx->next)
		consume_skb(tx->held[tx->first++ & (DIRECT_ENTRIES - 1)].skb);
	tx->consumed = tx->produced;
}

/* Whether the peer has held the oldest packet for too long; the caller holds tx->lock. */
bool direct_is_held_too_long(const struct direct_tx *tx)
{
	const struct direct_held *oldest = &tx->held[tx->first & (DIRECT_ENTRIES - 1)];

	return tx->first != tx->next && time_after32(jiffies, oldest->since + DIRECT_HOLD_TIME);
}

/* Frees packets that the peer has consumed; the caller holds tx->lock. */
static void reap(struct direct_tx *tx)
{
	/* Pairs with the release in receive.c: the peer has copied all that it consumed. */
	u32 consumed = le32_to_cpu(virt_load_acquire(&tx->ring->consumed));
	struct direct_held *held;

	if (consumed == tx->consumed)
		return;
	if (consumed - tx->consumed > tx->produced - tx->consumed) {
		/* Invalid. Held packets time out, which ends the session. */
		tx->invalid++;
		return;
	}
	tx->consumed = consumed;
	while (tx->first != tx->next) {
		held = &tx->held[tx->first & (DIRECT_ENTRIES - 1)];
		if ((s32)(consumed - held->end) < 0)
			break;
		consume_skb(held->skb);
		tx->first++;
	}
}

/* Requests a doorbell, and checks for room once more; the caller holds tx->lock. */
static bool wait_for_room(struct direct_tx *tx)
{
	WRITE_ONCE(tx->ring->waiting, 1);
	/* Either we see the peer's new index, or the peer sees `waiting`. */
	virt_mb();
	reap(tx);
	return has_room(tx);
}

void direct_reap(struct direct *direct, u32 peer)
{
	struct netdev_queue *queue = netdev_get_tx_queue(direct->dev, peer);
	struct direct_tx *tx = &direct->peer[peer].tx;

	if (!READ_ONCE(tx->up))
		return;
	spin_lock_bh(&tx->lock);
	if (tx->up) {
		reap(tx);
		if (netif_tx_queue_stopped(queue) && (has_room(tx) || wait_for_room(tx)))
			netif_tx_wake_queue(queue);
	}
	spin_unlock_bh(&tx->lock);
}

static bool put_segment(const struct direct *direct, union direct_entry *entry, phys_addr_t start,
			u32 length)
{
	u64 offset;

	/* Peers cannot read memory of a device, and refuse empty segments. */
	if (!length || !direct_ram_offset(&direct->ram, start, length, &offset))
		return false;
	entry->segment = (struct direct_segment) {
		.start = cpu_to_le64(start),
		.length = cpu_to_le32(length),
	};
	return true;
}

/* Writes the segments of a packet. Returns their number, or 0 if peers could not read them. */
static u32 put_segments(const struct direct *direct, struct direct_tx *tx,
			const struct sk_buff *skb)
{
	u32 at = tx->produced + 1;
	int i;

	if (skb_shinfo(skb)->nr_frags + 1 > DIRECT_SEGMENTS)
		return 0;
	if (skb_headlen(skb) && !put_segment(direct, direct_entry(tx->ring, at++),
					     virt_to_phys(skb->data), skb_headlen(skb)))
		return 0;
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];
		phys_addr_t start = page_to_phys(skb_frag_page(frag)) + skb_frag_off(frag);

		if (!put_segment(direct, direct_entry(tx->ring, at++), start,
				 skb_frag_size(frag)))
			return 0;
	}
	return at - tx->produced - 1;
}

static bool put_packet(struct direct *direct, struct direct_tx *tx, struct sk_buff *skb)
{
	union direct_entry *entry = direct_entry(tx->ring, tx->produced);
	u32 segments = put_segments(direct, tx, skb);
	struct direct_packet packet = {};

	if (!segments || virtio_net_hdr_from_skb(skb, &packet.offload, true, false, 0))
		return false;
	packet.segments = cpu_to_le16(segments);
	packet.length = cpu_to_le32(skb->len);
	entry->packet = packet;
	tx->held[tx->next++ & (DIRECT_ENTRIES - 1)] = (struct direct_held) {
		.skb = skb,
		.end = tx->produced + segments + 1,
		.since = (u32)jiffies,
	};
	tx->produced += segments + 1;
	return true;
}

/* Counts for the host, which decides by these totals which device programs should use. */
static void count(struct direct_tx *tx, u32 kind, u32 length)
{
	struct direct_sent *sent = &tx->ring->sent[kind];

	WRITE_ONCE(sent->packets, cpu_to_le64(++tx->packets[kind]));
	WRITE_ONCE(sent->bytes, cpu_to_le64(tx->bytes[kind] += length));
}

/* Puts a packet into a ring with room, and takes ownership; the caller holds tx->lock. */
static void post(struct direct *direct, struct direct_tx *tx, struct sk_buff *skb)
{
	bool tcp = direct_is_tcp(skb, ETH_HLEN);
	u32 length = skb->len;
	struct sk_buff *copy;

	/* The peer may hold the packet for long, so it must not count for its socket. */
	skb_orphan(skb);
	nf_reset_ct(skb);
	if (!put_packet(direct, tx, skb)) {
		copy = skb_copy(skb, GFP_ATOMIC);
		consume_skb(skb);
		if (!copy || !put_packet(direct, tx, copy)) {
			kfree_skb(copy);
			tx->refused++;
			return;
		}
		tx->copied++;
	}
	/* The entries must be visible before `produced`. Pairs with receive_packet(). */
	virt_store_release(&tx->ring->produced, cpu_to_le32(tx->produced));
	count(tx, tcp ? 0 : 1, length);
	dev_sw_netstats_tx_add(direct->dev, 1, length);
	if (!delayed_work_pending(&direct->session_work))
		schedule_delayed_work(&direct->session_work, DIRECT_UPDATE_INTERVAL);
}

static void notify(struct direct *direct, u32 peer)
{
	struct direct_member *member = direct->peer[peer].member;

	/* Either the peer sees our new index, or we see `asleep`. */
	virt_mb();
	if (READ_ONCE(member->asleep) && xchg(&member->asleep, 0)) {
		direct->peer[peer].tx.notified++;
		direct_ring_doorbell(direct, peer);
	}
}

/* Rings the doorbell, also for deferred ones; the caller holds tx->lock. */
static void ring(struct direct *direct, u32 peer)
{
	struct direct_tx *tx = &direct->peer[peer].tx;

	tx->deferred = 0;
	tx->acks = 0;
	notify(direct, peer);
}

/* Rings the deferred doorbells of streams or, if `acks`, of ACKs that a poll sent. */
void direct_ring_deferred(struct direct *direct, bool acks)
{
	u32 peer;

	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		struct direct_tx *tx = &direct->peer[peer].tx;
		const u32 *deferred = acks ? &tx->acks : &tx->deferred;

		if (!READ_ONCE(*deferred))
			continue;
		spin_lock_bh(&tx->lock);
		if (*deferred)
			ring(direct, peer);
		spin_unlock_bh(&tx->lock);
	}
}

/* A later packet of a stream rings for this one. If none follows, the idle thread rings. */
static bool is_of_stream(const struct direct_tx *tx, u32 length)
{
	return length >= STREAM_LENGTH && READ_ONCE(tx->streak) >= STREAM_COUNT;
}

/* An ACK that NAPI causes on this CPU: direct_poll() rings at its end. */
static bool is_ack_of_poll(const struct direct *direct, u32 length)
{
	return length <= DIRECT_ACK_LENGTH && READ_ONCE(direct->polling) == smp_processor_id();
}

/* Sends the copies of held packets; the caller holds tx->lock and has started a session. */
void direct_send_copies(struct direct *direct, u32 peer)
{
	struct direct_tx *tx = &direct->peer[peer].tx;

	if (skb_queue_empty(&tx->resend))
		return;
	while (has_room(tx) && !skb_queue_empty(&tx->resend)) {
		post(direct, tx, __skb_dequeue(&tx->resend));
		tx->resent++;
	}
	notify(direct, peer);
}

static void drop(struct direct *direct, struct sk_buff *skb)
{
	dev_core_stats_tx_dropped_inc(direct->dev);
	kfree_skb(skb);
}

static netdev_tx_t send_to(struct direct *direct, u32 peer, struct sk_buff *skb)
{
	struct netdev_queue *queue = netdev_get_tx_queue(direct->dev, peer);
	struct direct_tx *tx = &direct->peer[peer].tx;
	netdev_tx_t result = NETDEV_TX_OK;
	bool defer = false;
	bool stream = false;
	u32 length = skb->len;

	spin_lock(&tx->lock);
	if (!tx->up) {
		drop(direct, skb);
		goto out;
	}
	if (!has_room(tx) && !wait_for_room(tx)) {
		netif_tx_stop_queue(queue);
		result = NETDEV_TX_BUSY;
	} else {
		post(direct, tx, skb);
		if (length >= STREAM_LENGTH)
			WRITE_ONCE(tx->streak, tx->streak + 1);
		stream = is_of_stream(tx, length);
		if (stream)
			defer = ++tx->deferred < BATCH;
		else if (is_ack_of_poll(direct, length))
			defer = ++tx->acks < ACKNOWLEDGEMENTS;
		if (!has_room(tx) && !wait_for_room(tx)) {
			tx->stopped++;
			netif_tx_stop_queue(queue);
		}
	}
	if (netif_tx_queue_stopped(queue) || (!defer && !netdev_xmit_more()))
		ring(direct, peer);
out:
	spin_unlock(&tx->lock);
	if (defer && stream)
		direct_poll_while_sending(direct);
	return result;
}

static void send_to_all(struct direct *direct, struct sk_buff *skb)
{
	struct sk_buff *clone;
	u32 peer;

	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		struct direct_tx *tx = &direct->peer[peer].tx;

		if (!READ_ONCE(tx->up))
			continue;
		spin_lock(&tx->lock);
		reap(tx);
		clone = tx->up && has_room(tx) ? skb_clone(skb, GFP_ATOMIC) : NULL;
		if (clone) {
			post(direct, tx, clone);
			notify(direct, peer);
		} else {
			tx->refused++;
		}
		spin_unlock(&tx->lock);
	}
	consume_skb(skb);
}

netdev_tx_t direct_start_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct direct *direct = netdev_priv(dev);
	u32 peer = skb_get_queue_mapping(skb);

	/* The receiver would refuse the packet and end the session. */
	if (skb->len < ETH_HLEN || skb->len > DIRECT_MAX_LENGTH) {
		drop(direct, skb);
		return NETDEV_TX_OK;
	}
	skb_tx_timestamp(skb);
	if (peer != direct->id)
		return send_to(direct, peer, skb);
	if (is_multicast_ether_addr(skb->data))
		send_to_all(direct, skb);
	else
		drop(direct, skb);
	return NETDEV_TX_OK;
}

u16 direct_select_queue(struct net_device *dev, struct sk_buff *skb, struct net_device *sb_dev)
{
	const struct direct *direct = netdev_priv(dev);
	u16 peer;

	for (peer = 0; peer < DIRECT_MEMBERS; peer++)
		if (READ_ONCE(direct->peer[peer].tx.up) &&
		    ether_addr_equal(direct->peer[peer].mac, skb->data))
			return peer;
	return direct->id;
}
