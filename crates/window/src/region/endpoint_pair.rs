//! The smallest region: one link, and a heap for each of its ends.

use rustix::io::Errno;

use super::{Region, RegionLayout};
use crate::layout::{LaneSize, Layout};
use crate::limits;
use crate::window::{Window, WindowError};

/// Creates a window in a region of its own: its creator is member 0, its attacher member 1.
///
/// # Errors
/// The kernel refuses.
pub fn endpoint_pair(link: Layout) -> Result<Window, WindowError> {
    // The control windows are not used, so they take no memory.
    let least = LaneSize {
        slots: *limits::SLOTS.start(),
        data: *limits::DATA.start(),
    };
    let region = Region::create(RegionLayout {
        members: 2,
        links: 1,
        units: *limits::UNITS.end(),
        control: Layout::new([least, least])?,
        link,
    })?;
    let window = region.link(0).ok_or(WindowError::Kernel(Errno::INVAL))?;
    window.write_header()?;
    Ok(window)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::lane::Record;
    use crate::region::UnitAllocator;
    use crate::window::Side;

    #[test]
    fn the_attacher_of_a_pair_finds_the_window_and_both_heaps() {
        let lane = LaneSize {
            slots: 64,
            data: 4096,
        };
        let window = endpoint_pair(Layout::new([lane, lane]).unwrap()).unwrap();
        let file = || window.as_fd().try_clone_to_owned().unwrap();
        let before = rustix::fs::fstat(file()).unwrap().st_blocks;
        assert!(
            before <= 2 * 8,
            "two pages with headers, not {before} blocks"
        );
        let guest = Window::attach(file(), window.offset()).unwrap();
        assert_eq!(guest.layout(), window.layout());
        let mut ours = window.ends(Side::Creator).unwrap();
        let mut theirs = guest.ends(Side::Attacher).unwrap();
        ours.producers[0].push(&Record {
            tag: 5,
            body: [7; 7],
        });
        assert_eq!(theirs.consumers[0].pop().unwrap().tag, 5);
        let region = Region::attach(file()).unwrap();
        for member in [0, 1] {
            let heap = region.heap(member).unwrap().unwrap();
            let mut all = heap
                .allocate(&UnitAllocator::in_process(), 64 << 20)
                .unwrap()
                .unwrap();
            all.write((64 << 20) - 1, &[1]).unwrap();
        }
        assert!(theirs.consumers[0].pop().is_none());
    }
}
