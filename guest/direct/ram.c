// SPDX-License-Identifier: GPL-2.0-only
/* Converts guest-physical addresses to offsets in a view. */
#include <linux/overflow.h>

#include "direct.h"

/* Copies a member's ranges. Returns false if they are invalid. */
bool direct_ram_read(struct direct_ram *ram, const struct direct_member *member)
{
	u32 count = direct_read32(&member->ranges);
	u64 end;
	u32 i;

	if (!count || count > DIRECT_RANGES)
		return false;
	for (i = 0; i < count; i++) {
		const struct direct_range *range = &member->range[i];

		ram->range[i].start = le64_to_cpu(READ_ONCE(range->start));
		ram->range[i].length = le64_to_cpu(READ_ONCE(range->length));
		ram->range[i].offset = le64_to_cpu(READ_ONCE(range->offset));
		if (check_add_overflow(ram->range[i].start, ram->range[i].length, &end) ||
		    check_add_overflow(ram->range[i].offset, ram->range[i].length, &end))
			return false;
	}
	ram->count = count;
	return true;
}

/* Computes the offset of memory in a view. Returns false unless one range contains all of it. */
bool direct_ram_offset(const struct direct_ram *ram, u64 start, u32 length, u64 *offset)
{
	u32 i;

	for (i = 0; i < ram->count; i++) {
		u64 before = start - ram->range[i].start;

		if (start < ram->range[i].start || before > ram->range[i].length)
			continue;
		if (length > ram->range[i].length - before)
			continue;
		/* The sum cannot overflow: offset + length of the range did not. */
		*offset = ram->range[i].offset + before;
		return true;
	}
	return false;
}
