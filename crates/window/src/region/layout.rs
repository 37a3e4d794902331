//! Where everything in a region lies, and the header that says so.

use crate::header;
use crate::layout::{LaneSize, Layout, LayoutError};
use crate::limits;

/// The first eight bytes of a region.
pub const MAGIC: u64 = u64::from_le_bytes(*b"vicregio");

/// Version of the layout of a region.
pub const VERSION: u32 = 1;

pub(super) const PAGE: u64 = 4096;

/// Bytes of the header that mean something.
pub(super) const HEADER: usize = 52;

/// The sizes of a region, checked. Everything else follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLayout {
    /// Members it has room for; within [`limits::SEATS`].
    pub seats: u32,
    /// Windows it has room for beside the trunks; within [`limits::LINKS`].
    pub links: u32,
    /// The window of a seat.
    pub trunk: Layout,
    /// Every other window.
    pub link: Layout,
}

impl RegionLayout {
    pub(super) fn check(self) -> Result<Self, LayoutError> {
        if !limits::SEATS.contains(&self.seats) {
            return Err(LayoutError::Seats(self.seats));
        }
        if !limits::LINKS.contains(&self.links) {
            return Err(LayoutError::Links(self.links));
        }
        Ok(self)
    }

    pub(super) fn header(&self) -> [u8; HEADER] {
        let sizes = [self.trunk, self.link].map(|layout| layout.lanes());
        let sizes = sizes.as_flattened().iter();
        let sizes = sizes.flat_map(|lane| [lane.slots, lane.data]);
        let words = [self.seats, self.links].into_iter().chain(sizes);
        header::encode(MAGIC, VERSION, words)
    }

    pub(super) fn from_header(bytes: &[u8; HEADER]) -> Result<Self, LayoutError> {
        let mut word = header::decode(bytes, MAGIC, VERSION)?;
        let (seats, links) = (word(), word());
        let mut lane = || LaneSize {
            slots: word(),
            data: word(),
        };
        let layout = Self {
            seats,
            links,
            trunk: Layout::new([lane(), lane()])?,
            link: Layout::new([lane(), lane()])?,
        };
        layout.check()
    }

    pub(super) fn seat(&self, seat: u32) -> u64 {
        PAGE + u64::from(seat) * (PAGE + self.trunk.length())
    }

    /// Where the trunk of a seat begins, in bytes from the start of the region.
    #[must_use]
    pub fn trunk_at(&self, seat: u32) -> u64 {
        self.seat(seat) + PAGE
    }

    /// Where a link begins, in bytes from the start of the region.
    #[must_use]
    pub fn link_at(&self, link: u32) -> u64 {
        self.seat(self.seats) + u64::from(link) * self.link.length()
    }

    /// Bytes that are used.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.link_at(self.links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_header_is_answered_and_a_good_one_stays(bytes: [u8; HEADER]) {
            if let Ok(layout) = RegionLayout::from_header(&bytes) {
                prop_assert_eq!(RegionLayout::from_header(&layout.header()), Ok(layout));
            }
        }
    }
}
