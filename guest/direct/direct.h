/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An Ethernet device whose receiver copies packets out of the sender's memory.
 *
 * The members of a group share a control window (ivshmem-doorbell), and each member has a read-only
 * view of every other member's RAM (ivshmem-plain). The sender puts the guest-physical addresses of
 * a packet into a ring of the window, and holds the packet until the receiver has copied it out of
 * its view:
 *
 *	VM A				 host memory			VM B
 *	sk_buff, held until	+------------------------+
 *	it is consumed		| RAM of A		 |<--- view, copied into
 *	   |			+------------------------+     an sk_buff of B
 *	   +-- addresses ------>| ring A to B		 |---> receive.c
 *	   +-- doorbell --------- eventfd ---------------------> interrupt
 *
 * Files:
 *
 *	window.c	the control window: probe, network device, doorbells
 *	view.c		views, and how to find the view of a peer
 *	memory.c	maps the memory of windows and views
 *	session.c	sessions between pairs of members: start, end, timeout
 *	transmit.c	puts packets into rings, and releases them
 *	receive.c	takes packets out of rings
 *	idle.c		thread of lowest priority: deferred polls, and busy polling
 *	ram.c		converts guest-physical addresses to offsets in a view
 *	ethtool.c	statistics
 *	peers.c		sysfs attribute with the peers that programs should reach by this device
 *
 * Barriers towards peers are virt_*(): peers run on other CPUs even if this kernel has only one.
 *
 * Locks, outermost first: direct_lock (windows, views, sessions), direct_tx.lock (one transmit
 * ring). NAPI owns the receiving side; while NAPI is disabled, the holder of direct_lock does.
 */
#ifndef VICINITY_DIRECT_H
#define VICINITY_DIRECT_H

#include <linux/if_ether.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#include "layout.h"

#define DIRECT_NAME		"vicinity_direct"
#define DIRECT_VERSION_TEXT	"0.1.0"

/* The BAR that has a device's memory (QEMU's docs/specs/ivshmem-spec.rst). */
#define DIRECT_MEMORY_BAR	2

/* The longest packet: 64 KiB for IP, and an Ethernet header with a VLAN tag. */
#define DIRECT_MAX_LENGTH	(65535 + VLAN_ETH_HLEN)
/* How long a peer may hold a packet. After that, a copy is sent in the next session. */
#define DIRECT_HOLD_TIME	(5 * HZ)
/* How long such copies wait for the next session. */
#define DIRECT_RESEND_TIME	(30 * HZ)
/* Interval at which a session is offered again to a member that is present. */
#define DIRECT_OFFER_INTERVAL	HZ
/*
 * Memory of the packets that one poll receives, without TCP, which has flow control: half of a
 * socket's default receive buffer (net.core.rmem_default).
 */
#define DIRECT_QUOTA		(104 * 1024)
/* The longest TCP ACK, with all options. */
#define DIRECT_ACK_LENGTH	128
/* Value of direct.polling: no CPU polls. */
#define DIRECT_NO_CPU		(-1)
/* Interval of session updates while packets are held. */
#define DIRECT_UPDATE_INTERVAL	(HZ / 20)

/* The RAM ranges of a member, after validation. */
struct direct_ram {
	u32 count;
	struct {
		u64 start;
		u64 length;
		u64 offset;
	} range[DIRECT_RANGES];
};

/* A peer's RAM, read-only. */
struct direct_view {
	struct list_head list;
	struct pci_dev *pdev;
	const u8 *memory;
	u64 size;
};

struct direct_held {
	struct sk_buff *skb;
	u32 end;
	u32 since;		/* jiffies */
};

/* The ring to a peer. */
struct direct_tx {
	spinlock_t lock;	/* all of this */
	struct direct_ring *ring;
	struct direct_held *held;
	u32 first;		/* held packets: [first, next) */
	u32 next;
	u32 produced;
	u32 consumed;		/* last valid value from the receiver */
	u32 session;
	bool up;
	unsigned long offered;	/* when the session was offered, in jiffies */
	u32 streak;		/* long packets since the peer last sent more than an ACK */
	u32 deferred;		/* packets of a stream with a deferred doorbell */
	u32 acks;		/* ACKs sent by NAPI with a deferred doorbell */
	u64 packets[2];		/* TCP and other, as in direct_ring.sent */
	u64 bytes[2];
	u64 notified;
	u64 copied;
	u64 withdrawn;
	u64 refused;
	u64 stopped;
	u64 invalid;
	struct sk_buff_head resend;	/* copies of packets that the peer held too long */
	unsigned long resend_since;
	u64 resent;
};

