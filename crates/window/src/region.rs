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
//! ```
//! All numbers are little endian. Only the host decides which link is whose. A member that begins,
//! or begins again, writes a number into *opened* that was not there before; the host makes the
//! trunk new and repeats the number in *heard*. *Beat* changes as long as the member lives.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::layout::{Layout, LayoutError};
use crate::limits;
use crate::memfd;
use crate::raw::{Access, Foreign, Mapping, Word};
use crate::window::{Window, WindowError};

/// The first eight bytes of a region.
pub const MAGIC: u64 = u64::from_le_bytes(*b"vicregio");

/// Version of the layout of a region.
pub const VERSION: u32 = 1;

const PAGE: u64 = 4096;

/// Bytes of the header that mean something.
const HEADER: usize = 52;

/// Where the bits of links in use are.
const MARKS: u64 = 1024;
const _: () = assert!(
    MARKS + *limits::LINKS.end() as u64 / 8 <= PAGE,
    "in the header's page"
);

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

/// Shared memory with many windows.
#[derive(Debug)]
pub struct Region {
    file: Arc<OwnedFd>,
    layout: RegionLayout,
    /// The seats' pages.
    head: Arc<Mapping>,
}

/// The words of a seat that are no window's.
#[derive(Debug)]
pub struct Seat {
    opened: Word,
    beat: Word,
    listens: Word,
    heard: Word,
    nic: [Word; 2],
}

impl RegionLayout {
    fn check(self) -> Result<Self, LayoutError> {
        if !limits::SEATS.contains(&self.seats) {
            return Err(LayoutError::Seats(self.seats));
        }
        if !limits::LINKS.contains(&self.links) {
            return Err(LayoutError::Links(self.links));
        }
        Ok(self)
    }

    fn header(&self) -> [u8; HEADER] {
        let sizes = [self.trunk, self.link].map(|layout| layout.lanes());
        let sizes = sizes.as_flattened().iter();
        let sizes = sizes.flat_map(|lane| [lane.slots, lane.data]);
        let words = [VERSION, self.seats, self.links].into_iter().chain(sizes);
        let mut bytes = [0; HEADER];
        let (magic, rest) = bytes.split_at_mut(8);
        magic.copy_from_slice(&MAGIC.to_le_bytes());
        for (place, word) in rest.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_header(bytes: &[u8; HEADER]) -> Result<Self, LayoutError> {
        let (magic, rest) = bytes.split_at(8);
        if magic != MAGIC.to_le_bytes() {
            return Err(LayoutError::Magic);
        }
        let mut words = rest.chunks_exact(4).map(|bytes| {
            let bytes = bytes.first_chunk::<4>();
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        });
        let mut word = || words.next().unwrap_or(0);
        let version = word();
        if version != VERSION {
            return Err(LayoutError::Version(version));
        }
        let (seats, links) = (word(), word());
        let mut lane = || crate::layout::LaneSize {
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

    fn seat(&self, seat: u32) -> u64 {
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
        let at = self.layout.seat(seat);
        let word = |offset| Word::new(&self.head, at + offset);
        (seat < self.layout.seats).then_some(())?;
        Some(Seat {
            opened: word(0)?,
            beat: word(128)?,
            listens: word(132)?,
            heard: word(256)?,
            nic: [word(260)?, word(264)?],
        })
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

    fn window(&self, at: u64, layout: Layout) -> Window {
        Window::at(Arc::clone(&self.file), at, layout)
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Seat {
    /// The member: begin, with a number that is new.
    pub fn open(&self, number: u32) {
        self.opened.store(number);
    }

    /// The host: what the member began with last; 0 before it ever did.
    #[must_use]
    pub fn opened(&self) -> u32 {
        self.opened.load()
    }

    /// The member: say whether a doorbell wakes it.
    pub fn listen(&self, listens: bool) {
        self.listens.store(listens.into());
    }

    /// The host: whether a doorbell wakes the member.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.listens.load() != 0
    }

    /// The host: the trunk is new, for the member that began with this number.
    pub fn hear(&self, number: u32) {
        self.heard.store(number);
    }

    /// The member: whom the trunk is made for.
    #[must_use]
    pub fn heard(&self) -> u32 {
        self.heard.load()
    }

    /// The host: who sits here. What it is, is for the user of the region.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the halves of a word"
    )]
    pub fn set_nic(&self, nic: u64) {
        let [low, high] = &self.nic;
        low.store(nic as u32);
        high.store((nic >> 32) as u32);
    }

    /// The member: who it is.
    #[must_use]
    pub fn nic(&self) -> u64 {
        let [low, high] = &self.nic;
        u64::from(high.load()) << 32 | u64::from(low.load())
    }

    /// The member: still there.
    pub fn beat(&self) {
        self.beat.store(self.beat.load().wrapping_add(1));
    }

    /// The host: something else than the last time, if the member is still there.
    #[must_use]
    pub fn beaten(&self) -> u32 {
        self.beat.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Record;
    use crate::layout::LaneSize;
    use crate::window::Side;
    use proptest::prelude::*;

    fn layout() -> RegionLayout {
        let lane = LaneSize {
            slots: 8,
            data: 4096,
        };
        let window = Layout::new([lane, lane]).unwrap();
        RegionLayout {
            seats: 3,
            links: 5,
            trunk: window,
            link: window,
        }
    }

    proptest! {
        #[test]
        fn any_header_is_answered_and_a_good_one_stays(bytes: [u8; HEADER]) {
            if let Ok(layout) = RegionLayout::from_header(&bytes) {
                prop_assert_eq!(RegionLayout::from_header(&layout.header()), Ok(layout));
            }
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
