use std::os::fd::AsFd;

use proptest::prelude::*;

use super::*;
use crate::layout::{LaneSize, Layout};
use crate::region::{Region, RegionLayout};

const UNITS: u32 = 8;

/// A region of two members with heaps of so many units, mapped by each of them.
pub(in crate::region) fn regions(units: u32) -> [Region; 2] {
    let lane = LaneSize {
        slots: 8,
        data: 4096,
    };
    let window = Layout::new([lane, lane]).unwrap();
    let region = Region::create(RegionLayout {
        members: 2,
        links: 1,
        units,
        control: window,
        link: window,
    });
    let region = region.unwrap();
    let other = Region::attach(region.as_fd().try_clone_to_owned().unwrap()).unwrap();
    [region, other]
}

/// A member's heap, mapped by itself and by another member, and its allocator.
struct Heaps {
    region: Region,
    own: Heap,
    seen: Heap,
    allocator: UnitAllocator,
    _file: tempfile::NamedTempFile,
}

impl Heaps {
    fn new() -> Self {
        let [region, other] = regions(UNITS);
        let file = tempfile::NamedTempFile::new().unwrap();
        Self {
            own: region.heap(0).unwrap().unwrap(),
            seen: other.heap(0).unwrap().unwrap(),
            region,
            allocator: UnitAllocator::file_locks(file.path().to_owned()),
            _file: file,
        }
    }

    fn allocate(&self, length: usize) -> Option<SharedBuffer> {
        self.own.allocate(&self.allocator, length).unwrap()
    }
}

#[test]
fn a_buffer_is_read_until_it_is_revoked_or_allocated_again() {
    let heaps = Heaps::new();
    let mut first = heaps.allocate(100_000).unwrap();
    let mut second = heaps.allocate(100_000).unwrap();
    first.write(0, &[1; 100_000]).unwrap();
    second.write(99_000, &[2; 1000]).unwrap();
    assert!(second.write(99_001, &[2; 1000]).is_none());
    assert!(first.read(99_999, &mut [0; 2]).is_none());
    let mut seen = vec![0; 100_000];
    heaps.seen.read(first.address(), 0, &mut seen).unwrap();
    assert_eq!(seen, [1; 100_000]);
    heaps
        .seen
        .read(second.address(), 99_000, &mut seen[..1000])
        .unwrap();
    assert_eq!(seen[..1000], [2; 1000]);
    let address = first.address();
    let is_valid = |address| heaps.seen.is_valid(address, 100_000);
    assert!(is_valid(address) && is_valid(second.address()));
    let first = first.revoke().unwrap();
    assert!(!is_valid(address));
    let address = first.address();
    assert!(is_valid(address) && is_valid(second.address()));
    drop(first);
    assert!(is_valid(address), "it was not allocated again yet");
    let _again = heaps.allocate(1).unwrap();
    assert!(!is_valid(address));
    let address = second.address();
    drop(second);
    // It begins before the old address, and covers it.
    let again = heaps.allocate(5 << 16).unwrap();
    assert!(again.address().unit < address.unit);
    assert!(!is_valid(address));
}

#[test]
fn buffers_are_copied_to_buffers_of_other_members() {
    let heaps = Heaps::new();
    let mut from = heaps.allocate(70_000).unwrap();
    from.write(0, &[7; 70_000]).unwrap();
    let other = heaps.region.heap(1).unwrap().unwrap();
    let mut to = other
        .allocate(&UnitAllocator::in_process(), 70_000)
        .unwrap()
        .unwrap();
    let mut carry = |from_byte, count| {
        heaps
            .seen
            .copy_to(from.address(), from_byte, &mut to, count)
    };
    carry(0, 30_000).unwrap();
    carry(30_000, 40_000).unwrap();
    assert!(carry(30_000, 40_001).is_none());
    let mut seen = vec![0; 70_000];
    to.read(0, &mut seen).unwrap();
    assert_eq!(seen, [7; 70_000]);
}

#[test]
fn a_full_heap_refuses_and_without_units_there_is_no_heap() {
    let heaps = Heaps::new();
    let all = heaps.allocate(8 << 16).unwrap();
    assert!(heaps.allocate(1).is_none());
    drop(all);
    assert!(heaps.allocate((8 << 16) + 1).is_none() && heaps.allocate(usize::MAX).is_none());
    assert!(heaps.region.heap(2).unwrap().is_none());
    let mut layout = heaps.region.layout();
    layout.units = 0;
    let bare = Region::create(layout).unwrap();
    assert!(bare.heap(0).unwrap().is_none());
}

proptest! {
    #[test]
    fn no_address_resolves_outside_a_heap(unit: u32, small in 0u32..12, generation: u32, from: u64, length in 0usize..600_000) {
        let heaps = Heaps::new();
        let mut bytes = vec![0; length];
        for (unit, from) in [(unit, from), (small, from), (small, from % 600_000)] {
            let address = HeapAddress { unit, generation };
            let inside = u128::from(unit) * 65_536 + u128::from(from) + length as u128 <= 8 * 65_536;
            prop_assert_eq!(heaps.seen.read(address, from, &mut bytes).is_some(), inside);
            let still = heaps.seen.is_valid(address, length as u64);
            prop_assert!(!still || address.unit < UNITS && generation == 0);
        }
    }
}

