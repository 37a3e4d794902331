#![allow(clippy::cast_possible_truncation, reason = "64 KiB")]

use super::*;
use crate::limits::{MEDIUM, MEDIUM_WITH_CREDIT};
use proptest::prelude::*;

/// Decodes a record of a lane between two endpoints.
fn decode(record: &Record) -> Option<Envelope> {
    Envelope::decode(record, MEDIUM_WITH_CREDIT)
}

fn handle() -> impl Strategy<Value = Handle> {
    0..NONE
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        Just(Source::Stream),
        handle().prop_map(Source::Heap),
        any::<(u32, u32)>()
            .prop_map(|(unit, generation)| Source::MemberHeap(HeapAddress { unit, generation })),
        any::<(u64, bool, u64)>().prop_map(|(address, single, credited)| Source::Process {
            address,
            flow: if single { Flow::Single } else { Flow::Several },
            credited,
        }),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        any::<(u32, u32)>()
            .prop_map(|(unit, generation)| Target::MemberHeap(HeapAddress { unit, generation })),
        any::<u64>().prop_map(Target::Process),
    ]
}

fn envelope() -> impl Strategy<Value = Envelope> {
    prop_oneof![
        (any::<u64>(), 0..=EAGER, any::<[u64; 6]>()).prop_map(|(value, length, words)| {
            Envelope::Eager {
                value,
                length,
                words,
            }
        }),
        (
            any::<u64>(),
            any::<u32>(),
            0..=MEDIUM_WITH_CREDIT as u32,
            prop::option::of(handle())
        )
            .prop_map(|(value, offset, length, sender)| Envelope::Medium {
                value,
                offset,
                length,
                sender
            }),
        (any::<u64>(), any::<u64>(), handle(), source()).prop_map(
            |(value, length, sender, source)| Envelope::Offer {
                value,
                length,
                sender,
                source
            }
        ),
    ]
}

fn control() -> impl Strategy<Value = Control> {
    prop_oneof![
        (handle(), any::<u64>()).prop_map(|(sender, taken)| Control::Done { sender, taken }),
        (handle(), handle(), any::<(u64, bool)>(), 0..=CREDITS).prop_map(
            |(sender, receiver, (wanted, confirmed), credits)| Control::Pull {
                sender,
                receiver,
                wanted,
                confirmed,
                credits,
            }
        ),
        (handle(), any::<u32>(), 0..=CHUNK).prop_map(|(receiver, offset, length)| {
            Control::Chunk {
                receiver,
                offset,
                length,
            }
        }),
        (handle(), handle(), target(), any::<(u32, u64, bool)>()).prop_map(
            |(sender, receiver, target, (epoch, wanted, is_last))| Control::Share(Share {
                sender,
                receiver,
                target,
                wanted,
                epoch,
                is_last,
            })
        ),
        (handle(), any::<Option<u32>>())
            .prop_map(|(receiver, pieces)| Control::Copied { receiver, pieces }),
    ]
}

proptest! {
    #[test]
    fn records_are_decoded_as_they_were_encoded(envelope in envelope(), control in control()) {
        prop_assert_eq!(decode(&envelope.encode()), Some(envelope));
        prop_assert_eq!(Control::decode(&control.encode()), Some(control));
    }
}

/// A valid record with some of its words changed is refused, or decodes to a value that encodes to
/// the same record.
#[test]
fn any_record_is_decoded_or_refused() {
    use std::cell::Cell;
    let good = prop_oneof![
        envelope().prop_map(|envelope| envelope.encode()),
        control().prop_map(|control| control.encode()),
    ];
    let word = || prop_oneof![0..20u64, any::<u64>()];
    let changes = proptest::collection::vec((0..8usize, word()), 0..8);
    let [read, refused] = [Cell::new(0), Cell::new(0)];
    let mut runner = proptest::test_runner::TestRunner::default();
    let checked = runner.run(&(good, changes), |(mut record, changes)| {
        for (at, word) in changes {
            match record.body.get_mut(at) {
                Some(slot) => *slot = word,
                None => record.tag = u32::try_from(word).unwrap_or(u32::MAX),
            }
        }
        let (envelope, control) = (decode(&record), Control::decode(&record));
        if let Some(envelope) = envelope {
            prop_assert_eq!(decode(&envelope.encode()), Some(envelope));
        }
        if let Some(control) = control {
            prop_assert_eq!(Control::decode(&control.encode()), Some(control));
        }
        let count = match envelope.is_some() || control.is_some() {
            true => &read,
            false => &refused,
        };
        count.set(count.get() + 1);
        Ok(())
    });
    checked.unwrap();
    let counts = (read.get(), refused.get());
    assert!(counts.0 > 50 && counts.1 > 20, "{counts:?}");
}

#[test]
fn a_medium_or_a_chunk_longer_than_one_may_be_is_refused() {
    for longest in [MEDIUM, MEDIUM_WITH_CREDIT] {
        let most = longest as u32;
        assert!(Envelope::decode(&medium(1, 0, most, None), longest).is_some());
        assert_eq!(
            Envelope::decode(&medium(1, 0, most + 1, None), longest),
            None
        );
    }
    let chunk = |length| Control::Chunk {
        receiver: 1,
        offset: 0,
        length,
    };
    assert!(Control::decode(&chunk(CHUNK).encode()).is_some());
    assert_eq!(Control::decode(&chunk(CHUNK + 1).encode()), None);
}

#[test]
fn an_eager_record_longer_than_a_slot_is_refused() {
    let record = eager(1, 49, [0; 6]);
    assert_eq!(decode(&record), None);
    assert_eq!(Control::decode(&record), None);
}
