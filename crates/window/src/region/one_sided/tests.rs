use std::thread;

use super::*;
use crate::region::heap::tests::regions;
use crate::region::{SharedBuffer, UnitAllocator};

const UNITS: u32 = 4;
const BYTES: usize = UNITS as usize * 65_536;

/// A heap, mapped by its member and by another one.
fn heaps() -> [Heap; 2] {
    regions(UNITS).map(|region| region.heap(0).unwrap().unwrap())
}

fn allocate(heap: &Heap, length: usize) -> SharedBuffer {
    let allocator = UnitAllocator::in_process();
    heap.allocate(&allocator, length).unwrap().unwrap()
}

#[test]
fn bytes_are_put_and_got_across_units_and_nowhere_else() {
    let [own, seen] = heaps();
    let mut buffer = allocate(&own, BYTES);
    buffer.write(0, &vec![1; BYTES]).unwrap();
    let address = buffer.address();
    seen.put_bytes(address, 65_000, &[7; 70_000]).unwrap();
    let mut all = vec![0; BYTES];
    seen.get_bytes(address, 0, &mut all).unwrap();
    let expected = [vec![1; 65_000], vec![7; 70_000], vec![1; BYTES - 135_000]];
    assert_eq!(all, expected.concat());
    let outside = Err(AccessError::OutOfBounds);
    for from in [BYTES as u64 - 1, BYTES as u64, u64::MAX - 1, u64::MAX] {
        assert_eq!(seen.put_bytes(address, from, &[9; 2]), outside);
        assert_eq!(seen.get_bytes(address, from, &mut [0; 2]), outside);
    }
    let far = HeapAddress {
        unit: u32::MAX,
        ..address
    };
    assert_eq!(seen.put_bytes(far, 0, &[9]), outside);
    let mut again = vec![0; BYTES];
    buffer.read(0, &mut again).unwrap();
    assert_eq!(again, all);
}

#[test]
fn a_late_access_does_not_reach_the_next_owner() {
    let [own, seen] = heaps();
    let buffer = allocate(&own, BYTES);
    let address = buffer.address();
    // Its process has ended.
    drop(buffer);
    let next = allocate(&own, 1);
    let revoked = AccessError::Revoked;
    assert_eq!(seen.put_bytes(address, 0, &[9]), Err(revoked));
    assert_eq!(seen.get_bytes(address, 0, &mut [0]), Err(revoked));
    let add = seen.atomic(address, 0, Width::Word, Atomic::Add(9));
    assert_eq!(add, Err(revoked));
    let mut byte = [5];
    next.read(0, &mut byte).unwrap();
    assert_eq!(byte, [0]);
}

/// A writer that ended in the middle keeps its unit from others, which do not wait forever.
#[test]
fn a_unit_that_another_program_writes_is_busy() {
    let [own, seen] = heaps();
    let buffer = allocate(&own, BYTES);
    let address = buffer.address();
    assert!(own.units.begin_write(1..2, address.generation));
    assert_eq!(seen.put_bytes(address, 0, &[9; 65_536]), Ok(()));
    let busy = AccessError::Busy;
    assert_eq!(seen.put_bytes(address, 65_536, &[9]), Err(busy));
    assert_eq!(seen.get_bytes(address, 0, &mut [0; 70_000]), Ok(()));
    own.units.end_write(1..2);
    assert_eq!(seen.put_bytes(address, 65_536, &[9]), Ok(()));
}

#[test]
fn each_atomic_operation_returns_the_value_before() {
    let [own, seen] = heaps();
    let mut buffer = allocate(&own, 64);
    let old = 0x1234_5678_9abc_def0_u64;
    let swap = |expected| Atomic::CompareAndSwap { expected, value: 9 };
    for (operation, after) in [
        (Atomic::Add(1 << 40), old + (1 << 40)),
        (Atomic::And(0xff), old & 0xff),
        (Atomic::Or(0xf), old | 0xf),
        (Atomic::Xor(u64::MAX), !old),
        (Atomic::Swap(3), 3),
        (swap(old), 9),
        (swap(1), old),
    ] {
        let mut word = [0; 8];
        buffer.write(8, &old.to_ne_bytes()).unwrap();
        let before = seen.atomic(buffer.address(), 8, Width::LongWord, operation);
        assert_eq!(before, Ok(old), "{operation:?}");
        buffer.read(8, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), after, "{operation:?}");
    }
    buffer.write(8, &[0xff; 8]).unwrap();
    let add = seen.atomic(buffer.address(), 8, Width::Word, Atomic::Add(1));
    assert_eq!(add, Ok(u32::MAX.into()));
    let mut word = [0; 8];
    buffer.read(8, &mut word).unwrap();
    assert_eq!(word, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    let outside = Err(AccessError::OutOfBounds);
    for (from, width) in [
        (4, Width::LongWord),
        (2, Width::Word),
        (BYTES as u64, Width::Word),
    ] {
        let add = seen.atomic(buffer.address(), from, width, Atomic::Add(1));
        assert_eq!(add, outside, "{from}");
    }
}

#[test]
fn a_word_is_loaded_while_its_buffer_is_allocated() {
    let [own, seen] = heaps();
    let mut buffer = allocate(&own, BYTES);
    let address = buffer.address();
    let word = 0x1234_5678_9abc_def0_u64;
    buffer.write(65_536, &word.to_ne_bytes()).unwrap();
    assert_eq!(seen.load(address, 65_536), Ok(word));
    for from in [65_540, BYTES as u64, u64::MAX] {
        assert_eq!(seen.load(address, from), Err(AccessError::OutOfBounds));
    }
    drop(buffer);
    let _next = allocate(&own, BYTES);
    assert_eq!(seen.load(address, 65_536), Err(AccessError::Revoked));
}

#[test]
fn no_addition_of_several_programs_is_lost() {
    let [own, seen] = heaps();
    let buffer = allocate(&own, 64);
    let address = buffer.address();
    let add = move |heap: Heap| {
        let mut done = 0;
        while done < 20_000 {
            match heap.atomic(address, 0, Width::LongWord, Atomic::Add(1)) {
                Ok(_) => done += 1,
                Err(error) => assert_eq!(error, AccessError::Busy),
            }
        }
    };
    let other = thread::spawn({
        let heap = own.clone();
        move || add(heap)
    });
    add(seen);
    other.join().unwrap();
    let mut sum = [0; 8];
    buffer.read(0, &mut sum).unwrap();
    assert_eq!(u64::from_ne_bytes(sum), 40_000);
}
