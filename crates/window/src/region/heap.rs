//! The heap of a seat: memory that its member writes and other members copy from.
//!
//! It is lent in whole units to programs of the member; what one has is a *stretch*, some units in a row. Who has
//! which is kept by the member's kernel, as locks on a file: so a program that ends, however it does, leaves nothing
//! behind, and no process is there that could forget.
//!
//! All members can write everything here, so nobody has a reference to it: bytes are copied in and out. Each unit
//! has a *number*. Whoever is lent a stretch changes the numbers of its units before it writes there; it changes the
//! first one's before it writes over what others may still be copying. Who copies is told the number, and looks at it
//! again afterwards: is it the same, then nobody wrote meanwhile who should not.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::io::Errno;

use super::Home;
use super::layout::{PAGE, UNIT};
use crate::raw::{Access, Foreign, Lease, Mapping, Word};

/// Where something is on a heap, and which number it had there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first unit of it.
    pub unit: u32,
    /// That unit's number, as long as it is there.
    pub number: u32,
}

/// A member's heap.
#[derive(Clone, Debug)]
pub struct Heap {
    mapping: Arc<Mapping>,
    units: u32,
    /// All units.
    bytes: Foreign,
    home: Home,
}

impl Heap {
    pub(super) fn new(mapping: Mapping, units: u32, home: Home) -> Option<Self> {
        let mapping = Arc::new(mapping);
        let length = u64::from(units) * UNIT;
        Some(Self {
            bytes: Foreign::new(&mapping, PAGE, length, Access::Read)?,
            mapping,
            units,
            home,
        })
    }

    /// Copy bytes out, `from` where something begins; `None`, and nothing is copied, when they are not all on this
    /// heap. Good only if it [is still](Self::is_still) there.
    #[must_use]
    pub fn read(&self, place: Place, from: u64, to: &mut [u8]) -> Option<()> {
        self.bytes.read(at(place, from)?, to)
    }

    /// The same into a stretch of this process.
    #[must_use]
    pub fn carry(&self, place: Place, to: &mut Stretch, count: u64) -> Option<()> {
        let count = usize::try_from(count).ok()?;
        self.bytes.carry(at(place, 0)?, &to.bytes, 0, count)
    }

    /// Whether everything that was read before is what lay there.
    #[must_use]
    pub fn is_still(&self, place: Place) -> bool {
        fence(Ordering::Acquire);
        self.number(place.unit)
            .is_some_and(|number| number.load() == place.number)
    }

    /// The member: borrow `length` bytes; `None` when there is no room. `list` is the file in which the member's
    /// kernel keeps who has what, opened anew, to be written.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn lend(&self, list: OwnedFd, length: usize) -> Result<Option<Stretch>, Errno> {
        let units = (length.max(1) as u64).div_ceil(UNIT);
        let Ok(units) = u32::try_from(units) else {
            return Ok(None);
        };
        let Some(lease) = Lease::take(list, units, self.units)? else {
            return Ok(None);
        };
        let unit = lease.start();
        for unit in unit..unit + units {
            self.renumber(unit);
        }
        let start = PAGE + u64::from(unit) * UNIT;
        let bytes = Foreign::new(&self.mapping, start, length as u64, Access::ReadWrite);
        Ok(bytes.map(|bytes| Stretch {
            heap: self.clone(),
            bytes,
            lease,
        }))
    }

    fn number(&self, unit: u32) -> Option<Word> {
        (unit < self.units).then(|| Word::new(&self.mapping, u64::from(unit) * 4))?
    }

    /// What was there is there no more, as far as others are concerned.
    fn renumber(&self, unit: u32) {
        if let Some(number) = self.number(unit) {
            number.store(number.load().wrapping_add(1));
        }
        // Who sees what is written from here on sees the number.
        fence(Ordering::Release);
    }
}

/// Bytes from the start of the units.
fn at(place: Place, from: u64) -> Option<u64> {
    (u64::from(place.unit) * UNIT).checked_add(from)
}

/// Bytes on a member's heap that one program has, given back when dropped. They hold whatever was there before.
#[derive(Debug)]
pub struct Stretch {
    heap: Heap,
    bytes: Foreign,
    lease: Lease,
}

