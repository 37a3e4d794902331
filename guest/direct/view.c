// SPDX-License-Identifier: GPL-2.0-only
/*
 * Views: ivshmem-plain devices. Such a device does not say whose RAM it contains. A beacon does: a
 * page of the peer's RAM with a nonce, of which the peer has written address and nonce into the
 * window. A beacon at the offset that follows from the peer's ranges also proves the ranges.
 */
#include "direct.h"

LIST_HEAD(direct_views);

static bool has_beacon(const struct direct_view *view, u64 offset, __le64 nonce)
{
	__le64 found[2];

	if (offset > view->size || sizeof(found) > view->size - offset)
		return false;
	memcpy(found, view->memory + offset, sizeof(found));
	return le64_to_cpu(found[0]) == DIRECT_BEACON && found[1] == nonce;
}

/* Returns the view of a member's RAM, or NULL. */
struct direct_view *direct_view_of(struct direct_member *member, struct direct_ram *ram)
{
	u64 beacon = le64_to_cpu(READ_ONCE(member->beacon));
	__le64 nonce = READ_ONCE(member->nonce);
	struct direct_view *view;
	u64 offset;

	if (!nonce || !direct_ram_read(ram, member) ||
	    !direct_ram_offset(ram, beacon, sizeof(__le64[2]), &offset))
		return NULL;
	list_for_each_entry(view, &direct_views, list)
		if (has_beacon(view, offset, nonce))
			return view;
	return NULL;
}

int direct_view_probe(struct pci_dev *pdev)
{
	struct direct_view *view;
	struct direct *direct;
	int error;

	view = devm_kzalloc(&pdev->dev, sizeof(*view), GFP_KERNEL);
	if (!view)
		return -ENOMEM;
	error = pcim_enable_device(pdev);
	if (error)
		return error;
	view->pdev = pdev;
	view->size = pci_resource_len(pdev, DIRECT_MEMORY_BAR);
	view->memory = direct_map_memory(pdev);
	if (IS_ERR(view->memory))
		return PTR_ERR(view->memory);
	pci_set_drvdata(pdev, view);

	mutex_lock(&direct_lock);
	list_add(&view->list, &direct_views);
	list_for_each_entry(direct, &direct_windows, list)
		direct_schedule_update(direct);
	mutex_unlock(&direct_lock);
	return 0;
}

/* After this returns, no session reads from the view. */
void direct_view_remove(struct direct_view *view)
{
	mutex_lock(&direct_lock);
	list_del(&view->list);
	direct_end_view_sessions(view);
	mutex_unlock(&direct_lock);
}