/// A buffer of the other member, to be copied into this one's.
fn filled(heaps: &Heaps, byte: u8) -> SharedBuffer {
    let other = heaps.region.heap(1).unwrap().unwrap();
    let mut from = other
        .allocate(&UnitAllocator::in_process(), 150_000)
        .unwrap()
        .unwrap();
    from.write(0, &[byte; 150_000]).unwrap();
    from
}

#[test]
fn others_write_a_buffer_until_it_is_revoked_or_allocated_again() {
    let heaps = Heaps::new();
    let from = filled(&heaps, 7);
    let mut to = heaps.allocate(150_000).unwrap();
    to.write(0, &[1; 150_000]).unwrap();
    let put = |address, at, count| heaps.seen.put(address, at, &from, count);
    assert_eq!(put(to.address(), 65_536, 84_464), Ok(()));
    let mut seen = vec![0; 150_000];
    to.read(0, &mut seen).unwrap();
    assert_eq!(seen, [[1; 65_536].as_slice(), &[7; 84_464]].concat());
    let address = to.address();
    let to = to.revoke().unwrap();
    assert_eq!(put(address, 0, 1), Err(AccessError::Revoked));
    let address = to.address();
    assert_eq!(put(address, 0, 1), Ok(()));
    drop(to);
    let again = heaps.allocate(1).unwrap();
    assert_eq!(put(address, 0, 1), Err(AccessError::Revoked));
    // Its second unit has no new owner.
    assert_eq!(put(address, 65_536, 1), Ok(()));
    assert_eq!(put(address, 0, 65_537), Err(AccessError::Revoked));
    drop(again);
    let _all = heaps.allocate(8 << 16).unwrap();
    assert_eq!(put(address, 65_536, 1), Err(AccessError::Revoked));
}

#[test]
fn units_that_a_peer_still_writes_are_not_allocated_before_it_has_finished() {
    let heaps = Heaps::new();
    for is_revoked in [true, false] {
        let buffer = heaps.allocate(3 << 16).unwrap();
        let address = buffer.address();
        assert_eq!(address.unit, 0);
        // A peer writes in the second unit.
        assert!(heaps.seen.units.begin_write(1..2, address.generation));
        match is_revoked {
            true => assert!(buffer.revoke().is_none()),
            // As when the program that owns it ends.
            false => drop(buffer),
        }
        let other = heaps.allocate(2 << 16).unwrap();
        assert!(other.address().unit >= 2);
        assert!(heaps.allocate(8 << 16).is_none());
        heaps.seen.units.end_write(1..2);
        drop(other);
        drop(heaps.allocate(8 << 16).unwrap());
        assert!(!heaps.seen.units.begin_write(1..2, address.generation));
    }
}

#[test]
fn a_write_begins_on_all_units_or_on_none() {
    let heaps = Heaps::new();
    let buffer = heaps.allocate(2 << 16).unwrap();
    let generation = buffer.address().generation;
    assert!(
        !heaps.seen.units.begin_write(1..3, generation),
        "one unit is not of the buffer"
    );
    assert!(!heaps.seen.units.begin_write(7..9, 0), "there are eight");
    assert!(
        !heaps.seen.units.begin_write(0..2, generation | 1),
        "no generation is odd"
    );
    assert!(buffer.revoke().is_some(), "no peer is writing");
    assert!(heaps.allocate(8 << 16).is_some());
}

proptest! {
    #[test]
    fn nothing_is_written_behind_the_end_of_a_heap(unit in 0u32..10, from: u64, near in 0u64..600_000, count in 0usize..150_001) {
        let heaps = Heaps::new();
        let buffer = filled(&heaps, 7);
        for from in [from, near] {
            let address = HeapAddress { unit, generation: 0 };
            let inside = u128::from(unit) * 65_536 + u128::from(from) + count as u128 <= 8 * 65_536
                && u128::from(from) + count as u128 <= 150_000;
            let all = u128::from(unit) * 65_536 + u128::from(from) <= 8 * 65_536;
            prop_assert_eq!(heaps.seen.contains(address, from), all);
            prop_assert_eq!(heaps.seen.put(address, from, &buffer, count).is_ok(), inside);
        }
        prop_assert!(heaps.allocate(8 << 16).is_some(), "all writes have ended");
    }

    #[test]
    fn the_first_free_units_are_allocated(
        steps in prop::collection::vec((any::<bool>(), 1u32..12, any::<prop::sample::Index>()), 1..60)
    ) {
        let allocator = UnitAllocator::in_process();
        let mut held: Vec<Allocation> = Vec::new();
        for (take, count, which) in steps {
            if !take && !held.is_empty() {
                held.swap_remove(which.index(held.len()));
                continue;
            }
            let got = allocator.take(count, 40).unwrap();
            let is_free = |start: u32| {
                start + count <= 40
                    && held.iter().all(|other| start + count <= other.units.start || other.units.end <= start)
            };
            let first = (0..40).find(|start| is_free(*start));
            prop_assert_eq!(got.as_ref().map(|held| held.units.start), first);
            held.extend(got);
        }
    }
}
