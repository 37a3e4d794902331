//! Records of every size in any order, against a model.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use window::lane::{Consumer, INLINE_BYTES, Producer};

use crate::{DATA, SLOTS, lane, push, window};

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
