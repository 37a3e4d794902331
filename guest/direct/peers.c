// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sysfs attribute `peers` of the network device lists the MAC addresses, one a line, of the
 * peers that programs should reach by this device: those with sessions in both directions, unless
 * the host has cleared `routed`. poll(2) reports changes.
 */
#include <linux/sysfs.h>

#include "direct.h"

static bool is_listed(const struct direct *direct, u32 peer)
{
	return direct->peer[peer].tx.up && direct->peer[peer].rx.session &&
	       READ_ONCE(direct->self->routed[peer]);
}

static ssize_t peers_show(struct device *device, struct device_attribute *attribute, char *text)
{
	struct direct *direct = netdev_priv(to_net_dev(device));
	int length = 0;
	u32 peer;

	mutex_lock(&direct_lock);
	for (peer = 0; peer < DIRECT_MEMBERS; peer++)
		if (is_listed(direct, peer))
			length += sysfs_emit_at(text, length, "%pM\n", direct->peer[peer].mac);
	mutex_unlock(&direct_lock);
	return length;
}
static DEVICE_ATTR_RO(peers);

static struct attribute *attributes[] = {
	&dev_attr_peers.attr,
	NULL
};

const struct attribute_group direct_peers_group = {
	.attrs = attributes,
};

/* Updates the list, and returns whether it changed; the caller holds direct_lock. */
bool direct_peers_changed(struct direct *direct)
{
	u32 before = direct->listed;
	u32 peer;

	direct->listed = 0;
	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		WRITE_ONCE(direct->routed[peer], READ_ONCE(direct->self->routed[peer]));
		if (is_listed(direct, peer))
			direct->listed |= BIT(peer);
	}
	return direct->listed != before;
}

/* Whether the host has changed `routed` since the last session update. */
bool direct_routing_changed(const struct direct *direct)
{
	u32 peer;

	for (peer = 0; peer < DIRECT_MEMBERS; peer++)
		if (READ_ONCE(direct->routed[peer]) != READ_ONCE(direct->self->routed[peer]))
			return true;
	return false;
}

void direct_notify_peers(struct direct *direct)
{
	sysfs_notify(&direct->dev->dev.kobj, NULL, "peers");
}
