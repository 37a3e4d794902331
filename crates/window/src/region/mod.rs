//! Many windows in one memory: what VMs map as a BAR of their `ivshmem` device.
//!
//! ```text
//! 0      header (one page): magic, version, sizes; written once, before the region is shared
//!          @1024 a bit for each link that is in use, for a host that takes over
//! 4096   seats, one for each member:
//!          one page: opened @0, beat @128 and listens @132, written by the member; heard @256 and
//!          the NIC id @260, by the host
//!          its trunk: a window between the member and the host
//! ...    links: windows between two members, or a member and the host
//! ...    heaps, one for each member: see [`Heap`]
//! ```
//! All numbers are little endian. Only the host decides which link is whose. A member that begins,
//! or begins again, writes a number into *opened* that was not there before; the host makes the
//! trunk new and repeats the number in *heard*. *Beat* changes as long as the member lives.

mod endpoint_pair;
mod heap;
mod home;
mod layout;
mod list;
mod seat;
mod units;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use self::layout::{HEADER, PAGE};
use crate::layout::{Layout, LayoutError};
use crate::limits;
use crate::memfd;
use crate::raw::{Access, Foreign, Mapping, Word};
use crate::window::{Window, WindowError};

pub use self::endpoint_pair::pair;
pub use self::heap::{Heap, Place, Refused, Stretch};
pub use self::home::Home;
pub use self::layout::{MAGIC, RegionLayout, UNIT, VERSION};
pub use self::list::List;
pub use self::seat::Seat;

/// Where the bits of links in use are.
const MARKS: u64 = 1024;
const _: () = assert!(
    MARKS + *limits::LINKS.end() as u64 / 8 <= PAGE,
    "in the header's page"
);

/// Shared memory with many windows.
#[derive(Debug)]
pub struct Region {
    file: Arc<OwnedFd>,
    layout: RegionLayout,
    /// The seats' pages.
    head: Arc<Mapping>,
}

impl Region {
    /// Make one, empty. Its file is as long as a BAR has to be: a power of two.
    ///
    /// # Errors
    /// A size is out of bounds, or the kernel refuses.
    pub fn create(layout: RegionLayout) -> Result<Self, WindowError> {
        let layout = layout.check()?;
        let kernel = WindowError::Kernel;
        let length = layout.length().next_power_of_two();
        let file = memfd::create(c"vicinity-region", length).map_err(kernel)?;
        memfd::seal_shared(file.as_fd()).map_err(kernel)?;
        let region = Self::map(file, layout)?;
        region.renew()?;
        Ok(region)
    }

    /// Take over one that this host made before, whatever its members wrote into it since.
    ///
    /// # Errors
    /// It is not one of this layout, or the kernel refuses.
    pub fn adopt(file: OwnedFd, layout: RegionLayout) -> Result<Self, WindowError> {
        let layout = layout.check()?;
        let got = memfd::final_length(file.as_fd()).ok_or(WindowError::Unsealed)?;
        let expected = layout.length().next_power_of_two();
        if got != expected {
            return Err(WindowError::Length { got, expected });
        }
        let region = Self::map(file, layout)?;
        region.renew()?;
        Ok(region)
    }

    /// The host: note whether a link is in use. Members can write there too, and so deceive a host
    /// that takes over, about their own links.
    pub fn mark(&self, link: u32, used: bool) {
        if let Some((word, bit)) = self.marks(link) {
            let others = word.load() & !bit;
            word.store(if used { others | bit } else { others });
        }
    }

    /// Whether a link is noted as in use.
    #[must_use]
    pub fn is_marked(&self, link: u32) -> bool {
        self.marks(link)
            .is_some_and(|(word, bit)| word.load() & bit != 0)
    }

    /// The word with a link's bit, and the bit.
    fn marks(&self, link: u32) -> Option<(Word, u32)> {
        (link < self.layout.links).then_some(())?;
        let word = Word::new(&self.head, MARKS + u64::from(link / 32) * 4)?;
        Some((word, 1 << (link % 32)))
    }

    /// Write its header, which members may have overwritten.
    ///
    /// # Errors
    /// None, where the region was [created](Self::create).
    pub fn renew(&self) -> Result<(), WindowError> {
        let header = Foreign::new(&self.head, 0, PAGE, Access::ReadWrite);
        header
            .and_then(|page| page.write(0, &self.layout.header()))
            .ok_or(WindowError::Kernel(Errno::INVAL))
    }

