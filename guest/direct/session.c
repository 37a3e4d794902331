// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sessions between a sender and a receiver.
 *
 * The sender writes the number of its session into the ring. The receiver finds its view of the
 * sender's RAM, skips to the end of the ring and repeats the number in `accepted`. From then on the
 * sender may send. A session ends when either word changes. The sender or the receiver may change
 * them, and the host does for a member that ended. A sender that ends a session reuses its pages at
 * once: the receiver reads the number again after each copy, and drops the copy if the number has
 * changed. If a peer that is present holds packets for too long, the sender copies them and sends
 * the copies in the next session.
 *
 * So a sender needs no agreement with a peer that does not answer.
 */
#include "direct.h"

/* Ends a session, after which the peer discards what it reads; the caller holds tx->lock. */
static void end_session(struct direct *direct, u32 peer, u32 next)
{
	struct direct_tx *tx = &direct->peer[peer].tx;

	tx->session = next;
	direct_write32(&tx->ring->session, next);
	/* Before the pages are reused. Pairs with copy_out() in receive.c. */
	virt_mb();
	if (tx->first != tx->next)
		tx->withdrawn += tx->next - tx->first;
	direct_release_held(tx);
	tx->deferred = 0;
	tx->acks = 0;
	WRITE_ONCE(tx->streak, 0);
	tx->up = false;
	tx->offered = jiffies;
	/* The stack's packets for this peer are dropped, not queued. */
	netif_tx_wake_queue(netdev_get_tx_queue(direct->dev, peer));
}

static u32 next_session(u32 session)
{
	return session + 1 ? : 1;
}

static void start_sending(struct direct *direct, u32 peer)
{
	struct direct_tx *tx = &direct->peer[peer].tx;

	ether_addr_copy(direct->peer[peer].mac, direct->peer[peer].member->mac);
	tx->consumed = direct_read32(&tx->ring->consumed);
	tx->produced = tx->consumed;
	direct_write32(&tx->ring->produced, tx->produced);
	tx->up = true;
	direct_send_copies(direct, peer);
}

/* Whether the peer is in the session but has held a packet for too long. */
static bool is_stalled(const struct direct_tx *tx, u32 accepted)
{
	return tx->up && accepted == tx->session && direct_is_held_too_long(tx);
}

/*
 * Whether to end a session: the peer has left it, or has not accepted it for too long. (Another
 * member may have overwritten the number.)
 */
static bool is_over(const struct direct *direct, u32 peer, u32 accepted)
{
	const struct direct_tx *tx = &direct->peer[peer].tx;

	if (!tx->up)
		return accepted != tx->session &&
		       time_after(jiffies, tx->offered + DIRECT_OFFER_INTERVAL) &&
		       direct_read32(&direct->peer[peer].member->present);
	return accepted != tx->session;
}

/* Returns whether the peer holds packets, or copies wait for its next session. */
static bool update_tx(struct direct *direct, u32 peer)
{
	struct direct_tx *tx = &direct->peer[peer].tx;
	bool ended = false;
	bool held;
	u32 accepted;

	direct_reap(direct, peer);
	spin_lock_bh(&tx->lock);
	/* Pairs with the release in start_receiving(). */
	accepted = le32_to_cpu(virt_load_acquire(&tx->ring->accepted));
	if (is_stalled(tx, accepted))
		direct_copy_held(tx);
	if (is_stalled(tx, accepted) || is_over(direct, peer, accepted)) {
		end_session(direct, peer, next_session(tx->session));
		ended = true;
	} else if (!tx->up && accepted == tx->session) {
		start_sending(direct, peer);
	}
	if (!skb_queue_empty(&tx->resend) &&
	    time_after(jiffies, tx->resend_since + DIRECT_RESEND_TIME))
		direct_purge_resend(tx);
	held = tx->first != tx->next || !skb_queue_empty(&tx->resend);
	spin_unlock_bh(&tx->lock);
	if (ended)
		direct_ring_doorbell(direct, peer);
	return held;
}

/* The caller is NAPI, or has disabled NAPI. */
static void end_receiving(struct direct_rx *rx)
{
	rx->view = NULL;
	rx->session = 0;
	direct_write32(&rx->ring->accepted, 0);
}

static void start_receiving(struct direct_rx *rx, struct direct_view *view, u32 session)
{
	rx->view = view;
	rx->session = session;
	rx->consumed = direct_read32(&rx->ring->produced);
	direct_write32(&rx->ring->consumed, rx->consumed);
	/* The sender starts at `consumed`. */
	virt_store_release(&rx->ring->accepted, cpu_to_le32(session));
}

