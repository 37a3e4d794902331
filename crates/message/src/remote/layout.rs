//! The layout of a region: its control windows, links and heaps.

use window::WindowError;
use window::layout::{LaneSize, Layout};
use window::region::RegionLayout;

use super::limits::LINKS;
use crate::connect;

/// The lanes of a control window. Only the first is used.
pub(super) const CONTROL_LANES: [LaneSize; 2] = [
    LaneSize {
        slots: 64,
        data: 4096,
    },
    LaneSize {
        slots: 8,
        data: 4096,
    },
];

/// Bytes of a region that members share. The part behind control windows and links is for their
/// heaps.
const SHARED: u64 = 128 << 20;

/// Returns the layout of the region of a member, or of a group of `members`.
pub(super) fn region_layout(members: u32) -> Result<RegionLayout, WindowError> {
    let layout = RegionLayout {
        members,
        links: LINKS,
        units: 0,
        control: Layout::new(CONTROL_LANES)?,
        link: connect::layout()?,
    };
    // A single member needs no heap: no other could read it.
    Ok(match members {
        ..=1 => layout,
        _ => layout.filled(SHARED),
    })
}
