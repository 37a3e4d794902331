//! Lanes against a model, between threads, and against a peer that overwrites the window.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod records;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use window::lane::{Consumer, INLINE_BYTES, Producer, Record};
use window::layout::{LaneSize, Layout};
use window::{ProtocolError, Side, Window};

const SLOTS: u32 = 8;
const DATA: u32 = 4096;

fn window(slots: u32) -> Window {
    let lane = LaneSize { slots, data: DATA };
    Window::create(Layout::new([lane, lane]).unwrap()).unwrap()
}

/// The first lane, from creator to guest.
fn lane(window: &Window) -> (Producer, Consumer) {
    let [producer, _] = window.ends(Side::Creator).unwrap().producers;
    let [consumer, _] = window.ends(Side::Attacher).unwrap().consumers;
    (producer, consumer)
}

/// A record whose bytes all follow from a number.
fn record(number: u64) -> Record {
    Record {
        tag: number as u32,
        body: [number; 7],
    }
}

/// Pushes `length` bytes made of `number`; false if there is no room.
fn push(producer: &mut Producer, number: u64, length: u32) -> bool {
    let Some(room) = producer.room(length).unwrap() else {
        return false;
    };
    let bytes = vec![number as u8; length as usize];
    producer.write(u64::from(room.offset), &bytes).unwrap();
    let mut record = record(number);
    record.body[0] = u64::from(room.offset);
    record.body[1] = u64::from(length);
    producer.push_with_data(&record, room);
    true
}

/// Pops what `push` pushed: its number and length, after checking every byte.
fn pop(consumer: &mut Consumer) -> Option<(u64, u32)> {
    let record = consumer.pop()?;
    let [offset, length, rest @ ..] = record.body;
    assert!(rest.iter().all(|word| *word == rest[0]));
    let mut bytes = vec![0; length as usize];
    consumer.read(offset, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == rest[0] as u8));
    Some((rest[0], length as u32))
}

proptest! {
    #[test]
    fn a_lane_is_a_queue(steps in prop::collection::vec((any::<bool>(), 0..=DATA), 1..400)) {
        let window = window(SLOTS);
        let (mut producer, mut consumer) = lane(&window);
        let mut model = VecDeque::new();
        for (number, (send, length)) in steps.into_iter().enumerate() {
            if send {
                if push(&mut producer, number as u64, length) {
                    model.push_back((number as u64, length));
                    prop_assert!(model.len() <= SLOTS as usize);
                }
            } else {
                prop_assert_eq!(pop(&mut consumer), model.pop_front());
                consumer.release();
            }
        }
        while let Some(expected) = model.pop_front() {
            prop_assert_eq!(pop(&mut consumer), Some(expected));
        }
        prop_assert_eq!(consumer.pop(), None);
        // Nothing leaks: an empty lane takes the longest data that always fits.
        consumer.release();
        prop_assert!(push(&mut producer, 1, DATA / 2));
    }
}

/// Two short records share a slot.
#[test]
fn twice_as_many_short_records_have_room() {
    let window = window(SLOTS);
    let (mut producer, mut consumer) = lane(&window);
    let mut pushed = 0;
    while producer.has_room().unwrap() {
        producer.push_pieces(1, 0xffff, &[&[7; 24]], 24);
        pushed += 1;
    }
    // A record that is not short would need a whole slot.
    assert_eq!(pushed, 2 * SLOTS - 1);
    for _ in 0..pushed {
        let record = consumer.pop().unwrap();
        let word = u64::from_ne_bytes([7; 8]);
        assert_eq!(record.body, [0xffff, word, word, word, 0, 0, 0]);
    }
    assert!(!consumer.has_record());
}

#[test]
fn bytes_that_a_slot_has_no_room_for_are_neither_written_nor_read() {
    let window = window(SLOTS);
    let (mut producer, mut consumer) = lane(&window);
    producer.push_pieces(1, 2, &[&[3; INLINE_BYTES + 15]], INLINE_BYTES + 15);
    producer.push_pieces(4, 5, &[&[6; 1]], 1);
    let mut got = [0; INLINE_BYTES + 15];
    consumer.bytes(&mut got);
    assert_eq!(got[..INLINE_BYTES], [3; INLINE_BYTES]);
    assert_eq!(got[INLINE_BYTES..], [0; 15]);
    consumer.step();
    assert_eq!((consumer.tag(), consumer.first()), (Some(4), 5));
}

#[test]
fn a_record_is_popped_with_the_tag_that_was_read() {
    let window = window(SLOTS);
    let (mut producer, mut consumer) = lane(&window);
    producer.push(&record(1));
    let tag = consumer.tag().unwrap();
    // The producer writes another tag into the first slot (see `layout`).
    let memory = window.bytes().unwrap();
    memory.write(8192 + 4, &2u32.to_le_bytes()).unwrap();
    assert_eq!(consumer.tag(), Some(2));
    assert_eq!(consumer.take(tag), record(1));
    assert_eq!(consumer.tag(), None);
}

#[test]
fn a_full_ring_takes_nothing_until_slots_are_released() {
    let window = window(SLOTS);
    let (mut producer, mut consumer) = lane(&window);
    for number in 0..u64::from(SLOTS) {
        assert!(producer.has_room().unwrap());
        producer.push(&record(number));
    }
    assert!(!producer.has_room().unwrap());
    assert_eq!(consumer.pop(), Some(record(0)));
    assert!(
        !consumer.release(),
        "one of eight slots is not released yet"
    );
    assert!(!producer.has_room().unwrap());
    assert_eq!(consumer.pop(), Some(record(1)));
    assert!(consumer.release());
    assert!(producer.has_room().unwrap());
}

