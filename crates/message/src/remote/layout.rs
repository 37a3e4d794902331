//! The layout of a region: its trunks, links and heaps.

use window::WindowError;
use window::layout::{LaneSize, Layout};
use window::region::RegionLayout;

use super::limits::LINKS;
use crate::connect;

/// The trunk's lanes. Only the first is used.
pub(super) const TRUNK: [LaneSize; 2] = [
    LaneSize {
        slots: 64,
        data: 4096,
    },
    LaneSize {
        slots: 8,
        data: 4096,
    },
];

/// Bytes of a region that members share. What trunks and links leave is for their heaps.
const SHARED: u64 = 128 << 20;

/// The region of a member, or of a group of so many.
pub(super) fn region_layout(seats: u32) -> Result<RegionLayout, WindowError> {
    let layout = RegionLayout {
        seats,
        links: LINKS,
        units: 0,
        trunk: Layout::new(TRUNK)?,
        link: connect::layout()?,
    };
    // Alone with the host, nobody would read it.
    Ok(match seats {
        ..=1 => layout,
        _ => layout.filled(SHARED),
    })
}
