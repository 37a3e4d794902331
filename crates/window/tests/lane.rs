//! Lanes against a model, between threads, and against a peer that overwrites the window.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

/// A step of a lane's user.
#[derive(Clone, Debug)]
enum Step {
    PushData(u32),
    /// The first word, and words that are pushed in pieces of this length.
    PushPieces(u64, Vec<u64>, usize),
    /// The consumer looks at the next record, and releases those before it.
    Look,
    Pop,
    /// The consumer reads at most so many short records, and refuses each whose tag has this rest.
    ReadShort(usize, u32),
}

/// Many of the words become sequence numbers of the next lap, see [`Sender::lookalike`].
fn step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![
        0..64u64,
        any::<u64>(),
        (0..64u64).prop_map(|low| low | 1 << 47)
    ];
    let first = prop_oneof![3 => 0..=u64::from(u16::MAX), 1 => any::<u64>()];
    let words = prop::collection::vec(word, 0..=INLINE_BYTES / 8);
    prop_oneof![
        1 => (0..=DATA).prop_map(Step::PushData),
        4 => (first, words, 1..20usize)
            .prop_map(|(first, words, piece)| Step::PushPieces(first, words, piece)),
        2 => Just(Step::Look),
        4 => Just(Step::Pop),
        2 => (0..8usize, 0..3u32).prop_map(|(most, refused)| Step::ReadShort(most, refused)),
    ]
}

/// What a record should bring: its tag, its first word, and its other words.
type Expected = (u32, u64, Vec<u64>);

/// A producer, and the position that it writes next.
struct Sender {
    producer: Producer,
    position: u32,
}

impl Sender {
    /// Makes a small word the sequence number of a position of the next laps, for short records or not.
    fn lookalike(&self, word: u64) -> u64 {
        match word as u32 {
            0..64 => word + u64::from(self.position),
            _ => word,
        }
    }

