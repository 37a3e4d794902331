//! Records as they lie in a lane. Everything a peer can write is decoded and checked here: whoever has an
//! [`Envelope`] or a [`Control`] need not ask whether a length is one of its kind.
//!
//! A tag has the kind in its low byte; an eager record also the length in the next. Words of the
//! body, in order:
//!
//! | lane | record | words |
//! |---|---|---|
//! | messages | eager | match value, 48 bytes of message |
//! | messages | medium | match value, place and length of the message in the data area, the sender's request or none |
//! | messages | offer | match value, length, the sender's request, place in the sender's heap or none |
//! | messages | lent | match value, length, the sender's request, unit and number in its member's heap |
//! | control | done | the sender's request, bytes taken |
//! | control | pull | the sender's request, the receiver's request, bytes wanted, whether the sender's request ends by *done* |
//! | control | chunk | the receiver's request, place and length in the data area |

use window::lane::Record;
use window::region::Place;

use crate::limits::{CHUNK, EAGER, MEDIUM};

/// No request, no place.
const NONE: u64 = u64::MAX;

const EAGER_KIND: u32 = 1;
const MEDIUM_KIND: u32 = 2;
const OFFER_KIND: u32 = 3;
const DONE_KIND: u32 = 4;
const PULL_KIND: u32 = 5;
const CHUNK_KIND: u32 = 6;
const LENT_KIND: u32 = 7;

/// A request as the other side knows it; means something to its owner only.
pub(crate) type Handle = u64;

/// What begins a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Envelope {
    /// All of it.
    Eager {
        value: u64,
        length: usize,
        words: [u64; 6],
    },
    /// All of it is in the data area. With a handle, its sender wants to know when it is received.
    Medium {
        value: u64,
        offset: u32,
        length: u32,
        sender: Option<Handle>,
    },
    /// It can be had.
    Offer {
        value: u64,
        length: u64,
        sender: Handle,
        source: Source,
    },
}

/// Where an offered message can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nowhere: it is streamed.
    Stream,
    /// On the heap of its sender.
    Heap(u64),
    /// On the heap of the member that its sender is of.
    Lent(Place),
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The message is received, as far as there was room for it.
    Done { sender: Handle, taken: u64 },
    /// Stream it. If it is confirmed, the send ends when the other side says that it is received,
    /// not when all of it was streamed.
    Pull {
        sender: Handle,
        receiver: Handle,
        wanted: u64,
        confirmed: bool,
    },
    /// A piece of it.
    Chunk {
        receiver: Handle,
        offset: u32,
        length: u32,
    },
}

/// Two halves in one word.
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// What [`pair`] put into a word.
#[allow(
    clippy::cast_possible_truncation,
    reason = "picking the halves of a word"
)]
pub(crate) fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn some(word: u64) -> Option<u64> {
    (word != NONE).then_some(word)
}

/// The tag of an eager record of so many bytes, at most [`EAGER`]. Its body is the match value and
/// the bytes.
#[inline(always)]
pub(crate) fn eager_tag(length: u8) -> u32 {
    EAGER_KIND | u32::from(length) << 8
}

/// How many bytes a record has, if it is an eager one.
#[inline(always)]
pub(crate) fn eager_length(tag: u32) -> Option<usize> {
    let length = (tag >> 8) as usize;
    (tag & 0xff == EAGER_KIND && length <= EAGER).then_some(length)
}

fn eager(value: u64, length: u8, words: [u64; 6]) -> Record {
    let [a, b, c, d, e, f] = words;
    Record {
        tag: eager_tag(length),
        body: [value, a, b, c, d, e, f],
    }
}

/// An eager record of these bytes; no more of them than fit.
pub(crate) fn eager_bytes(value: u64, bytes: &[u8]) -> Record {
    let mut words = [[0; 8]; 6];
    for (place, byte) in words.as_flattened_mut().iter_mut().zip(bytes) {
        *place = *byte;
    }
    let length = u8::try_from(bytes.len().min(EAGER)).unwrap_or_default();
    eager(value, length, words.map(u64::from_ne_bytes))
}

impl Envelope {
    #[cfg(test)]
    pub(crate) fn encode(&self) -> Record {
        match *self {
            Self::Eager {
                value,
                length,
                words,
            } => eager(value, u8::try_from(length).unwrap(), words),
            Self::Medium {
                value,
                offset,
                length,
                sender,
            } => medium(value, offset, length, sender),
            Self::Offer {
                value,
                length,
                sender,
                source,
            } => offer(value, length, sender, source),
        }
    }

