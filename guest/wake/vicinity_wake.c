// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hands an ivshmem-doorbell device to programs: its interrupts, its memory and its registers.
 *
 * Interrupts come by the kernel's UIO: a read of /dev/uioN sleeps until there was one. The device
 * has MSI-X interrupts only, and those uio_pci_generic does not take.
 *
 * Memory comes by the file `memory` in the device's folder in sysfs. It replaces `resource2`, which
 * the kernel maps uncached (UC-, see pci_mmap_resource_range()). A hypervisor may ignore that, and
 * KVM on Intel processors usually does; on AMD processors it does not, and then each load is a bus
 * transaction, and each locked instruction stops every processor of the host. So the pages of the
 * BAR get a struct page each, as other drivers of shared memory do it (devm_memremap_pages()), and
 * programs map those pages write-back like any memory.
 *
 * The kernel takes write-back from a range that the MTRRs call uncached, and firmware calls so all
 * that lies between RAM and 4 GiB. So a BAR that firmware put there moves above 4 GiB first.
 *
 * Registers come by the file `registers`, uncached, as `resource0` would be: a kernel that is
 * locked down (Secure Boot) lets no program map resource files.
 *
 * Other ivshmem devices of a VM have other users, so the driver takes none by its ids. A program
 * names this driver in the device's driver_override.
 */
#include <linux/interrupt.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sizes.h>
#include <linux/sysfs.h>
#include <linux/uio_driver.h>
#include <linux/version.h>

#define NAME "vicinity_wake"

#define REGISTERS_BAR	0
#define MEMORY_BAR	2

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define ATTRIBUTE	const struct bin_attribute
#else
#define ATTRIBUTE	struct bin_attribute
#endif

struct wake {
	struct uio_info uio;
	struct dev_pagemap pages;
	struct bin_attribute memory;
	struct bin_attribute registers;
	struct bin_attribute *files[3];
	struct attribute_group group;
};

static irqreturn_t wake_interrupt(int irq, struct uio_info *info)
{
	/* MSI-X is not shared: the device has no status to read or to acknowledge. */
	return IRQ_HANDLED;
}

/* Whether this is a shared mapping inside of the file. */
static bool is_within(struct vm_area_struct *vma, size_t size)
{
	unsigned long pages = size >> PAGE_SHIFT;

	return vma->vm_flags & VM_SHARED && vma->vm_pgoff <= pages &&
	       vma_pages(vma) <= pages - vma->vm_pgoff;
}

/*
 * Map all pages at once: sysfs, which calls this, allows no faults. When the file goes, sysfs takes
 * the pages back from every mapping first, and an access is a SIGBUS from then on.
 */
static int map_memory(struct file *file, struct kobject *kobject, ATTRIBUTE *attribute,
		      struct vm_area_struct *vma)
{
	const struct wake *wake = attribute->private;
	unsigned long pfn = PHYS_PFN(wake->pages.range.start) + vma->vm_pgoff;
	unsigned long address;
	int error;

	if (!is_within(vma, attribute->size))
		return -EINVAL;
	/* A guest's key (SEV) encrypts no memory of the host: as io_remap_pfn_range() does it. */
	vma->vm_page_prot = pgprot_decrypted(vma->vm_page_prot);
	for (address = vma->vm_start; address < vma->vm_end; address += PAGE_SIZE, pfn++) {
		error = vm_insert_page(vma, address, pfn_to_page(pfn));
		if (error)
			return error;
	}
	return 0;
}

static int map_registers(struct file *file, struct kobject *kobject, ATTRIBUTE *attribute,
			 struct vm_area_struct *vma)
{
	struct pci_dev *device = to_pci_dev(kobj_to_dev(kobject));

	if (!is_within(vma, PAGE_ALIGN(attribute->size)))
		return -EINVAL;
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	return vm_iomap_memory(vma, pci_resource_start(device, REGISTERS_BAR), attribute->size);
}

/* Linux looks for room above 4 GiB first when it places a 64-bit BAR. */
static void move_above_4g(struct pci_dev *device)
{
	if (pci_resource_start(device, MEMORY_BAR) >= SZ_4G ||
	    !(pci_resource_flags(device, MEMORY_BAR) & IORESOURCE_MEM_64))
		return;
	pci_release_resource(device, MEMORY_BAR);
	if (pci_assign_resource(device, MEMORY_BAR))
		pci_warn(device, "there is no room for the memory above 4 GiB\n");
}

/* Without these pages, programs use `resource2`, which is slow on some hosts, but right. */
static int make_pages(struct pci_dev *device, struct wake *wake)
{
	struct dev_pagemap *pages = &wake->pages;
	void *address;

	pages->type = MEMORY_DEVICE_GENERIC;
	pages->nr_range = 1;
	pages->range.start = pci_resource_start(device, MEMORY_BAR);
	pages->range.end = pci_resource_end(device, MEMORY_BAR);
	address = devm_memremap_pages(&device->dev, pages);
	if (IS_ERR(address))
		pci_warn(device, "no write-back mapping of the memory: error %ld\n",
			 PTR_ERR(address));
	return PTR_ERR_OR_ZERO(address);
}

static void init_file(struct wake *wake, struct bin_attribute *file, const char *name, size_t size)
{
	sysfs_bin_attr_init(file);
	file->attr.name = name;
	file->attr.mode = 0600;
	file->size = size;
	file->private = wake;
}

static int add_files(struct pci_dev *device, struct wake *wake)
{
	struct bin_attribute **file = wake->files;

	init_file(wake, &wake->registers, "registers", pci_resource_len(device, REGISTERS_BAR));
	wake->registers.mmap = map_registers;
	*file++ = &wake->registers;
	if (!make_pages(device, wake)) {
		init_file(wake, &wake->memory, "memory", pci_resource_len(device, MEMORY_BAR));
		wake->memory.mmap = map_memory;
		*file = &wake->memory;
	}
	wake->group.bin_attrs = wake->files;
	return devm_device_add_group(&device->dev, &wake->group);
}

static int wake_probe(struct pci_dev *device, const struct pci_device_id *id)
{
	struct wake *wake;
	int error;

	/* An ivshmem-plain device has no interrupts, and is not for this driver. */
	if (!device->msix_cap)
		return -ENODEV;
	wake = devm_kzalloc(&device->dev, sizeof(*wake), GFP_KERNEL);
	if (!wake)
		return -ENOMEM;
	move_above_4g(device);
	/* Managed resources end in reverse order: UIO device, files, pages, vectors, device. */
	error = pcim_enable_device(device);
	if (error)
		return error;
	pci_set_master(device);
	error = pci_alloc_irq_vectors(device, 1, 1, PCI_IRQ_MSIX);
	if (error < 0)
		return error;
	error = add_files(device, wake);
	if (error)
		return error;
	wake->uio.name = NAME;
	wake->uio.version = "0.1.0";
	wake->uio.irq = pci_irq_vector(device, 0);
	wake->uio.handler = wake_interrupt;
	return devm_uio_register_device(&device->dev, &wake->uio);
}

static struct pci_driver wake_driver = {
	.name = NAME,
	.probe = wake_probe,
};
module_pci_driver(wake_driver);

MODULE_DESCRIPTION("Interrupts and memory of ivshmem-doorbell devices for programs");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