    fn push(&mut self, tag: u32, step: &Step) -> Option<Expected> {
        let (expected, short) = match step {
            Step::PushData(length) => {
                let pushed = push(&mut self.producer, u64::from(tag), *length);
                let words = vec![u64::from(*length), u64::from(tag)];
                (pushed.then_some((tag, 0, words))?, false)
            }
            Step::PushPieces(first, words, piece) => {
                let words: Vec<_> = words.iter().map(|word| self.lookalike(*word)).collect();
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                if !self.producer.has_room().unwrap() {
                    return None;
                }
                let pieces: Vec<_> = bytes.chunks(*piece).collect();
                self.producer.push_pieces(tag, *first, &pieces, bytes.len());
                ((tag, *first, words), bytes.len() <= 24 && *first < 65536)
            }
            Step::Look | Step::Pop | Step::ReadShort(..) => return None,
        };
        if self.position % 2 == 1 {
            let count = if short { &SHARED } else { &UNUSED };
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.position = match short {
            true => self.position + 1,
            false => self.position.next_multiple_of(2) + 2,
        };
        Some(expected)
    }
}

/// Takes the next record, by each of the ways in which it can be read.
fn check_next(consumer: &mut Consumer, (tag, first, words): &Expected, has_data: bool) {
    assert!(consumer.has_record());
    assert_eq!(consumer.tag(), Some(*tag));
    let record = consumer.peek(*tag);
    if has_data {
        assert_eq!(record.body[1..3], words[..]);
        let mut bytes = vec![0; words[0] as usize];
        consumer.read(record.body[0], &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == *tag as u8));
    } else {
        assert_eq!((consumer.first(), record.body[0]), (*first, *first));
        assert_eq!(record.body[1..=words.len()], words[..]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for length in [bytes.len(), bytes.len().saturating_sub(3), bytes.len() / 2] {
            let (mut got, mut copy) = (vec![0; length], vec![0; length]);
            consumer.bytes(&mut got);
            assert_eq!(got, bytes[..length]);
            consumer.copy_out(consumer.place(), &mut copy).unwrap();
            assert_eq!(copy, got);
            assert!(consumer.address(consumer.place(), length).is_some());
        }
    }
    assert_eq!(consumer.take(*tag), record);
}

fn is_short((_, first, words): &Expected) -> bool {
    words.len() <= 3 && *first < 65536
}

/// Reads short records, and compares them with those that should be next.
fn read_short(
    consumer: &mut Consumer,
    model: &mut VecDeque<(Expected, bool)>,
    most: usize,
    refused: u32,
) {
    let mut places = Vec::new();
    let mut was_refused = false;
    let further = consumer.read_short(most, |tag, first, place, address| {
        was_refused = tag % 3 == refused;
        if !was_refused {
            places.push((tag, first, place, address));
        }
        !was_refused
    });
    for (tag, first, place, address) in &places {
        let (expected, has_data) = model.pop_front().unwrap();
        assert!(is_short(&expected) && !has_data);
        assert_eq!((*tag, *first), (expected.0, expected.1));
        let bytes: Vec<u8> = expected
            .2
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let mut got = vec![0; bytes.len()];
        consumer.copy_out(*place, &mut got).unwrap();
        assert_eq!(got, bytes);
        assert_eq!(consumer.address(*place, got.len()), Some(*address));
    }
    let next = model.front();
    if places.len() < most {
        let is_readable = |next: &(Expected, bool)| is_short(&next.0) && !next.1;
        assert_eq!(was_refused, next.is_some_and(is_readable));
        assert!(further || next.is_none());
    }
    READ_SHORT.fetch_add(places.len(), Ordering::Relaxed);
    REFUSED.fetch_add(was_refused.into(), Ordering::Relaxed);
    consumer.skip();
    consumer.release();
}

/// Records that were read together, and that stayed the next one.
static READ_SHORT: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Records that shared a slot, and slots whose second half was left unused.
static SHARED: AtomicUsize = AtomicUsize::new(0);
static UNUSED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn records_of_every_size_share_slots_or_leave_halves_unused() {
    records_of_every_size_arrive_as_they_were_pushed();
    let reached =
        [&SHARED, &UNUSED, &READ_SHORT, &REFUSED].map(|count| count.load(Ordering::Relaxed));
    assert!(reached.iter().all(|count| *count > 400), "{reached:?}");
}

proptest! {
    /// Short records, longer ones, and ones with data, in any order.
    fn records_of_every_size_arrive_as_they_were_pushed(
        steps in prop::collection::vec(step(), 1..400)
    ) {
        let window = window(SLOTS);
        let (producer, mut consumer) = lane(&window);
        let mut sender = Sender { producer, position: 0 };
        let mut model = VecDeque::new();
        for (tag, step) in (0..).zip(&steps) {
            if let Some(expected) = sender.push(tag, step) {
                model.push_back((expected, matches!(step, Step::PushData(_))));
                prop_assert!(model.len() <= 2 * SLOTS as usize);
            } else if let Step::Look = step {
                prop_assert_eq!(consumer.tag(), model.front().map(|((tag, ..), _)| *tag));
                consumer.skip();
                consumer.release();
            } else if let Step::ReadShort(most, refused) = step {
                read_short(&mut consumer, &mut model, *most, *refused);
            } else if let Step::Pop = step {
                if let Some((expected, has_data)) = model.pop_front() {
                    check_next(&mut consumer, &expected, has_data);
                    consumer.skip();
                    consumer.release();
                }
            }
            prop_assert_eq!(consumer.has_record(), !model.is_empty());
        }
        while let Some((expected, has_data)) = model.pop_front() {
            check_next(&mut consumer, &expected, has_data);
        }
        prop_assert_eq!(consumer.pop(), None);
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
            ends.sleeper.prepare_to_wait();
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
        sleeper.prepare_to_wait();
        assert!(ringer.needs_wakeup());
        assert!(!ringer.needs_wakeup());
        sleeper.finish_wait();
        assert!(!ringer.needs_wakeup());
    }
}
