// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sessions: who may send to whom.
 *
 * A sender writes the number of its session into the ring. The receiver looks for the view of the
 * sender's RAM, goes to the ring's end and repeats the number; from then on the sender may send.
 * A session ends when either word changes: by the sender, the receiver, or the host for a member
 * that is gone. A sender that ends one takes its pages back at once: the receiver looks at the
 * number again after each copy, and throws away what it copied later. What a peer that is there has
 * held for too long is copied, and sent again in the next session.
 *
 * So nothing has to be agreed upon with a peer that no longer answers.
 */
#include "direct.h"

/* No more is read from the pages that are held; the caller has tx->lock. */
static void end_session(struct direct *direct, u32 peer, u32 next)
{
	struct direct_tx *tx = &direct->peer[peer].tx;

	tx->session = next;
	direct_write32(&tx->ring->session, next);
	/* Before the pages can be used for something else. Pairs with receive.c. */
	virt_mb();
	if (tx->first != tx->next)
		tx->withdrawn += tx->next - tx->first;
	direct_release_held(tx);
	tx->unrung = 0;
	tx->acks = 0;
	WRITE_ONCE(tx->streak, 0);
	tx->up = false;
	tx->offered = jiffies;
	/* What the stack has for this peer is dropped rather than kept. */
	netif_tx_wake_queue(netdev_get_tx_queue(direct->dev, peer));
}

static u32 next_session(u32 session)
{
	return session + 1 ? : 1;
}

static void begin_sending(struct direct *direct, u32 peer)
{
	struct direct_tx *tx = &direct->peer[peer].tx;

	ether_addr_copy(direct->peer[peer].mac, direct->peer[peer].member->mac);
	tx->consumed = direct_read32(&tx->ring->consumed);
	tx->produced = tx->consumed;
	direct_write32(&tx->ring->produced, tx->produced);
	tx->up = true;
	direct_send_kept(direct, peer);
}

/* Whether the peer is there and has a packet that it should have taken. */
static bool is_stalled(const struct direct_tx *tx, u32 accepted)
{
	return tx->up && accepted == tx->session && direct_holds_too_long(tx);
}

/*
 * Whether it is time to end a session: the peer does not take part in it any more, or has not begun
 * for too long. (Somebody may have overwritten the session.)
 */
static bool is_over(const struct direct *direct, u32 peer, u32 accepted)
{
	const struct direct_tx *tx = &direct->peer[peer].tx;

	if (!tx->up)
		return accepted != tx->session &&
		       time_after(jiffies, tx->offered + DIRECT_RETRY) &&
		       direct_read32(&direct->peer[peer].member->present);
	return accepted != tx->session;
}

/* Returns whether the peer has packets of ours, or is to have. */
static bool settle_tx(struct direct *direct, u32 peer)
{
	struct direct_tx *tx = &direct->peer[peer].tx;
	bool ended = false;
	bool held;
	u32 accepted;

	direct_reap(direct, peer);
	spin_lock_bh(&tx->lock);
	/* Pairs with the release in begin_receiving(). */
	accepted = le32_to_cpu(virt_load_acquire(&tx->ring->accepted));
	if (is_stalled(tx, accepted))
		direct_keep_held(tx);
	if (is_stalled(tx, accepted) || is_over(direct, peer, accepted)) {
		end_session(direct, peer, next_session(tx->session));
		ended = true;
	} else if (!tx->up && accepted == tx->session) {
		begin_sending(direct, peer);
	}
	if (!skb_queue_empty(&tx->kept) && time_after(jiffies, tx->kept_since + DIRECT_KEEP))
		direct_drop_kept(tx);
	held = tx->first != tx->next || !skb_queue_empty(&tx->kept);
	spin_unlock_bh(&tx->lock);
	if (ended)
		direct_ring_doorbell(direct, peer);
	return held;
}

/* The caller is NAPI, or has disabled it. */
static void end_receiving(struct direct_rx *rx)
{
	rx->view = NULL;
	rx->session = 0;
	direct_write32(&rx->ring->accepted, 0);
}

static void begin_receiving(struct direct_rx *rx, struct direct_view *view, u32 session)
{
	rx->view = view;
	rx->session = session;
	rx->consumed = direct_read32(&rx->ring->produced);
	direct_write32(&rx->ring->consumed, rx->consumed);
	/* The sender goes on where `consumed` says. */
	virt_store_release(&rx->ring->accepted, cpu_to_le32(session));
}

/* Doorbells that were rung while NAPI was disabled called nobody: look. */
static void resume_napi(struct direct *direct)
{
	napi_enable(&direct->napi);
	local_bh_disable();
	napi_schedule(&direct->napi);
	local_bh_enable();
}

static void settle_rx(struct direct *direct, u32 peer)
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
		begin_receiving(rx, view, session);
	}
	resume_napi(direct);
	direct_ring_doorbell(direct, peer);
}

/*
 * Whether a member is there that we do not exchange packets with: its doorbell may not have been
 * known here when it was time to ring it, or its view is still to come.
 */
static bool is_missed(const struct direct_peer *peer)
{
	return direct_read32(&peer->member->present) && !(peer->tx.up && peer->rx.session);
}

static void settle_link(struct direct *direct)
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

void direct_settle(struct work_struct *work)
{
	struct direct *direct = container_of(to_delayed_work(work), struct direct, settle);
	bool missed = false;
	bool held = false;
	bool tell = false;
	u32 peer;

	/* What changes from now on asks for another run. Pairs with direct_settle_soon(). */
	WRITE_ONCE(direct->soon, 0);
	smp_mb();
	mutex_lock(&direct_lock);
	if (!direct->open)
		goto out;
	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		if (peer == direct->id)
			continue;
		held |= settle_tx(direct, peer);
		settle_rx(direct, peer);
		missed |= is_missed(&direct->peer[peer]);
	}
	settle_link(direct);
	tell = direct_peers_changed(direct);
	if (held)
		schedule_delayed_work(&direct->settle, DIRECT_TICK);
	else if (missed)
		schedule_delayed_work(&direct->settle, DIRECT_RETRY + 1);
out:
	mutex_unlock(&direct_lock);
	if (tell)
		direct_tell_peers(direct);
}

/*
 * At most once a jiffy, whatever peers write. A run that is due already stays due: to ask for it anew
 * would put it off by a jiffy, and take it back from the work queue. A peer that has this device poll
 * all the time could then keep every session of the device from beginning and ending.
 */
void direct_settle_soon(struct direct *direct)
{
	if (!xchg(&direct->soon, 1))
		mod_delayed_work(system_wq, &direct->settle, 1);
}

/* The caller has direct_lock. */
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
	direct_settle_soon(direct);
}

/* The caller has direct_lock; the stack sends no more. */
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
		direct_drop_kept(tx);
		spin_unlock_bh(&tx->lock);
		end_receiving(&direct->peer[peer].rx);
		direct_ring_doorbell(direct, peer);
	}
}

/* A view goes away; the caller has direct_lock. */
void direct_forget_view(struct direct_view *view)
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
		direct_settle_soon(direct);
	}
}
