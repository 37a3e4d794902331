//! A region: many windows in one shared memory, which VMs map as the BAR of their `ivshmem` device.
//!
//! ```text
//! 0      header (one page): magic, version, sizes; written once, before the region is shared
//!          @1024 a bit for each link that is in use, for a host that takes over
//! 4096   for each member:
//!          its page: join number @0, heartbeat @128, interruptible @132 and polling @136, written by
//!          the member;
//!          joined number @256 and NIC id @260, written by the host
//!          its control window, between the member and the host
//! ...    links: windows between two members, or between a member and the host
//! ...    heaps, one for each member: see [`Heap`]
//! ```
//! All numbers are little endian. Only the host decides which link belongs to which members. A
//! member that joins, or joins again, writes a new number into its *join number*; the host resets
//! the control window and writes the same number into the *joined number*. The *heartbeat* changes
//! as long as the member's gateway runs.

mod endpoint_pair;
mod heap;
mod heap_owner;
mod layout;
mod member_page;
mod one_sided;
mod unit_allocator;
mod units;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use self::layout::{HEADER, PAGE};
use crate::layout::{Layout, LayoutError};
use crate::limits;
use crate::memfd;
use crate::raw::{Access, Mapping, SharedBytes, Word};
use crate::window::{Window, WindowError};

pub use self::endpoint_pair::endpoint_pair;
pub use self::heap::{AccessError, Heap, HeapAddress, SharedBuffer};
pub use self::heap_owner::HeapOwner;
pub use self::layout::{MAGIC, RegionLayout, UNIT, VERSION};
pub use self::member_page::MemberPage;
pub use self::one_sided::{Atomic, Width};
pub use self::unit_allocator::UnitAllocator;

/// Offset of the bitmap of links in use.
const IN_USE_BITMAP: u64 = 1024;
const _: () = assert!(
    IN_USE_BITMAP + *limits::LINKS.end() as u64 / 8 <= PAGE,
    "in the header's page"
);

/// Shared memory with many windows.
#[derive(Debug)]
pub struct Region {
    file: Arc<OwnedFd>,
    layout: RegionLayout,
    /// The header, and the pages and control windows of the members.
    pages: Arc<Mapping>,
}

