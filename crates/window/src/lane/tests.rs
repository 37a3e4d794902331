//! Long data by either kind of stores, and lines that the consumer owns.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::collections::VecDeque;

use proptest::prelude::*;

use super::store_choice::{StoreChoice, Stores};
use super::{Consumer, OWN_LINES, Producer, Record, SHORT_WORDS};
use crate::layout::{LaneSize, Layout};
use crate::raw::STREAMING_MIN;
use crate::{Side, Window};

const LANE: LaneSize = LaneSize {
    slots: 64,
    data: 64 * 1024,
};

fn lane() -> (Producer, Consumer) {
    let window = Window::create(Layout::new([LANE, LANE]).unwrap()).unwrap();
    let [producer, _] = window.ends(Side::Creator).unwrap().producers;
    let [consumer, _] = window.ends(Side::Attacher).unwrap().consumers;
    (producer, consumer)
}

/// The data with a number.
fn data(number: u64, length: u32) -> Vec<u8> {
    let bytes = (0..251u8)
        .cycle()
        .skip(usize::try_from(number % 251).unwrap());
    bytes.take(length as usize).collect()
}

/// Pushes data; returns where it is, if there was room.
fn push(producer: &mut Producer, number: u64, length: u32) -> Option<u64> {
    let room = producer.room(length).unwrap()?;
    let bytes = data(number, length);
    // As an MPI library: a header, and the message.
    let (head, message) = bytes.split_at(bytes.len().min(14));
    let at = u64::from(room.offset);
    producer.write(at, head).unwrap();
    producer.write(at + 14, message).unwrap();
    let body = [number, at, length.into(), 0, 0, 0, 0];
    producer.push_with_data(&Record { tag: 1, body }, room);
    Some(at)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u32),
    /// Reads the next record, by a copy or in place.
    Read {
        in_place: bool,
    },
    Release,
    /// The choice changes, perhaps while data is unread.
    Choose(Stores),
    /// The next long data is a trial.
    Trial,
}

fn stores() -> impl Strategy<Value = Stores> {
    prop::sample::select(&[Stores::Ordinary, Stores::Owned, Stores::NonTemporal])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..24 * 1024u32).prop_map(Step::Push),
        3 => any::<bool>().prop_map(|in_place| Step::Read { in_place }),
        1 => Just(Step::Release),
        1 => stores().prop_map(Step::Choose),
        1 => Just(Step::Trial),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// What is not released stays as it was written.
    #[test]
    fn data_stays_until_it_is_released(steps in prop::collection::vec(step(), 1..200)) {
        let (mut producer, mut consumer) = lane();
        // What was pushed: numbers, offsets and lengths; of it, how much was read.
        let (mut model, mut read) = (VecDeque::new(), 0);
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Push(length) => {
                    if let Some(at) = push(&mut producer, number, length) {
                        model.push_back((number, at, length));
                    }
                }
                Step::Read { in_place } if read < model.len() => {
                    let record = consumer.pop().unwrap();
                    let (number, at, length) = model[read];
                    prop_assert_eq!(&record.body[..3], &[number, at, length.into()]);
                    let mut bytes = vec![0; length as usize];
                    match in_place {
                        true => prop_assert!(
                            consumer.read_in_place(super::Place::Data(at), length as usize).is_some()
                        ),
                        false => consumer.read(at, &mut bytes).unwrap(),
                    }
                    prop_assert!(in_place || bytes == data(number, length));
                    read += 1;
                }
                Step::Read { .. } => prop_assert_eq!(consumer.pop(), None),
                Step::Release => {
                    if consumer.release() {
                        model.drain(..read);
                        read = 0;
                    }
                }
                Step::Choose(stores) => producer.choice = StoreChoice::with(stores),
                Step::Trial => producer.choice.try_next(),
            }
            for (number, at, length) in &model {
                let mut bytes = vec![0; *length as usize];
                consumer.data.read(*at, &mut bytes).unwrap();
                prop_assert_eq!(bytes, data(*number, *length));
            }
        }
    }
}