#[test]
fn an_impossible_released_count_is_a_protocol_error() {
    let window = window(SLOTS);
    let (mut producer, _consumer) = lane(&window);
    for number in 0..u64::from(SLOTS) {
        producer.push(&record(number));
    }
    // Where the consumer of direction 0 writes its released count (see `layout`).
    let memory = window.bytes().unwrap();
    // Positions: two for each slot.
    memory.write(4096 + 128, &17u32.to_le_bytes()).unwrap();
    assert_eq!(
        producer.has_room(),
        Err(ProtocolError::Released {
            released: 17,
            outstanding: 16
        })
    );
    memory.write(4096 + 128, &3u32.to_le_bytes()).unwrap();
    assert_eq!(producer.has_room(), Ok(true));
}

#[test]
fn between_two_threads_everything_arrives_in_order_and_whole() {
    const COUNT: u64 = 200_000;
    let window = window(64);
    let (mut producer, mut consumer) = lane(&window);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COUNT {
                while !push(&mut producer, number, (number % 700) as u32) {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..COUNT {
            loop {
                if let Some(got) = pop(&mut consumer) {
                    assert_eq!(got, (number, (number % 700) as u32));
                    consumer.release();
                    break;
                }
                std::thread::yield_now();
            }
        }
    });
}

/// Short records and others in turn, faster than the consumer releases them.
#[test]
fn between_two_threads_short_records_arrive_in_order_and_whole() {
    const COUNT: u64 = 400_000;
    let window = window(8);
    let (mut producer, mut consumer) = lane(&window);
    let words = |number: u64| {
        if number % 7 == 3 {
            6
        } else {
            1 + number as usize % 3
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COUNT {
                while !producer.has_room().unwrap() {
                    std::thread::yield_now();
                }
                let bytes = number.to_ne_bytes().repeat(words(number));
                let pieces = bytes.chunks(5).collect::<Vec<_>>();
                producer.push_pieces(number as u32 & 0x7fff, number % 65536, &pieces, bytes.len());
            }
        });
        for number in 0..COUNT {
            let record = loop {
                match consumer.pop() {
                    Some(record) => break record,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(record.tag, number as u32 & 0x7fff);
            assert_eq!(record.body[0], number % 65536);
            assert!(
                record.body[1..=words(number)]
                    .iter()
                    .all(|word| *word == number)
            );
            consumer.release();
        }
    });
}

/// A peer writes every byte of the window, many times, while the other side works as if nothing
/// happened: no access goes outside, and nothing panics. What arrives is not checked: it is the
/// peer's fault.
#[test]
fn a_peer_that_overwrites_every_byte_harms_only_itself() {
    let window = window(SLOTS);
    let memory = window.bytes().unwrap();
    let mut ends = window.ends(Side::Attacher).unwrap();
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut random = 1u64;
            for round in 0..20u64 {
                for offset in 0..memory.length() {
                    random = random.wrapping_mul(6_364_136_223_846_793_005) | 1;
                    let byte = match round % 3 {
                        0 => 0xff,
                        1 => (offset % 11) as u8,
                        _ => (random >> 56) as u8,
                    };
                    memory.write(offset, &[byte]).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut bytes = vec![0; 600];
        while !done.load(Ordering::Relaxed) {
            for lane in 0..2 {
                let producer = &mut ends.producers[lane];
                if let Ok(Some(room)) = producer.room(600) {
                    producer.write(u64::from(room.offset), &bytes).unwrap();
                    producer.push_with_data(&record(1), room);
                }
                if let Ok(true) = producer.has_room() {
                    producer.push_pieces(1, 1, &[&[1; 24]], 24);
                }
                let consumer = &mut ends.consumers[lane];
                while let Some(tag) = consumer.tag() {
                    let _ = consumer.copy_out(consumer.place(), &mut bytes[..48]);
                    let _ = consumer.address(consumer.place(), 48);
                    let record = consumer.take(tag);
                    let _ = consumer.read(record.body[0], &mut bytes);
                }
                consumer.release();
            }
            ends.sleeper.prepare_to_wait(true);
            ends.sleeper.finish_wait();
            let _ = ends.ringer.needs_wakeup();
        }
    });
}

#[test]
fn one_sleep_is_woken_once() {
    let window = window(SLOTS);
    let mut sleeper = window.ends(Side::Creator).unwrap().sleeper;
    let mut ringer = window.ends(Side::Attacher).unwrap().ringer;
    assert!(!ringer.needs_wakeup());
    for _ in 0..3 {
        sleeper.prepare_to_wait(true);
        assert!(ringer.needs_wakeup());
        assert!(!ringer.needs_wakeup());
        sleeper.finish_wait();
        assert!(!ringer.needs_wakeup());
    }
}

#[test]
fn a_sleep_without_need_of_room_is_woken_for_a_record_only() {
    let window = window(SLOTS);
    let mut sleeper = window.ends(Side::Creator).unwrap().sleeper;
    let mut ringer = window.ends(Side::Attacher).unwrap().ringer;
    for needs_room in [false, true, false] {
        sleeper.prepare_to_wait(needs_room);
        assert_eq!(ringer.needs_wakeup_for_room(), needs_room);
        // A record wakes it, unless it was woken.
        assert_eq!(ringer.needs_wakeup(), !needs_room);
        assert!(!ringer.needs_wakeup() && !ringer.needs_wakeup_for_room());
        sleeper.finish_wait();
        assert!(!ringer.needs_wakeup() && !ringer.needs_wakeup_for_room());
    }
}