    /// Use one that the host made: a sealed memfd, or a BAR. Checks length and header.
    ///
    /// # Errors
    /// See [`WindowError`].
    pub fn attach(file: OwnedFd) -> Result<Self, WindowError> {
        let got = memfd::final_length(file.as_fd()).ok_or(WindowError::Unsealed)?;
        if got < PAGE {
            return Err(LayoutError::Magic.into());
        }
        let page = Mapping::new(file.as_fd(), 0, PAGE, Access::Read);
        let page = Arc::new(page.map_err(WindowError::Kernel)?);
        let mut header = [0; HEADER];
        Foreign::new(&page, 0, PAGE, Access::Read)
            .and_then(|page| page.read(0, &mut header))
            .ok_or(WindowError::Kernel(Errno::INVAL))?;
        let layout = RegionLayout::from_header(&header)?;
        let expected = layout.length();
        if got < expected {
            return Err(WindowError::Length { got, expected });
        }
        Self::map(file, layout)
    }

    fn map(file: OwnedFd, layout: RegionLayout) -> Result<Self, WindowError> {
        let head = Mapping::new(file.as_fd(), 0, layout.link_at(0), Access::ReadWrite);
        let head = Arc::new(head.map_err(WindowError::Kernel)?);
        let file = Arc::new(file);
        Ok(Self { file, layout, head })
    }

    /// Its sizes.
    #[must_use]
    pub fn layout(&self) -> RegionLayout {
        self.layout
    }

    /// The words of a seat; `None` when there is no such seat.
    #[must_use]
    pub fn seat(&self, seat: u32) -> Option<Seat> {
        (seat < self.layout.seats).then_some(())?;
        Seat::new(&self.head, self.layout.seat(seat))
    }

    /// The trunk of a seat; `None` when there is no such seat.
    #[must_use]
    pub fn trunk(&self, seat: u32) -> Option<Window> {
        let at = self.layout.trunk_at(seat);
        (seat < self.layout.seats).then(|| self.window(at, self.layout.trunk))
    }

    /// A link; `None` when there is no such link.
    #[must_use]
    pub fn link(&self, link: u32) -> Option<Window> {
        let at = self.layout.link_at(link);
        (link < self.layout.links).then(|| self.window(at, self.layout.link))
    }