/* Doorbells had no effect while NAPI was disabled, so poll once. */
static void resume_napi(struct direct *direct)
{
	napi_enable(&direct->napi);
	local_bh_disable();
	napi_schedule(&direct->napi);
	local_bh_enable();
}

static void update_rx(struct direct *direct, u32 peer)
{
	struct direct_rx *rx = &direct->peer[peer].rx;
	u32 session = direct_read32(&rx->ring->session);
	struct direct_view *view = NULL;
	struct direct_ram ram;

	if (session == rx->session)
		return;
	if (session && session != rx->broken)
		view = direct_view_of(direct->peer[peer].member, &ram);
	if (!view && !rx->session)
		return;
	napi_disable(&direct->napi);
	end_receiving(rx);
	if (view) {
		rx->ram = ram;
		start_receiving(rx, view, session);
	}
	resume_napi(direct);
	direct_ring_doorbell(direct, peer);
}

/*
 * Whether a member is present without sessions in both directions: QEMU may not have had its
 * doorbell when we rang it, or its view may not be plugged in yet.
 */
static bool is_unconnected(const struct direct_peer *peer)
{
	return direct_read32(&peer->member->present) && !(peer->tx.up && peer->rx.session);
}

static void update_carrier(struct direct *direct)
{
	u32 peer;

	for (peer = 0; peer < DIRECT_MEMBERS; peer++)
		if (direct->peer[peer].tx.up)
			break;
	if (peer < DIRECT_MEMBERS)
		netif_carrier_on(direct->dev);
	else
		netif_carrier_off(direct->dev);
}

void direct_update_sessions(struct work_struct *work)
{
	struct direct *direct = container_of(to_delayed_work(work), struct direct, session_work);
	bool unconnected = false;
	bool held = false;
	bool changed = false;
	u32 peer;

	WRITE_ONCE(direct->update_scheduled, 0);
	/* Later changes schedule another run. Pairs with direct_schedule_update(). */
	smp_mb();
	mutex_lock(&direct_lock);
	if (!direct->open)
		goto out;
	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		if (peer == direct->id)
			continue;
		held |= update_tx(direct, peer);
		update_rx(direct, peer);
		unconnected |= is_unconnected(&direct->peer[peer]);
	}
	update_carrier(direct);
	changed = direct_peers_changed(direct);
	if (held)
		schedule_delayed_work(&direct->session_work, DIRECT_UPDATE_INTERVAL);
	else if (unconnected)
		schedule_delayed_work(&direct->session_work, DIRECT_OFFER_INTERVAL + 1);
out:
	mutex_unlock(&direct_lock);
	if (changed)
		direct_notify_peers(direct);
}

/*
 * Schedules direct_update_sessions(), at most once a jiffy whatever peers write. If a run is
 * already scheduled, its time stays: rescheduling would delay the run by a jiffy and remove it from
 * the work queue. A peer that makes this device poll all the time could then prevent every session
 * of the device from starting and ending.
 */
void direct_schedule_update(struct direct *direct)
{
	if (!xchg(&direct->update_scheduled, 1))
		mod_delayed_work(system_wq, &direct->session_work, 1);
}

/* The caller holds direct_lock. */
void direct_open_sessions(struct direct *direct)
{
	u32 peer;

	direct->open = true;
	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		struct direct_tx *tx = &direct->peer[peer].tx;

		if (peer == direct->id)
			continue;
		spin_lock_bh(&tx->lock);
		end_session(direct, peer, next_session(get_random_u32()));
		spin_unlock_bh(&tx->lock);
		direct_ring_doorbell(direct, peer);
	}
	resume_napi(direct);
	direct_schedule_update(direct);
}

/* The caller holds direct_lock, and the stack does not transmit any more. */
void direct_close_sessions(struct direct *direct)
{
	u32 peer;

	direct->open = false;
	napi_disable(&direct->napi);
	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		struct direct_tx *tx = &direct->peer[peer].tx;

		if (peer == direct->id)
			continue;
		spin_lock_bh(&tx->lock);
		end_session(direct, peer, 0);
		direct_purge_resend(tx);
		spin_unlock_bh(&tx->lock);
		end_receiving(&direct->peer[peer].rx);
		direct_ring_doorbell(direct, peer);
	}
}

/* Ends the sessions that use a view; the caller holds direct_lock. */
void direct_end_view_sessions(struct direct_view *view)
{
	struct direct *direct;
	u32 peer;

	list_for_each_entry(direct, &direct_windows, list) {
		for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
			struct direct_rx *rx = &direct->peer[peer].rx;

			if (rx->view != view)
				continue;
			napi_disable(&direct->napi);
			end_receiving(rx);
			resume_napi(direct);
			direct_ring_doorbell(direct, peer);
		}
		direct_schedule_update(direct);
	}
}
