//! The layout of a region, and the header that describes it.

use crate::header;
use crate::layout::{LaneSize, Layout, LayoutError};
use crate::limits;

/// The first eight bytes of a region.
pub const MAGIC: u64 = u64::from_le_bytes(*b"vicregio");

/// Version of the layout of a region.
pub const VERSION: u32 = 3;

pub(super) const PAGE: u64 = 4096;

/// Bytes of a heap's unit, the granularity of allocation.
pub const UNIT: u64 = 64 << 10;

/// Bytes of the header that are used.
pub(super) const HEADER: usize = 56;

/// The sizes of a region, checked. All offsets follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLayout {
    /// Number of members; within [`limits::MEMBERS`].
    pub members: u32,
    /// Number of links; within [`limits::LINKS`].
    pub links: u32,
    /// Units of each member's heap; within [`limits::UNITS`]. 0 where no other member could read
    /// it.
    pub units: u32,
    /// The layout of each control window.
    pub control: Layout,
    /// The layout of each link.
    pub link: Layout,
}

impl RegionLayout {
    pub(super) fn check(self) -> Result<Self, LayoutError> {
        if !limits::MEMBERS.contains(&self.members) {
            return Err(LayoutError::Members(self.members));
        }
        if !limits::LINKS.contains(&self.links) {
            return Err(LayoutError::Links(self.links));
        }
        if !limits::UNITS.contains(&self.units) {
            return Err(LayoutError::Units(self.units));
        }
        Ok(self)
    }

    pub(super) fn header(&self) -> [u8; HEADER] {
        let sizes = [self.control, self.link].map(|layout| layout.lanes());
        let sizes = sizes.as_flattened().iter();
        let sizes = sizes.flat_map(|lane| [lane.slots, lane.data]);
        let words = [self.members, self.links, self.units];
        let words = words.into_iter().chain(sizes);
        header::encode(MAGIC, VERSION, words)
    }

    pub(super) fn from_header(bytes: &[u8; HEADER]) -> Result<Self, LayoutError> {
        let mut word = header::decode(bytes, MAGIC, VERSION)?;
        let (members, links, units) = (word(), word(), word());
        let mut lane = || LaneSize {
            slots: word(),
            data: word(),
        };
        let layout = Self {
            members,
            links,
            units,
            control: Layout::new([lane(), lane()])?,
            link: Layout::new([lane(), lane()])?,
        };
        layout.check()
    }

    pub(super) fn page_at(&self, member: u32) -> u64 {
        PAGE + u64::from(member) * (PAGE + self.control.length())
    }

    /// Returns the offset of a member's control window in the region, in bytes.
    #[must_use]
    pub fn control_at(&self, member: u32) -> u64 {
        self.page_at(member) + PAGE
    }

    /// Returns the offset of a link in the region, in bytes.
    #[must_use]
    pub fn link_at(&self, link: u32) -> u64 {
        self.page_at(self.members) + u64::from(link) * self.link.length()
    }

    /// Returns the offset of a member's heap: a page of generations, then the units.
    #[must_use]
    pub fn heap_at(&self, member: u32) -> u64 {
        self.link_at(self.links) + u64::from(member) * self.heap_length()
    }

    pub(super) fn heap_length(&self) -> u64 {
        match self.units {
            0 => 0,
            units => PAGE + u64::from(units) * UNIT,
        }
    }

    /// Returns this layout with the largest heaps that fit into a region of `length` bytes.
    #[must_use]
    pub fn filled(self, length: u64) -> Self {
        let without = Self { units: 0, ..self };
        let each = length.saturating_sub(without.length()) / u64::from(self.members.max(1));
        let units = u32::try_from(each.saturating_sub(PAGE) / UNIT).unwrap_or(u32::MAX);
        let units = units.min(*limits::UNITS.end());
        Self { units, ..self }
    }

    /// Returns the number of used bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.heap_at(self.members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A valid header with up to three bytes changed is refused, or decodes to a layout that
    /// encodes to the same header.
    #[test]
    fn any_header_is_decoded_or_refused() {
        use std::cell::Cell;
        let lanes = || {
            let lane = |(slots, data): (u32, u32)| LaneSize {
                slots: 1 << slots,
                data: 1 << data,
            };
            let lane = || (3u32..=6, 12u32..=16).prop_map(lane);
            (lane(), lane()).prop_map(|(one, other)| Layout::new([one, other]).unwrap())
        };
        let good = (1u32..=64, 1u32..=64, 0u32..=64, lanes(), lanes());
        let changes = prop::collection::vec((0..HEADER, prop_oneof![0..25u8, any::<u8>()]), 0..4);
        let [read, refused] = [Cell::new(0), Cell::new(0)];
        let mut runner = proptest::test_runner::TestRunner::default();
        let checked = runner.run(&(good, changes), |(good, changes)| {
            let (members, links, units, control, link) = good;
            let layout = RegionLayout {
                members,
                links,
                units,
                control,
                link,
            };
            let mut header = layout.header();
            if changes.is_empty() {
                prop_assert_eq!(RegionLayout::from_header(&header), Ok(layout));
            }
            for (at, byte) in changes {
                header[at] = byte;
            }
            let count = match RegionLayout::from_header(&header) {
                Ok(layout) => {
                    prop_assert_eq!(RegionLayout::from_header(&layout.header()), Ok(layout));
                    &read
                }
                Err(_) => &refused,
            };
            count.set(count.get() + 1);
            Ok(())
        });
        checked.unwrap();
        let counts = (read.get(), refused.get());
        assert!(counts.0 > 20 && counts.1 > 20, "{counts:?}");
    }

    proptest! {
        #[test]
        fn heaps_fill_a_region_and_fit(members in 1u32..=64, length in 1u64 << 20..1 << 33) {
            let lane = LaneSize { slots: 8, data: 4096 };
            let window = Layout::new([lane, lane]).unwrap();
            let layout = RegionLayout { members, links: 3, units: 9, control: window, link: window };
            let filled = layout.filled(length).check().unwrap();
            let empty = RegionLayout { units: 0, ..layout };
            prop_assert!(filled.length() <= length.max(empty.length()));
            let more = RegionLayout { units: filled.units + 1, ..layout };
            prop_assert!(more.length() > length || filled.units == *limits::UNITS.end());
        }
    }
}