    /// The heap of a seat; `None` when there is no such seat, or it has no heap.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn heap(&self, seat: u32) -> Result<Option<Heap>, Errno> {
        if seat >= self.layout.seats || self.layout.units == 0 {
            return Ok(None);
        }
        let (at, length) = (self.layout.heap_at(seat), self.layout.heap_length());
        let mapping = Mapping::new(self.file.as_fd(), at, length, Access::ReadWrite)?;
        let home = Home::new(self.as_fd(), seat)?;
        Ok(Heap::new(mapping, self.layout.units, home))
    }

    /// The host: give back the memory of a link that nobody uses. It is all zeros then, and takes memory
    /// again when somebody writes there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn empty(&self, link: u32) -> Result<(), Errno> {
        if link >= self.layout.links {
            return Err(Errno::INVAL);
        }
        let (at, length) = (self.layout.link_at(link), self.layout.link.length());
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // syscalls: fallocate
        fallocate(&self.file, flags, at, length)
    }

    fn window(&self, at: u64, layout: Layout) -> Window {
        Window::at(Arc::clone(&self.file), at, layout)
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Record;
    use crate::layout::LaneSize;
    use crate::window::Side;

    fn layout() -> RegionLayout {
        let lane = LaneSize {
            slots: 8,
            data: 4096,
        };
        let window = Layout::new([lane, lane]).unwrap();
        RegionLayout {
            seats: 3,
            links: 5,
            units: 2,
            trunk: window,
            link: window,
        }
    }

    #[test]
    fn windows_of_a_region_are_apart() {
        let region = Region::create(layout()).unwrap();
        let file = region.as_fd().try_clone_to_owned().unwrap();
        let member = Region::attach(file).unwrap();
        assert_eq!(member.layout(), layout());
        let mut windows = Vec::new();
        for at in 0..3 {
            windows.push((region.trunk(at).unwrap(), member.trunk(at).unwrap()));
        }
        for at in 0..5 {
            windows.push((region.link(at).unwrap(), member.link(at).unwrap()));
        }
        let mut ends = Vec::new();
        for (ours, theirs) in &windows {
            ours.renew().unwrap();
            let ours = ours.ends(Side::Creator).unwrap();
            ends.push((ours, theirs.ends(Side::Guest).unwrap()));
        }
        for (tag, (ours, _)) in (0..).zip(&mut ends) {
            ours.producers[0].push(&Record { tag, body: [7; 7] });
        }
        for (tag, (_, theirs)) in (0..).zip(&mut ends) {
            assert_eq!(theirs.consumers[0].pop().unwrap().tag, tag);
            assert!(theirs.consumers[0].pop().is_none());
        }
        let seat = region.seat(2).unwrap();
        member.seat(2).unwrap().open(9);
        assert_eq!(seat.opened(), 9);
        seat.hear(9);
        assert_eq!(member.seat(2).unwrap().heard(), 9);
        assert!(region.seat(3).is_none() && region.trunk(3).is_none());
        assert!(region.link(5).is_none());
    }

    #[test]
    fn a_window_made_new_has_no_old_records() {
        let region = Region::create(layout()).unwrap();
        let window = region.link(1).unwrap();
        window.renew().unwrap();
        let mut ends = window.ends(Side::Creator).unwrap();
        ends.producers[0].push(&Record::default());
        window.renew().unwrap();
        let mut ends = window.ends(Side::Guest).unwrap();
        assert!(ends.consumers[0].pop().is_none());
    }

    #[test]
    fn an_emptied_link_takes_no_memory_and_can_be_used_again() {
        let region = Region::create(layout()).unwrap();
        let blocks = || rustix::fs::fstat(region.as_fd()).unwrap().st_blocks;
        let before = blocks();
        let windows = [1, 2].map(|link| region.link(link).unwrap());
        for window in &windows {
            window.renew().unwrap();
            let mut ends = window.ends(Side::Creator).unwrap();
            ends.producers[0].push(&Record::default());
        }
        let used = (blocks() - before) / 2;
        assert!(used > 0);
        region.empty(1).unwrap();
        assert_eq!(blocks(), before + used, "the other link's");
        let [emptied, other] = &windows;
        let has_record = |window: &Window| {
            let ends = window.ends(Side::Guest).unwrap();
            ends.consumers[0].has_record()
        };
        assert!(has_record(other));
        emptied.renew().unwrap();
        assert!(!has_record(emptied));
        assert!(region.empty(5).is_err());
    }

    #[test]
    fn whoever_takes_over_finds_the_marks_and_trusts_nothing_else() {
        let region = Region::create(layout()).unwrap();
        region.mark(1, true);
        region.mark(4, true);
        region.mark(1, false);
        // Nothing behind the last one.
        region.mark(5, true);
        let file = || region.as_fd().try_clone_to_owned().unwrap();
        let page = Foreign::new(&region.head, 0, PAGE, Access::ReadWrite).unwrap();
        page.write(0, &[0xff; HEADER]).unwrap();
        let next = Region::adopt(file(), layout()).unwrap();
        let marked: Vec<_> = (0..6).filter(|link| next.is_marked(*link)).collect();
        assert_eq!(marked, [4]);
        assert_eq!(Region::attach(file()).unwrap().layout(), layout());
        let mut larger = layout();
        larger.links = 4096;
        let refused = Region::adopt(file(), larger).unwrap_err();
        assert!(matches!(refused, WindowError::Length { .. }));
    }

    #[test]
    fn what_is_no_region_is_refused() {
        let refused = |write: &[u8], length| {
            let file = memfd::create(c"x", length).unwrap();
            rustix::io::pwrite(&file, write, 0).unwrap();
            Region::attach(file).unwrap_err()
        };
        let magic = WindowError::Layout(LayoutError::Magic);
        assert_eq!(refused(&[0; 64], 1 << 20), magic);
        assert_eq!(refused(&[0], 1), magic);
        let header = layout().header();
        assert!(matches!(
            refused(&header, 8192),
            WindowError::Length { got: 8192, .. }
        ));
        let mut other = header;
        other[12] = 0;
        let seats = WindowError::Layout(LayoutError::Seats(0));
        assert_eq!(refused(&other, 1 << 24), seats);
    }
}
