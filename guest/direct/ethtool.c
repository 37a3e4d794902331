// SPDX-License-Identifier: GPL-2.0-only
/* Statistics, summed over the peers. */
#include <linux/ethtool.h>

#include "direct.h"

static const char names[][ETH_GSTRING_LEN] = {
	"interrupts",
	"found_awake",
	"doorbells",
	"tx_copied",
	"tx_withdrawn",
	"tx_resent",
	"tx_refused",
	"tx_stopped",
	"tx_nonsense",
	"tx_held",
	"rx_nonsense",
	"rx_late",
	"rx_no_memory",
	"peers",
};

static int get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? ARRAY_SIZE(names) : -EOPNOTSUPP;
}

static void get_strings(struct net_device *dev, u32 set, u8 *data)
{
	if (set == ETH_SS_STATS)
		memcpy(data, names, sizeof(names));
}

static void add_peer(const struct direct_peer *peer, u64 *data)
{
	const struct direct_tx *tx = &peer->tx;
	const struct direct_rx *rx = &peer->rx;
	const u64 values[] = {
		tx->notified + rx->wakes,
		tx->copied,
		tx->withdrawn,
		tx->resent,
		tx->refused,
		tx->stopped,
		tx->invalid,
		tx->next - tx->first,
		rx->invalid,
		rx->late,
		rx->no_memory,
		tx->up && rx->session,
	};
	u32 i;

	static_assert(ARRAY_SIZE(values) + 2 == ARRAY_SIZE(names));
	for (i = 0; i < ARRAY_SIZE(values); i++)
		data[i] += values[i];
}

static void get_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	struct direct *direct = netdev_priv(dev);
	u32 peer;

	memset(data, 0, ARRAY_SIZE(names) * sizeof(*data));
	data[0] = direct->interrupts;
	data[1] = direct->found;
	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		struct direct_tx *tx = &direct->peer[peer].tx;

		spin_lock_bh(&tx->lock);
		add_peer(&direct->peer[peer], &data[2]);
		spin_unlock_bh(&tx->lock);
	}
}

static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	struct direct *direct = netdev_priv(dev);

	strscpy(info->driver, DIRECT_NAME, sizeof(info->driver));
	strscpy(info->version, DIRECT_VERSION_TEXT, sizeof(info->version));
	strscpy(info->bus_info, pci_name(direct->pdev), sizeof(info->bus_info));
}

const struct ethtool_ops direct_ethtool_ops = {
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_sset_count = get_sset_count,
	.get_strings = get_strings,
	.get_ethtool_stats = get_stats,
	.get_ts_info = ethtool_op_get_ts_info,
};
