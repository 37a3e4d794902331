//! The encoding of records in a lane. Everything that a peer can write is decoded and checked here:
//! the fields of an [`Envelope`] or a [`Control`] are within the bounds of their kind.
//!
//! The low byte of a tag is the kind; the next byte of an eager record's tag is the length. The
//! words of the body, in order:
//!
//! | lane | record | words |
//! |---|---|---|
//! | messages | eager | match value, 48 bytes of message |
//! | messages | medium | match value, offset and length of the message in the data area, the sender's request or none |
//! | messages | offer | match value, length, the sender's request, offset in the sender's heap or none |
//! | messages | offer on member heap | match value, length, the sender's request, unit and generation on its member's heap |
//! | messages | offer in process memory | match value, length, the sender's request, address in its process, flow: 1 if single, bytes sent with credits |
//! | control | done | the sender's request, bytes taken |
//! | control | pull | the sender's request, the receiver's request, bytes wanted, whether the sender's request ends by *done*, credits |
//! | control | chunk | the receiver's request, offset and length in the data area |
//! | control | share | the sender's request, the receiver's request, unit and generation in its member's heap, bytes wanted, epoch |
//! | control | share in process memory | the sender's request, the receiver's request, address in the receiver's process, bytes wanted, epoch, whether more of the epoch follow |
//! | control | copied | the receiver's request, pieces or none |

use window::lane::Record;
use window::region::HeapAddress;

use crate::copy_choice::Flow;
use crate::limits::{CHUNK, CREDITS, EAGER};

/// The flow of an offer.
const SINGLE: u64 = 1;

/// No request, no offset.
const NONE: u64 = u64::MAX;

const EAGER_KIND: u32 = 1;
const MEDIUM_KIND: u32 = 2;
const OFFER_KIND: u32 = 3;
const DONE_KIND: u32 = 4;
const PULL_KIND: u32 = 5;
const CHUNK_KIND: u32 = 6;
const MEMBER_HEAP_KIND: u32 = 7;
const SHARE_KIND: u32 = 8;
const COPIED_KIND: u32 = 9;
const PROCESS_MEMORY_KIND: u32 = 10;
const SHARE_PROCESS_MEMORY_KIND: u32 = 11;

/// A request as the other side names it; only its owner interprets it.
pub(crate) type Handle = u64;

/// A record of the message lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Envelope {
    /// The whole message.
    Eager {
        value: u64,
        length: usize,
        words: [u64; 6],
    },
    /// The whole message is in the data area. With a handle, its sender waits until it is received.
    Medium {
        value: u64,
        offset: u32,
        length: u32,
        sender: Option<Handle>,
    },
    /// The sender offers the message.
    Offer {
        value: u64,
        length: u64,
        sender: Handle,
        source: Source,
    },
}

/// The location of an offered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The sender streams it on request.
    Stream,
    /// On the heap of the sender's process, at this offset.
    Heap(u64),
    /// On the heap of the sender's member.
    MemberHeap(HeapAddress),
    /// In the memory of the sender's process, at this address.
    Process {
        address: u64,
        flow: Flow,
        /// Bytes of messages of this flow that the sender has sent with credits since the last offer.
        credited: u64,
    },
}

/// A record of the control lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The receiver has taken the message, as far as it had room.
    Done { sender: Handle, taken: u64 },
    /// Asks the sender to stream the message. If `confirmed`, the send ends with a *done* of the
    /// receiver, otherwise when all of it is streamed. `credits`: as many messages of the same flow may be sent without an offer, see
    /// [`crate::credits`].
    Pull {
        sender: Handle,
        receiver: Handle,
        wanted: u64,
        confirmed: bool,
        credits: u32,
    },
    /// A chunk of a streamed message.
    Chunk {
        receiver: Handle,
        offset: u32,
        length: u32,
    },
    /// Asks the sender to copy the message together with the receiver.
    Share(Share),
    /// The number of pieces that the sender has copied; `None` if it could not copy one that it had claimed.
    Copied {
        receiver: Handle,
        pieces: Option<u32>,
    },
}

/// A receiver's request to copy a message together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) sender: Handle,
    pub(crate) receiver: Handle,
    pub(crate) target: Target,
    pub(crate) wanted: u64,
    /// The epoch of the claims.
    pub(crate) epoch: u32,
    /// No further messages of this epoch follow. Always so on a member's heap.
    pub(crate) is_last: bool,
}

/// Where the receiver of a message that both sides copy wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// On the heap of the receiver's member.
    MemberHeap(HeapAddress),
    /// In the memory of the receiver's process, at this address.
    Process(u64),
}