/* The ring from a peer. */
struct direct_rx {
	struct direct_ring *ring;
	struct direct_view *view;	/* set during a session */
	struct direct_ram ram;
	u32 session;
	u32 consumed;
	u32 broken;		/* a session that ended with an invalid packet */
	u64 wakes;
	u64 invalid;
	u64 late;
	u64 no_memory;
};

struct direct_peer {
	struct direct_tx tx;
	struct direct_rx rx;
	struct direct_member *member;
	u8 mac[ETH_ALEN];
};

/* A control window, and its network device. */
struct direct {
	struct list_head list;
	struct pci_dev *pdev;
	struct net_device *dev;
	u8 __iomem *registers;
	struct direct_window *window;
	u32 id;
	struct direct_member *self;
	struct direct_ram ram;
	__le64 *beacon;
	struct napi_struct napi;
	struct delayed_work session_work;
	u32 update_scheduled;	/* `session_work` is scheduled within a jiffy */
	u64 interrupts;
	u32 first_peer;
	u32 poll_memory;	/* memory that this poll used of DIRECT_QUOTA */
	int polling;		/* the CPU that polls, or DIRECT_NO_CPU */
	struct task_struct *idle_thread;
	struct timer_list idle_timer;
	u32 idle_work;		/* the idle thread has work */
	bool poll_deferred;	/* that work is to continue a poll */
	bool polls_while_sending;	/* idle thread or timer poll: no doorbell needed */
	u32 skip_next;		/* occasions to skip after an unsuccessful busy poll */
	u32 skip;		/* occasions that are still to be skipped */
	u64 found;		/* successful busy polls */
	bool open;		/* under direct_lock */
	u32 listed;		/* bitmap of listed peers; under direct_lock */
	u8 routed[DIRECT_MEMBERS];	/* at the last session update */
	struct direct_peer peer[DIRECT_MEMBERS];
};

extern struct mutex direct_lock;
extern struct list_head direct_windows;
extern struct list_head direct_views;

/* window.c */
void direct_ring_doorbell(struct direct *direct, u32 peer);

/* memory.c */
void *direct_map_memory(struct pci_dev *pdev);

/* view.c */
int direct_view_probe(struct pci_dev *pdev);
void direct_view_remove(struct direct_view *view);
struct direct_view *direct_view_of(struct direct_member *member, struct direct_ram *ram);

/* session.c */
void direct_update_sessions(struct work_struct *work);
void direct_schedule_update(struct direct *direct);
void direct_open_sessions(struct direct *direct);
void direct_close_sessions(struct direct *direct);
void direct_end_view_sessions(struct direct_view *view);

/* peers.c */
extern const struct attribute_group direct_peers_group;
bool direct_peers_changed(struct direct *direct);
bool direct_routing_changed(const struct direct *direct);
void direct_notify_peers(struct direct *direct);

/* transmit.c */
netdev_tx_t direct_start_xmit(struct sk_buff *skb, struct net_device *dev);
u16 direct_select_queue(struct net_device *dev, struct sk_buff *skb, struct net_device *sb_dev);
void direct_reap(struct direct *direct, u32 peer);
bool direct_is_held_too_long(const struct direct_tx *tx);
void direct_release_held(struct direct_tx *tx);
void direct_copy_held(struct direct_tx *tx);
void direct_send_copies(struct direct *direct, u32 peer);
void direct_purge_resend(struct direct_tx *tx);
void direct_ring_deferred(struct direct *direct, bool acks);

/* receive.c */
bool direct_is_tcp(const struct sk_buff *skb, int at);
bool direct_has_packets(const struct direct *direct);
int direct_poll(struct napi_struct *napi, int budget);

/* idle.c */
int direct_start_idle_thread(struct direct *direct);
void direct_stop_idle_thread(struct direct *direct);
void direct_defer_poll(struct direct *direct);
void direct_poll_started(struct direct *direct);
void direct_start_busy_poll(struct direct *direct);
void direct_poll_while_sending(struct direct *direct);

/* ram.c */
bool direct_ram_read(struct direct_ram *ram, const struct direct_member *member);
bool direct_ram_offset(const struct direct_ram *ram, u64 start, u32 length, u64 *offset);

/* ethtool.c */
extern const struct ethtool_ops direct_ethtool_ops;

static inline union direct_entry *direct_entry(struct direct_ring *ring, u32 number)
{
	return &ring->entry[number & (DIRECT_ENTRIES - 1)];
}

static inline u32 direct_read32(const __le32 *word)
{
	return le32_to_cpu(READ_ONCE(*word));
}

static inline void direct_write32(__le32 *word, u32 value)
{
	WRITE_ONCE(*word, cpu_to_le32(value));
}

#endif
