// SPDX-License-Identifier: GPL-2.0-only
/*
 * Passes the interrupts of an ivshmem-doorbell device to a program through UIO: a read of /dev/uioN
 * sleeps until the next interrupt. The device has MSI-X interrupts only, which uio_pci_generic does
 * not support. This driver does not use registers and memory: programs map them from the device's
 * files in sysfs.
 *
 * Other ivshmem devices of a VM have other drivers, so this driver has no id table. A program
 * writes the name of this driver into the device's driver_override.
 */
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/uio_driver.h>

#define NAME "vicinity_wake"

static irqreturn_t wake_interrupt(int irq, struct uio_info *info)
{
	/* MSI-X is not shared: the device has no status to read or to acknowledge. */
	return IRQ_HANDLED;
}

static int wake_probe(struct pci_dev *device, const struct pci_device_id *id)
{
	struct uio_info *info;
	int error;

	info = devm_kzalloc(&device->dev, sizeof(*info), GFP_KERNEL);
	if (!info)
		return -ENOMEM;
	/* devres releases in reverse order: the UIO device, then the vectors, then the device. */
	error = pcim_enable_device(device);
	if (error)
		return error;
	pci_set_master(device);
	error = pci_alloc_irq_vectors(device, 1, 1, PCI_IRQ_MSIX);
	if (error < 0)
		return error;
	info->name = NAME;
	info->version = "0.1.0";
	info->irq = pci_irq_vector(device, 0);
	info->handler = wake_interrupt;
	return devm_uio_register_device(&device->dev, info);
}

static struct pci_driver wake_driver = {
	.name = NAME,
	.probe = wake_probe,
};
module_pci_driver(wake_driver);

MODULE_DESCRIPTION("Interrupts of ivshmem-doorbell devices for programs");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
