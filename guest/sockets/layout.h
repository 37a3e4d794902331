/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What vicinity-agent and this library share: the table of addresses, the numbers of AF_VSOCK ports, and the messages
 * about accepted connections. guest/agent/src/sockets/table.rs writes what this file describes.
 */
#ifndef VICINITY_SOCKETS_LAYOUT_H
#define VICINITY_SOCKETS_LAYOUT_H

#include <stdint.h>

#define TABLE_PATH "/run/vicinity-agent/sockets"
#define CLAIM_PATH "/run/vicinity-agent/claim.sock"

/* "VICSOCK1" in memory. */
#define TABLE_MAGIC 0x314b434f53434956ull
#define TABLE_ENTRIES 1024u
#define TABLE_RANGES 16u

/* The peer's agent answers, so its VM accepts connections that this library makes. */
#define ENTRY_UP 1u
/* The address is this VM's. */
#define ENTRY_OWN 2u

struct port_range {
	uint16_t first;
	uint16_t last;
};

/* One IPv4 address of a VM. */
struct entry {
	/* In network byte order. */
	uint32_t address;
	uint32_t cid;
	/* Addresses with the same number reach each other by Ethernet. */
	uint32_t network;
	/* The number of the address among those of its VM. */
	uint16_t index;
	uint16_t flags;
	/* TCP ports to which this VM may connect; at most TABLE_RANGES. */
	uint32_t ranges;
	struct port_range ports[TABLE_RANGES];
};

/* The file. The agent makes the sequence odd while it writes, and it may end at any moment. */
struct table {
	uint64_t magic;
	/* The network namespace that the addresses are in: st_ino of /proc/self/ns/net. */
	uint64_t netns;
	uint32_t sequence;
	/* Zero when connections shall go by TCP. */
	uint32_t enabled;
	uint32_t self_cid;
	uint32_t count;
	uint8_t reserved[32];
	struct entry entries[TABLE_ENTRIES];
};

_Static_assert(sizeof(struct entry) == 84, "the agent writes 84 bytes");
_Static_assert(sizeof(struct table) == 64 + 84 * TABLE_ENTRIES, "the agent writes a header of 64 bytes");

/*
 * An AF_VSOCK port that stands for a TCP port: 0x56, the index of the address (8 bits), the TCP port (16 bits). So the
 * kernel's addresses of a connection tell both TCP addresses, in every process that has the descriptor.
 */
#define PORT_PREFIX 0x56u
#define PORT_OF(index, tcp) ((PORT_PREFIX << 24) | ((uint32_t)(index) << 16) | (uint32_t)(tcp))

/* The byte that the agent of the server's VM sends when the server has the connection. */
#define ACCEPTED 1

/* SO_MARK of the TCP connections that the agent makes to servers of its VM. */
#define AGENT_MARK 0x76696373u

/* Messages on CLAIM_PATH. The first two carry a descriptor. */
#define SAY_LISTENING 'L' /* this socket listens, and its program uses this library */
#define SAY_CLAIM 'C'	  /* the AF_VSOCK connection of this accepted connection, please */
#define SAY_TAKE 'V'	  /* the agent's answer, with the connection */
#define SAY_TAKEN 'A'	  /* the program has it; without this byte, the agent forwards the data */

#endif
