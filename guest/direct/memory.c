// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of ivshmem devices, mapped like RAM.
 *
 * The kernel maps a BAR write-back only where the MTRRs allow it, and maps it uncached elsewhere
 * without an error (pat_x_mtrr_type()). Firmware programs the MTRRs so that everything between RAM
 * and 4 GiB is uncached. TCG, and KVM on most Intel processors, ignore the memory type that the
 * guest's kernel chose. KVM on AMD processors obeys: then each load is a transaction on the bus.
 * The host plugs in devices while the VM runs, and Linux places those above 4 GiB if it can;
 * firmware may have placed others below. So the driver checks the mapping, and warns if it is
 * uncached.
 */
#include <linux/io.h>
#include <linux/pci.h>

#ifdef CONFIG_X86
#include <linux/pgtable.h>
#endif

#include "direct.h"

#ifdef CONFIG_X86
/* Of the page attribute table's entries that Linux uses, only write-back has neither bit. */
static bool is_write_back(const void *memory)
{
	unsigned int level;
	const pte_t *entry = lookup_address((unsigned long)memory, &level);

	return entry && !(pte_flags(*entry) & (_PAGE_PCD | _PAGE_PWT));
}
#else
static bool is_write_back(const void *memory)
{
	return true;
}
#endif

/* Map the memory of an enabled device; the mapping ends with the driver. */
void *direct_map_memory(struct pci_dev *pdev)
{
	void *memory = devm_memremap(&pdev->dev, pci_resource_start(pdev, DIRECT_MEMORY_BAR),
				     pci_resource_len(pdev, DIRECT_MEMORY_BAR), MEMREMAP_WB);

	if (!IS_ERR(memory) && !is_write_back(memory))
		pci_warn(pdev, "the memory is mapped uncached: slow where the processor obeys (KVM on AMD). Plug the device in while the VM runs, or start the VM with OVMF or with more than 4 GiB of RAM\n");
	return memory;
}
