/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The control window, which all members of a trust group can write.
 *
 *	header | a page for each member | a ring for each ordered pair of members
 *
 * All numbers are little endian. crates/direct/src/layout.rs has the same sizes; change both.
 * Members are numbered by the ivshmem id that the host gives them.
 */
#ifndef VICINITY_DIRECT_LAYOUT_H
#define VICINITY_DIRECT_LAYOUT_H

#include <linux/types.h>
#include <linux/virtio_net.h>

#define DIRECT_MAGIC		0x7463657269646976ULL	/* "vidirect" */
#define DIRECT_BEACON		0x6e6f636165626976ULL	/* "vibeacon" */
#define DIRECT_VERSION		3
#define DIRECT_PAGE		4096
#define DIRECT_MEMBERS		16
#define DIRECT_RANGES		8
#define DIRECT_ENTRIES		1024	/* a power of two */
#define DIRECT_SEGMENTS		18	/* of a packet, at most */

/* Written by the host before a member maps the window. */
struct direct_header {
	__le64 magic;
	__le32 version;
	__le32 members;
	__le32 entries;
};

/* A range of RAM: guest-physical address, and offset in the view that peers have. */
struct direct_range {
	__le64 start;
	__le64 length;
	__le64 offset;
};

struct direct_member {
	/* Written by the host. */
	__le32 present;
	__le32 ranges;
	u8 mac[6];
	u8 reserved[2];
	struct direct_range range[DIRECT_RANGES];
	u8 routed[DIRECT_MEMBERS];	/* 1: packets to that peer should use this device */
	/* Written by the member: a page of its RAM with DIRECT_BEACON and this nonce. */
	__le64 beacon __aligned(2048);
	__le64 nonce;
	/* The member writes 1 to request a doorbell. The peer that rings it writes 0. */
	u32 asleep __aligned(128);
} __aligned(DIRECT_PAGE);

/* The header of a packet in a ring, which `segments` segments follow. */
struct direct_packet {
	struct virtio_net_hdr offload;
	__le16 segments;
	__le32 length;
};

/* A part of a packet, at a guest-physical address of the sender. */
struct direct_segment {
	__le64 start;
	__le32 length;
	__le32 reserved;
};

union direct_entry {
	struct direct_packet packet;
	struct direct_segment segment;
};

struct direct_sent {
	__le64 packets;
	__le64 bytes;
};

struct direct_ring {
	/* Written by the sender. A new session invalidates older entries; 0 is no session. */
	__le32 session;
	__le32 produced;
	/* The sender writes 1 to request a doorbell when there is room. The receiver writes 0. */
	u32 waiting;
	u32 reserved;
	/* Written by the sender for the host: totals of TCP packets and of all others. */
	struct direct_sent sent[2];
	/* Written by the receiver: the session that it accepted, and its consumer index. */
	__le32 accepted __aligned(128);
	__le32 consumed;
	union direct_entry entry[DIRECT_ENTRIES] __aligned(DIRECT_PAGE);
};

struct direct_window {
	struct direct_header header __aligned(DIRECT_PAGE);
	struct direct_member member[DIRECT_MEMBERS];
	struct direct_ring ring[DIRECT_MEMBERS][DIRECT_MEMBERS];	/* [from][to] */
};

static_assert(sizeof(struct direct_member) == DIRECT_PAGE);
static_assert(sizeof(union direct_entry) == 16);
static_assert(offsetof(struct direct_ring, sent) == 16);
static_assert(sizeof(struct direct_ring) == DIRECT_PAGE + 16 * DIRECT_ENTRIES);

#endif
