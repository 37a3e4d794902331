// SPDX-License-Identifier: GPL-2.0-only
/* The control window, which is an ivshmem-doorbell device, and its network device. */
#include <linux/etherdevice.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/random.h>

#include "direct.h"

#define REGISTERS_BAR	0
/* QEMU's docs/specs/ivshmem-spec.rst, "Device Registers" */
#define POSITION	8
#define DOORBELL	12

/* Protects windows, views and sessions; see direct.h. */
DEFINE_MUTEX(direct_lock);
LIST_HEAD(direct_windows);

/* Interrupts a peer. Has no effect if the peer is absent. */
void direct_ring_doorbell(struct direct *direct, u32 peer)
{
	iowrite32(peer << 16, direct->registers + DOORBELL);
}

static irqreturn_t interrupt(int irq, void *data)
{
	struct direct *direct = data;

	direct->interrupts++;
	napi_schedule(&direct->napi);
	return IRQ_HANDLED;
}

static int direct_open(struct net_device *dev)
{
	struct direct *direct = netdev_priv(dev);
	int error;

	netif_carrier_off(dev);
	error = direct_start_idle_thread(direct);
	if (error)
		return error;
	mutex_lock(&direct_lock);
	direct_open_sessions(direct);
	mutex_unlock(&direct_lock);
	error = request_irq(pci_irq_vector(direct->pdev, 0), interrupt, 0, dev->name, direct);
	if (error)
		goto close;
	netif_tx_start_all_queues(dev);
	/* A peer may have rung before the interrupt was requested. */
	direct_schedule_update(direct);
	return 0;
close:
	mutex_lock(&direct_lock);
	direct_close_sessions(direct);
	mutex_unlock(&direct_lock);
	direct_stop_idle_thread(direct);
	return error;
}

static int direct_stop(struct net_device *dev)
{
	struct direct *direct = netdev_priv(dev);

	free_irq(pci_irq_vector(direct->pdev, 0), direct);
	mutex_lock(&direct_lock);
	direct_close_sessions(direct);
	mutex_unlock(&direct_lock);
	direct_stop_idle_thread(direct);
	cancel_delayed_work_sync(&direct->session_work);
	WRITE_ONCE(direct->update_scheduled, 0);
	netif_carrier_off(dev);
	return 0;
}

static int direct_init(struct net_device *dev)
{
	dev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	return dev->tstats ? 0 : -ENOMEM;
}

static void direct_uninit(struct net_device *dev)
{
	free_percpu(dev->tstats);
}

static const struct net_device_ops direct_netdev_ops = {
	.ndo_init = direct_init,
	.ndo_uninit = direct_uninit,
	.ndo_open = direct_open,
	.ndo_stop = direct_stop,
	.ndo_start_xmit = direct_start_xmit,
	.ndo_select_queue = direct_select_queue,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_validate_addr = eth_validate_addr,
};

static bool is_window(const struct direct_header *header)
{
	return le64_to_cpu(header->magic) == DIRECT_MAGIC &&
	       le32_to_cpu(header->version) == DIRECT_VERSION &&
	       le32_to_cpu(header->members) == DIRECT_MEMBERS &&
	       le32_to_cpu(header->entries) == DIRECT_ENTRIES;
}

/* Maps the device. Returns -ENODEV if its memory is not a control window. */
static int map_window(struct direct *direct)
{
	struct pci_dev *pdev = direct->pdev;
	u64 size = pci_resource_len(pdev, DIRECT_MEMORY_BAR);
	int error;

	error = pcim_enable_device(pdev);
	if (error)
		return error;
	if (size < sizeof(struct direct_window))
		return -ENODEV;
	direct->registers = pcim_iomap(pdev, REGISTERS_BAR, 0);
	if (!direct->registers)
		return -ENOMEM;
	direct->window = direct_map_memory(pdev);
	if (IS_ERR(direct->window))
		return PTR_ERR(direct->window);
	direct->id = ioread32(direct->registers + POSITION);
	if (!is_window(&direct->window->header) || direct->id >= DIRECT_MEMBERS)
		return -ENODEV;
	direct->self = &direct->window->member[direct->id];
	return direct_ram_read(&direct->ram, direct->self) ? 0 : -ENODEV;
}

static int init_peers(struct direct *direct)
{
	u32 peer;

	for (peer = 0; peer < DIRECT_MEMBERS; peer++) {
		struct direct_tx *tx = &direct->peer[peer].tx;

		direct->peer[peer].member = &direct->window->member[peer];
		direct->peer[peer].rx.ring = &direct->window->ring[peer][direct->id];
		tx->ring = &direct->window->ring[direct->id][peer];
		spin_lock_init(&tx->lock);
		__skb_queue_head_init(&tx->resend);
		tx->held = devm_kcalloc(&direct->pdev->dev, DIRECT_ENTRIES, sizeof(*tx->held),
					GFP_KERNEL);
		if (!tx->held)
			return -ENOMEM;
	}
	return 0;
}