impl Region {
    /// Creates an empty region. The length of its file is a power of two, as a BAR's has to be.
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
        region.write_header()?;
        Ok(region)
    }

    /// Adopts a region that this host created before, whatever its members have written into it
    /// since.
    ///
    /// # Errors
    /// The file's length does not match the layout, or the kernel refuses.
    pub fn adopt(file: OwnedFd, layout: RegionLayout) -> Result<Self, WindowError> {
        let layout = layout.check()?;
        let got = memfd::final_length(file.as_fd()).ok_or(WindowError::Unsealed)?;
        let expected = layout.length().next_power_of_two();
        if got != expected {
            return Err(WindowError::Length { got, expected });
        }
        let region = Self::map(file, layout)?;
        region.write_header()?;
        Ok(region)
    }

    /// Host only: records whether a link is in use. Members can write the bitmap, too, and so
    /// mislead a host that takes over; only their own links suffer.
    pub fn set_in_use(&self, link: u32, used: bool) {
        if let Some((word, bit)) = self.in_use_bit(link) {
            let others = word.load() & !bit;
            word.store(if used { others | bit } else { others });
        }
    }

    /// Returns whether a link is recorded as in use.
    #[must_use]
    pub fn is_in_use(&self, link: u32) -> bool {
        self.in_use_bit(link)
            .is_some_and(|(word, bit)| word.load() & bit != 0)
    }

    /// Returns the word with a link's bit, and the bit.
    fn in_use_bit(&self, link: u32) -> Option<(Word, u32)> {
        (link < self.layout.links).then_some(())?;
        let word = Word::new(&self.pages, IN_USE_BITMAP + u64::from(link / 32) * 4)?;
        Some((word, 1 << (link % 32)))
    }

    /// Writes the header again, because members may have overwritten it.
    ///
    /// # Errors
    /// None if the region was [created](Self::create).
    pub fn write_header(&self) -> Result<(), WindowError> {
        let header = SharedBytes::new(&self.pages, 0, PAGE, Access::ReadWrite);
        header
            .and_then(|page| page.write(0, &self.layout.header()))
            .ok_or(WindowError::Kernel(Errno::INVAL))
    }

    /// Attaches a region that the host created, a sealed memfd or a BAR, after checking length and
    /// header.
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
        SharedBytes::new(&page, 0, PAGE, Access::Read)
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
        let pages = Mapping::new(file.as_fd(), 0, layout.link_at(0), Access::ReadWrite);
        let pages = Arc::new(pages.map_err(WindowError::Kernel)?);
        let file = Arc::new(file);
        Ok(Self {
            file,
            layout,
            pages,
        })
    }

    /// Returns the sizes of the region.
    #[must_use]
    pub fn layout(&self) -> RegionLayout {
        self.layout
    }

    /// Returns the page of a member; `None` if there is no such member.
    #[must_use]
    pub fn page(&self, member: u32) -> Option<MemberPage> {
        (member < self.layout.members).then_some(())?;
        MemberPage::new(&self.pages, self.layout.page_at(member))
    }

    /// Returns the control window of a member; `None` if there is no such member.
    #[must_use]
    pub fn control_window(&self, member: u32) -> Option<Window> {
        let at = self.layout.control_at(member);
        (member < self.layout.members).then(|| self.window(at, self.layout.control))
    }

    /// Returns a link; `None` if there is no such link.
    #[must_use]
    pub fn link(&self, link: u32) -> Option<Window> {
        let at = self.layout.link_at(link);
        (link < self.layout.links).then(|| self.window(at, self.layout.link))
    }

    /// Maps the heap of a member; `None` if there is no such member, or it has no heap.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn heap(&self, member: u32) -> Result<Option<Heap>, Errno> {
        if member >= self.layout.members || self.layout.units == 0 {
            return Ok(None);
        }
        let (at, length) = (self.layout.heap_at(member), self.layout.heap_length());
        let mapping = Mapping::new(self.file.as_fd(), at, length, Access::ReadWrite)?;
        let owner = HeapOwner::new(self.as_fd(), member)?;
        Ok(Heap::new(mapping, self.layout.units, owner))
    }

    /// Host only: returns the memory of an unused link to the system. The link then reads as zeros,
    /// and takes memory again when it is written.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn release_memory(&self, link: u32) -> Result<(), Errno> {
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
            members: 3,
            links: 5,
            units: 2,
            control: window,
            link: window,
        }
    }

    #[test]
    fn windows_of_a_region_do_not_overlap() {
        let region = Region::create(layout()).unwrap();
        let file = region.as_fd().try_clone_to_owned().unwrap();
        let member = Region::attach(file).unwrap();
        assert_eq!(member.layout(), layout());
        let mut windows = Vec::new();
        for at in 0..3 {
            windows.push((
                region.control_window(at).unwrap(),
                member.control_window(at).unwrap(),
            ));
        }
        for at in 0..5 {
            windows.push((region.link(at).unwrap(), member.link(at).unwrap()));
        }
        let mut ends = Vec::new();
        for (ours, theirs) in &windows {
            ours.reset().unwrap();
            let ours = ours.ends(Side::Creator).unwrap();
            ends.push((ours, theirs.ends(Side::Attacher).unwrap()));
        }
        for (tag, (ours, _)) in (0..).zip(&mut ends) {
            ours.producers[0].push(&Record { tag, body: [7; 7] });
        }
        for (tag, (_, theirs)) in (0..).zip(&mut ends) {
            assert_eq!(theirs.consumers[0].pop().unwrap().tag, tag);
            assert!(theirs.consumers[0].pop().is_none());
        }
        let page = region.page(2).unwrap();
        member.page(2).unwrap().request_join(9);
        assert_eq!(page.join_number(), 9);
        page.confirm_join(9);
        assert_eq!(member.page(2).unwrap().joined_number(), 9);
        assert!(region.page(3).is_none() && region.control_window(3).is_none());
        assert!(region.link(5).is_none());
    }

    #[test]
    fn a_reset_window_has_no_records() {
        let region = Region::create(layout()).unwrap();
        let window = region.link(1).unwrap();
        window.reset().unwrap();
        let mut ends = window.ends(Side::Creator).unwrap();
        ends.producers[0].push(&Record::default());
        window.reset().unwrap();
        let mut ends = window.ends(Side::Attacher).unwrap();
        assert!(ends.consumers[0].pop().is_none());
    }

    #[test]
    fn a_released_link_takes_no_memory_and_can_be_used_again() {
        let region = Region::create(layout()).unwrap();
        let blocks = || rustix::fs::fstat(region.as_fd()).unwrap().st_blocks;
        let before = blocks();
        let windows = [1, 2].map(|link| region.link(link).unwrap());
        for window in &windows {
            window.reset().unwrap();
            let mut ends = window.ends(Side::Creator).unwrap();
            ends.producers[0].push(&Record::default());
        }
        let used = (blocks() - before) / 2;
        assert!(used > 0);
        region.release_memory(1).unwrap();
        assert_eq!(blocks(), before + used, "the other link's");
        let [emptied, other] = &windows;
        let has_record = |window: &Window| {
            let ends = window.ends(Side::Attacher).unwrap();
            ends.consumers[0].has_record()
        };
        assert!(has_record(other));
        emptied.reset().unwrap();
        assert!(!has_record(emptied));
        assert!(region.release_memory(5).is_err());
    }

    #[test]
    fn a_host_that_takes_over_reads_the_bitmap_and_trusts_nothing_else() {
        let region = Region::create(layout()).unwrap();
        region.set_in_use(1, true);
        region.set_in_use(4, true);
        region.set_in_use(1, false);
        // No bit is behind the last link's.
        region.set_in_use(5, true);
        let file = || region.as_fd().try_clone_to_owned().unwrap();
        let page = SharedBytes::new(&region.pages, 0, PAGE, Access::ReadWrite).unwrap();
        page.write(0, &[0xff; HEADER]).unwrap();
        let next = Region::adopt(file(), layout()).unwrap();
        let marked: Vec<_> = (0..6).filter(|link| next.is_in_use(*link)).collect();
        assert_eq!(marked, [4]);
        assert_eq!(Region::attach(file()).unwrap().layout(), layout());
        let mut larger = layout();
        larger.links = 4096;
        let refused = Region::adopt(file(), larger).unwrap_err();
        assert!(matches!(refused, WindowError::Length { .. }));
    }

    #[test]
    fn a_file_that_is_no_region_is_refused() {
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
        let members = WindowError::Layout(LayoutError::Members(0));
        assert_eq!(refused(&other, 1 << 24), members);
    }
}