/// Pushes and reads one record; returns whether its lines were owned.
fn owns_lines(producer: &mut Producer, consumer: &mut Consumer, length: u32) -> bool {
    let at = push(producer, 1, length).unwrap();
    let mut bytes = vec![0; length as usize];
    consumer.pop().unwrap();
    let asked = consumer.header & OWN_LINES != 0;
    consumer.read(at, &mut bytes).unwrap();
    assert!(consumer.release());
    let lines = bytes.iter().step_by(64).count();
    let mut after = vec![0; length as usize];
    consumer.data.read(at, &mut after).unwrap();
    let written = after
        .iter()
        .zip(&bytes)
        .filter(|(after, before)| after != before);
    // The first byte of a line may have been 0.
    assert_eq!(written.count() > lines / 2, asked);
    assert!(
        after
            .iter()
            .skip(1)
            .step_by(64)
            .eq(bytes.iter().skip(1).step_by(64))
    );
    asked
}

#[test]
fn the_consumer_owns_the_lines_of_long_data_if_the_producer_asks() {
    let (mut producer, mut consumer) = lane();
    let long = u32::try_from(STREAMING_MIN).unwrap() + 14;
    assert!(!owns_lines(&mut producer, &mut consumer, long));
    producer.choice = StoreChoice::with(Stores::Owned);
    assert!(owns_lines(&mut producer, &mut consumer, long));
    assert!(!owns_lines(&mut producer, &mut consumer, long - 1));
    for other in [Stores::Ordinary, Stores::NonTemporal] {
        producer.choice = StoreChoice::with(other);
        assert!(!owns_lines(&mut producer, &mut consumer, long));
    }
}

/// The choice changes while the other thread reads.
#[test]
fn between_two_threads_data_of_either_kind_arrives_whole() {
    const COUNT: u64 = 20_000;
    let (mut producer, mut consumer) = lane();
    let length = |number: u64| u32::try_from(number * 37 % 24_000).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COUNT {
                match number % 50 {
                    0 => producer.choice = StoreChoice::with(Stores::Owned),
                    15 => producer.choice = StoreChoice::with(Stores::Ordinary),
                    30 => producer.choice = StoreChoice::with(Stores::NonTemporal),
                    _ => {}
                }
                while push(&mut producer, number, length(number)).is_none() {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..COUNT {
            let record = loop {
                match consumer.pop() {
                    Some(record) => break record,
                    None => std::thread::yield_now(),
                }
            };
            let mut bytes = vec![0; length(number) as usize];
            consumer.read(record.body[1], &mut bytes).unwrap();
            assert!(bytes == data(number, length(number)), "{number}");
            consumer.release();
        }
    });
}

/// Short records in words, behind and before others, look like those in pieces.
#[test]
fn a_record_in_words_is_read_as_one_in_pieces() {
    let (mut producer, mut consumer) = lane();
    for number in 0..1000_u64 {
        assert!(producer.has_room().unwrap());
        let (first, words) = (number as u16, [number; SHORT_WORDS].map(|word| word << 40));
        let bytes = words.map(u64::to_le_bytes);
        match number % 5 {
            0 => producer.push_pieces(7, number << 16, &[bytes.as_flattened()], 24),
            1 => producer.push_pieces(7, first.into(), &[bytes.as_flattened()], 24),
            _ => producer.push_words(7, first, &words),
        }
        assert_eq!(consumer.tag(), Some(7));
        let expected = if number % 5 == 0 {
            number << 16
        } else {
            first.into()
        };
        assert_eq!(consumer.first(), expected);
        let mut read = [0; 8 * SHORT_WORDS];
        consumer.bytes(&mut read);
        assert_eq!(read.as_slice(), bytes.as_flattened());
        consumer.step();
        consumer.release();
    }
}