/* Publishes the beacon, by which peers find their view of our RAM. */
static int publish_beacon(struct direct *direct)
{
	u64 nonce = get_random_u64() | 1;

	direct->beacon = (__le64 *)devm_get_free_pages(&direct->pdev->dev, GFP_KERNEL, 0);
	if (!direct->beacon)
		return -ENOMEM;
	direct->beacon[0] = cpu_to_le64(DIRECT_BEACON);
	direct->beacon[1] = cpu_to_le64(nonce);
	WRITE_ONCE(direct->self->beacon, cpu_to_le64(virt_to_phys(direct->beacon)));
	WRITE_ONCE(direct->self->nonce, cpu_to_le64(nonce));
	return 0;
}

static void init_netdev(struct net_device *dev)
{
	struct direct *direct = netdev_priv(dev);
	u8 mac[ETH_ALEN];

	ether_addr_copy(mac, direct->self->mac);
	if (is_valid_ether_addr(mac))
		eth_hw_addr_set(dev, mac);
	else
		eth_hw_addr_random(dev);
	dev->netdev_ops = &direct_netdev_ops;
	dev->ethtool_ops = &direct_ethtool_ops;
	dev->sysfs_groups[0] = &direct_peers_group;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_RXCSUM | NETIF_F_TSO |
			   NETIF_F_TSO_ECN | NETIF_F_TSO6;
	dev->features = dev->hw_features | NETIF_F_HIGHDMA;
	dev->vlan_features = dev->features;
	/* netpoll could interrupt any code here, and polls with a budget of 0. */
	dev->priv_flags |= IFF_DISABLE_NETPOLL;
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = ETH_MAX_MTU;
	/* No wire limits the MTU, so that what a program sends at once is one packet. */
	dev->mtu = ETH_MAX_MTU;
	direct->polling = DIRECT_NO_CPU;
	netif_napi_add(dev, &direct->napi, direct_poll);
}

static void unlist_window(struct direct *direct)
{
	mutex_lock(&direct_lock);
	list_del(&direct->list);
	mutex_unlock(&direct_lock);
	cancel_delayed_work_sync(&direct->session_work);
	WRITE_ONCE(direct->self->nonce, 0);
}

static int direct_window_probe(struct pci_dev *pdev)
{
	struct net_device *dev;
	struct direct *direct;
	int error;

	dev = alloc_etherdev_mqs(sizeof(*direct), DIRECT_MEMBERS, 1);
	if (!dev)
		return -ENOMEM;
	SET_NETDEV_DEV(dev, &pdev->dev);
	strscpy(dev->name, "direct%d", sizeof(dev->name));
	direct = netdev_priv(dev);
	direct->pdev = pdev;
	direct->dev = dev;
	INIT_DELAYED_WORK(&direct->session_work, direct_update_sessions);

	error = map_window(direct);
	if (error)
		goto free;
	error = init_peers(direct);
	if (error)
		goto free;
	init_netdev(dev);
	pci_set_master(pdev);
	error = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSIX);
	if (error < 0)
		goto free;
	error = publish_beacon(direct);
	if (error)
		goto vectors;
	pci_set_drvdata(pdev, direct);
	/* Before register_netdev(): an open device must be notified of removed views. */
	mutex_lock(&direct_lock);
	list_add(&direct->list, &direct_windows);
	mutex_unlock(&direct_lock);
	error = register_netdev(dev);
	if (error)
		goto list;
	return 0;
list:
	unlist_window(direct);
vectors:
	pci_free_irq_vectors(pdev);
free:
	free_netdev(dev);
	return error;
}

static void direct_window_remove(struct direct *direct)
{
	unregister_netdev(direct->dev);
	unlist_window(direct);
	pci_free_irq_vectors(direct->pdev);
	free_netdev(direct->dev);
}

/* Windows have interrupts, and views do not. */
static bool has_interrupts(const struct pci_dev *pdev)
{
	return pdev->msix_cap;
}

static int direct_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return has_interrupts(pdev) ? direct_window_probe(pdev) : direct_view_probe(pdev);
}

static void direct_remove(struct pci_dev *pdev)
{
	if (has_interrupts(pdev))
		direct_window_remove(pci_get_drvdata(pdev));
	else
		direct_view_remove(pci_get_drvdata(pdev));
}

static const struct pci_device_id direct_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, direct_ids);

static struct pci_driver direct_driver = {
	.name = DIRECT_NAME,
	.id_table = direct_ids,
	.probe = direct_probe,
	.remove = direct_remove,
};
module_pci_driver(direct_driver);

MODULE_DESCRIPTION("Ethernet between VMs of one host that see each other's memory");
MODULE_AUTHOR("The Vicinity authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(DIRECT_VERSION_TEXT);