/// Packs two halves into one word.
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Unpacks the halves of a word.
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

/// Returns the tag of an eager record of this length, at most [`EAGER`]. Its body is the match
/// value and the bytes.
#[inline(always)]
pub(crate) fn eager_tag(length: u8) -> u32 {
    EAGER_KIND | u32::from(length) << 8
}

/// Returns the length of an eager record; `None` for other tags.
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

/// Returns an eager record of these bytes, as far as they fit.
pub(crate) fn eager_bytes(value: u64, bytes: &[u8]) -> Record {
    let mut words = [[0; 8]; 6];
    for (slot, byte) in words.as_flattened_mut().iter_mut().zip(bytes) {
        *slot = *byte;
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

    /// Decodes a record; `None` if it is no valid envelope. `longest`: bytes of a medium message that this lane carries.
    #[inline(always)]
    pub(crate) fn decode(record: &Record, longest: u64) -> Option<Self> {
        let [value, words @ ..] = record.body;
        let [first, second, third, fourth, fifth, ..] = words;
        match record.tag & 0xff {
            EAGER_KIND => Some(Self::Eager {
                value,
                length: eager_length(record.tag)?,
                words,
            }),
            MEDIUM_KIND => {
                let (offset, length) = halves(first);
                (u64::from(length) <= longest).then_some(Self::Medium {
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
            MEMBER_HEAP_KIND => {
                let (unit, generation) = halves(third);
                Some(Self::Offer {
                    value,
                    length: first,
                    sender: second,
                    source: Source::MemberHeap(HeapAddress { unit, generation }),
                })
            }
            PROCESS_MEMORY_KIND => Some(Self::Offer {
                value,
                length: first,
                sender: second,
                source: Source::Process {
                    address: third,
                    flow: match fourth {
                        SINGLE => Flow::Single,
                        _ => Flow::Several,
                    },
                    credited: fifth,
                },
            }),
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
    let (tag, location, flow, credited) = match source {
        Source::Stream => (OFFER_KIND, NONE, 0, 0),
        Source::Heap(at) => (OFFER_KIND, at, 0, 0),
        Source::MemberHeap(HeapAddress { unit, generation }) => {
            (MEMBER_HEAP_KIND, pair(unit, generation), 0, 0)
        }
        Source::Process {
            address,
            flow,
            credited,
        } => {
            let flow = if flow == Flow::Single { SINGLE } else { 0 };
            (PROCESS_MEMORY_KIND, address, flow, credited)
        }
    };
    Record {
        tag,
        body: [value, length, sender, location, flow, credited, 0],
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
                credits,
            } => {
                let (confirmed, credits) = (confirmed.into(), credits.into());
                let body = [sender, receiver, wanted, confirmed, credits, 0, 0];
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
            Self::Share(Share {
                sender,
                receiver,
                target,
                wanted,
                epoch,
                is_last,
            }) => {
                let (tag, target) = match target {
                    Target::MemberHeap(HeapAddress { unit, generation }) => {
                        (SHARE_KIND, pair(unit, generation))
                    }
                    Target::Process(address) => (SHARE_PROCESS_MEMORY_KIND, address),
                };
                let body = [
                    sender,
                    receiver,
                    target,
                    wanted,
                    epoch.into(),
                    u64::from(!is_last),
                    0,
                ];
                return Record { tag, body };
            }
            Self::Copied { receiver, pieces } => {
                (COPIED_KIND, receiver, pieces.map_or(NONE, u64::from), 0)
            }
        };
        Record {
            tag,
            body: [first, second, third, 0, 0, 0, 0],
        }
    }

    /// Decodes a record; `None` if it is no valid control record.
    pub(crate) fn decode(record: &Record) -> Option<Self> {
        let [first, second, third, fourth, fifth, sixth, _] = record.body;
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
                // More are no fault, so that a later version may grant more.
                credits: fifth.min(CREDITS.into()).try_into().ok()?,
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
            SHARE_KIND | SHARE_PROCESS_MEMORY_KIND => {
                let (unit, generation) = halves(third);
                let target = match record.tag {
                    SHARE_KIND => Target::MemberHeap(HeapAddress { unit, generation }),
                    _ => Target::Process(third),
                };
                Self::Share(Share {
                    sender: first,
                    receiver: second,
                    target,
                    wanted: fourth,
                    epoch: fifth.try_into().ok()?,
                    is_last: sixth == 0,
                })
            }
            COPIED_KIND => Self::Copied {
                receiver: first,
                pieces: some(second).map(u32::try_from).transpose().ok()?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