    /// `None` for what is no envelope.
    #[inline(always)]
    pub(crate) fn decode(record: &Record) -> Option<Self> {
        let [value, words @ ..] = record.body;
        let [first, second, third, ..] = words;
        match record.tag & 0xff {
            EAGER_KIND => Some(Self::Eager {
                value,
                length: eager_length(record.tag)?,
                words,
            }),
            MEDIUM_KIND => {
                let (offset, length) = halves(first);
                (u64::from(length) <= MEDIUM).then_some(Self::Medium {
                    value,
                    offset,
                    length,
                    sender: some(second),
                })
            }
            OFFER_KIND => Some(Self::Offer {
                value,
                length: first,
                sender: second,
                source: some(third).map_or(Source::Stream, Source::Heap),
            }),
            LENT_KIND => {
                let (unit, number) = halves(third);
                Some(Self::Offer {
                    value,
                    length: first,
                    sender: second,
                    source: Source::Lent(Place { unit, number }),
                })
            }
            _ => None,
        }
    }
}

pub(crate) fn medium(value: u64, offset: u32, length: u32, sender: Option<Handle>) -> Record {
    let sender = sender.unwrap_or(NONE);
    Record {
        tag: MEDIUM_KIND,
        body: [value, pair(offset, length), sender, 0, 0, 0, 0],
    }
}

pub(crate) fn offer(value: u64, length: u64, sender: Handle, source: Source) -> Record {
    let (tag, place) = match source {
        Source::Stream => (OFFER_KIND, NONE),
        Source::Heap(at) => (OFFER_KIND, at),
        Source::Lent(Place { unit, number }) => (LENT_KIND, pair(unit, number)),
    };
    Record {
        tag,
        body: [value, length, sender, place, 0, 0, 0],
    }
}

impl Control {
    pub(crate) fn encode(&self) -> Record {
        let (tag, first, second, third) = match *self {
            Self::Done { sender, taken } => (DONE_KIND, sender, taken, 0),
            Self::Pull {
                sender,
                receiver,
                wanted,
                confirmed,
            } => {
                let body = [sender, receiver, wanted, confirmed.into(), 0, 0, 0];
                return Record {
                    tag: PULL_KIND,
                    body,
                };
            }
            Self::Chunk {
                receiver,
                offset,
                length,
            } => (CHUNK_KIND, receiver, pair(offset, length), 0),
        };
        Record {
            tag,
            body: [first, second, third, 0, 0, 0, 0],
        }
    }

    /// `None` for what is no control record.
    pub(crate) fn decode(record: &Record) -> Option<Self> {
        let [first, second, third, fourth, ..] = record.body;
        Some(match record.tag {
            DONE_KIND => Self::Done {
                sender: first,
                taken: second,
            },
            PULL_KIND => Self::Pull {
                sender: first,
                receiver: second,
                wanted: third,
                confirmed: fourth == 1,
            },
            CHUNK_KIND => {
                let (offset, length) = halves(second);
                (length <= CHUNK).then_some(())?;
                Self::Chunk {
                    receiver: first,
                    offset,
                    length,
                }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "32 KiB")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn handle() -> impl Strategy<Value = Handle> {
        0..NONE
    }

    fn source() -> impl Strategy<Value = Source> {
        prop_oneof![
            Just(Source::Stream),
            handle().prop_map(Source::Heap),
            any::<(u32, u32)>().prop_map(|(unit, number)| Source::Lent(Place { unit, number })),
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
                0..=MEDIUM as u32,
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
            (handle(), handle(), any::<u64>(), any::<bool>()).prop_map(
                |(sender, receiver, wanted, confirmed)| Control::Pull {
                    sender,
                    receiver,
                    wanted,
                    confirmed,
                }
            ),
            (handle(), any::<u32>(), 0..=CHUNK).prop_map(|(receiver, offset, length)| {
                Control::Chunk {
                    receiver,
                    offset,
                    length,
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(envelope in envelope(), control in control()) {
            prop_assert_eq!(Envelope::decode(&envelope.encode()), Some(envelope));
            prop_assert_eq!(Control::decode(&control.encode()), Some(control));
        }

        #[test]
        fn any_record_is_answered(tag: u32, body: [u64; 7]) {
            let record = Record { tag, body };
            let _ = Envelope::decode(&record);
            let _ = Control::decode(&record);
        }
    }

    #[test]
    fn a_medium_or_a_chunk_longer_than_one_may_be_is_refused() {
        let most = MEDIUM as u32;
        assert!(Envelope::decode(&medium(1, 0, most, None)).is_some());
        assert_eq!(Envelope::decode(&medium(1, 0, most + 1, None)), None);
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
        assert_eq!(Envelope::decode(&record), None);
        assert_eq!(Control::decode(&record), None);
    }
}