impl Stretch {
    /// Bytes it has.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.bytes.length()
    }

    /// Copy bytes in; `None`, and nothing is copied, when there is no room for them at `at`.
    #[must_use]
    pub fn write(&mut self, at: u64, from: &[u8]) -> Option<()> {
        self.bytes.write(at, from)
    }

    /// Copy bytes out; `None`, and nothing is copied, when they are not all inside.
    #[must_use]
    pub fn read(&self, at: u64, to: &mut [u8]) -> Option<()> {
        self.bytes.read(at, to)
    }

    /// Where others find it.
    #[must_use]
    pub fn place(&self) -> Place {
        let unit = self.lease.start();
        // It has one: it is on the heap.
        let number = self.heap.number(unit).map_or(0, |number| number.load());
        Place { unit, number }
    }

    /// Others were told of it, and did not say that they are done: what they copy from now on is not good.
    pub fn withdraw(&mut self) {
        self.heap.renumber(self.lease.start());
    }

    /// Whose heap it is on.
    #[must_use]
    pub fn home(&self) -> Home {
        self.heap.home
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;
    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::layout::{LaneSize, Layout};
    use crate::region::{Region, RegionLayout};

    const UNITS: u32 = 8;

    /// A member's heap, as itself and as others see it, and its list.
    struct Heaps {
        region: Region,
        own: Heap,
        seen: Heap,
        list: tempfile::NamedTempFile,
    }

    impl Heaps {
        fn new() -> Self {
            let lane = LaneSize {
                slots: 8,
                data: 4096,
            };
            let window = Layout::new([lane, lane]).unwrap();
            let region = Region::create(RegionLayout {
                seats: 2,
                links: 1,
                units: UNITS,
                trunk: window,
                link: window,
            });
            let region = region.unwrap();
            let other = Region::attach(region.as_fd().try_clone_to_owned().unwrap()).unwrap();
            Self {
                own: region.heap(0).unwrap().unwrap(),
                seen: other.heap(0).unwrap().unwrap(),
                region,
                list: tempfile::NamedTempFile::new().unwrap(),
            }
        }

        fn lend(&self, length: usize) -> Option<Stretch> {
            let list = rustix::fs::open(self.list.path(), OFlags::RDWR, Mode::empty());
            self.own.lend(list.unwrap(), length).unwrap()
        }
    }

    #[test]
    fn what_lies_in_a_stretch_is_read_until_it_is_withdrawn_or_given_back_and_lent_again() {
        let heaps = Heaps::new();
        let mut first = heaps.lend(100_000).unwrap();
        let mut second = heaps.lend(100_000).unwrap();
        first.write(0, &[1; 100_000]).unwrap();
        second.write(99_000, &[2; 1000]).unwrap();
        assert!(second.write(99_001, &[2; 1000]).is_none());
        assert!(first.read(99_999, &mut [0; 2]).is_none());
        let mut seen = vec![0; 100_000];
        heaps.seen.read(first.place(), 0, &mut seen).unwrap();
        assert_eq!(seen, [1; 100_000]);
        heaps
            .seen
            .read(second.place(), 99_000, &mut seen[..1000])
            .unwrap();
        assert_eq!(seen[..1000], [2; 1000]);
        let place = first.place();
        assert!(heaps.seen.is_still(place));
        assert!(heaps.seen.is_still(second.place()));
        first.withdraw();
        assert!(!heaps.seen.is_still(place));
        let place = first.place();
        assert!(heaps.seen.is_still(place) && heaps.seen.is_still(second.place()));
        drop(first);
        assert!(heaps.seen.is_still(place), "nobody wrote there yet");
        let _again = heaps.lend(1).unwrap();
        assert!(!heaps.seen.is_still(place));
        let place = second.place();
        drop(second);
        // It begins before, and covers that.
        let again = heaps.lend(5 << 16).unwrap();
        assert!(again.place().unit < place.unit);
        assert!(!heaps.seen.is_still(place));
    }

    #[test]
    fn stretches_are_copied_to_stretches_of_other_members() {
        let heaps = Heaps::new();
        let mut from = heaps.lend(70_000).unwrap();
        from.write(0, &[7; 70_000]).unwrap();
        let list = tempfile::NamedTempFile::new().unwrap();
        let list = list.reopen().unwrap().into();
        let other = heaps.region.heap(1).unwrap().unwrap();
        let mut to = other.lend(list, 70_000).unwrap().unwrap();
        heaps.seen.carry(from.place(), &mut to, 70_000).unwrap();
        let mut seen = vec![0; 70_000];
        to.read(0, &mut seen).unwrap();
        assert_eq!(seen, [7; 70_000]);
        assert!(heaps.seen.carry(from.place(), &mut to, 70_001).is_none());
    }

    #[test]
    fn there_is_no_more_room_than_there_is_and_no_heap_without_units() {
        let heaps = Heaps::new();
        let all = heaps.lend(8 << 16).unwrap();
        assert!(heaps.lend(1).is_none());
        drop(all);
        assert!(heaps.lend((8 << 16) + 1).is_none() && heaps.lend(usize::MAX).is_none());
        assert!(heaps.region.heap(2).unwrap().is_none());
        let mut layout = heaps.region.layout();
        layout.units = 0;
        let bare = Region::create(layout).unwrap();
        assert!(bare.heap(0).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn no_place_leads_out_of_a_heap(unit: u32, small in 0u32..12, number: u32, from: u64, length in 0usize..600_000) {
            let heaps = Heaps::new();
            let mut bytes = vec![0; length];
            for (unit, from) in [(unit, from), (small, from), (small, from % 600_000)] {
                let place = Place { unit, number };
                let inside = u128::from(unit) * 65_536 + u128::from(from) + length as u128 <= 8 * 65_536;
                prop_assert_eq!(heaps.seen.read(place, from, &mut bytes).is_some(), inside);
                prop_assert!(!heaps.seen.is_still(place) || unit < UNITS && number == 0);
            }
        }
    }
}
