//! A lane: a single-producer, single-consumer ring of records in one direction, with a data area.
//!
//! ```text
//! slot, a cache line:   | header | body: seven words                        |   a record
//!                       | header | three words   | header | three words   |   two short records
//! header:               sequence number (32 bits) | tag (15) | short (1) | first word, if short (16)
//!                                                                       | otherwise: own lines (1), 0 (15)
//! ```
//!
//! A short record has at most 24 bytes and a first word of 16 bits. Two of them share a slot, so that
//! half as many cache lines move from processor to processor. A record that is not short
//! begins a slot: if the slot before it has one short record, the producer marks its second half as
//! unused, by a header that is not short.
//!
//! Positions count halves of slots. The sequence number is the position plus one, so memory that was
//! never written, or that was last written one lap ago, does not look like a record. The second half of
//! a slot may have held a part of a longer record, which could look like anything. So the producer
//! invalidates the second header before it publishes the first one.
//!
//! The consumer polls the cache line that holds the record itself, and needs no separate index. The only
//! word that the consumer writes is the number of halves that it has released. It writes that word
//! seldom: after a quarter of the ring, or after it took data. The producer reads that word only when it
//! has no free slot left.
//!
//! The data area is used in the order of the slots, first in, first out. Only the producer keeps
//! which part of it belongs to which slot. A record that carries data holds the data's offset; the
//! consumer checks offset and length against the data area when it reads.
//!
//! The producer writes long data by ordinary or by non-temporal stores, whichever are faster (see
//! [`store_choice`]). On some processors, ordinary stores are slow while both sides have a copy of the
//! lines. There, the header of a record whose data was written by them asks the consumer to *own the
//! lines*: to write a byte of each one, after it has read the data and before it releases it. A consumer
//! that does not only makes the lane slower.

mod consumer;
mod distance;
mod producer;
mod store_choice;

pub use consumer::Consumer;
pub use producer::Producer;

use crate::layout::LaneOffsets;
use crate::raw::{self, Access, Body, Mapping, SharedBytes};
use std::sync::Arc;

/// Bytes that fit into a slot behind the first word of the record's body.
pub const INLINE_BYTES: usize = raw::INLINE_BYTES;

/// Bytes of a short record behind its first word.
pub const SHORT_BYTES: usize = raw::SHORT_BYTES;

/// The same in words of 8 bytes.
pub const SHORT_WORDS: usize = raw::SHORT_WORDS;

/// Positions of a slot.
const HALVES: u32 = 2;

/// The bits of a header above its sequence number: the tag, whether the record is short, and the first
/// word of a short record.
const TAG_SHIFT: u32 = 32;
const TAG_MASK: u64 = 0x7fff;
const SHORT: u64 = 1 << 47;
const FIRST_SHIFT: u32 = 48;

/// The bit of the header of a record that is not short which asks the consumer to own the lines of the
/// record's data.
const OWN_LINES: u64 = 1 << 48;

/// A record: a tag and seven 8-byte words, in one cache line with their sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The kind of the record, in 15 bits. The user of the lane defines the values.
    pub tag: u32,
    /// The payload.
    pub body: Body,
}

/// Space in the data area for the data of the next record.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Offset in the data area, in bytes. The record has to carry it.
    pub offset: u32,
    /// Where the used part of the data area will end; free running.
    end: u64,
}

/// Where the bytes of a record are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the slot at this position, behind the first word of the body.
    Slot(u32),
    /// In the half of a slot at this position, behind the header.
    Half(u32),
    /// In the data area, from this offset.
    Data(u64),
}

fn data(mapping: &Arc<Mapping>, offsets: &LaneOffsets) -> Option<SharedBytes> {
    let length = u64::from(offsets.size.data);
    SharedBytes::new(mapping, offsets.data, length, Access::ReadWrite)
}

#[cfg(all(not(loom), test))]
mod tests;

#[cfg(all(loom, test))]
mod model {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    /// The words of a slot: the two headers, and a word behind each. The slot had a longer record
    /// before, whose bytes look like the header of the second position.
    struct Slot {
        headers: [AtomicU32; 2],
        words: [AtomicU32; 2],
    }

    fn publish(slot: &Slot, half: usize, word: u32) {
        slot.words[half].store(word, Ordering::Relaxed);
        if half == 0 {
            slot.headers[1].store(1, Ordering::Relaxed);
        }
        slot.headers[half].store(half as u32 + 1, Ordering::Release);
    }

    /// A consumer never takes the rest of an earlier record for the second short record of a slot.
    #[test]
    fn two_short_records_of_a_slot_are_read_whole() {
        loom::model(|| {
            let slot = Arc::new(Slot {
                headers: [AtomicU32::new(0), AtomicU32::new(2)],
                words: [AtomicU32::new(97), AtomicU32::new(98)],
            });
            let producer = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    publish(&slot, 0, 11);
                    publish(&slot, 1, 12);
                })
            };
            if slot.headers[0].load(Ordering::Acquire) == 1 {
                assert_eq!(slot.words[0].load(Ordering::Relaxed), 11);
                if slot.headers[1].load(Ordering::Acquire) == 2 {
                    assert_eq!(slot.words[1].load(Ordering::Relaxed), 12);
                }
            }
            producer.join().unwrap();
        });
    }

    /// A consumer that owns a line writes it before the producer writes the next data there.
    #[test]
    fn the_write_that_owns_a_line_never_overwrites_the_next_data() {
        loom::model(|| {
            let words = Arc::new([(); 3].map(|()| AtomicU32::new(0)));
            let [data, header, released] = [0, 1, 2];
            let producer = {
                let words = Arc::clone(&words);
                thread::spawn(move || {
                    words[data].store(7, Ordering::Relaxed);
                    words[header].store(1, Ordering::Release);
                    if words[released].load(Ordering::Acquire) == 1 {
                        words[data].store(8, Ordering::Relaxed);
                        words[header].store(2, Ordering::Release);
                    }
                })
            };
            if words[header].load(Ordering::Acquire) == 1 {
                assert_eq!(words[data].load(Ordering::Relaxed), 7);
                words[data].store(0, Ordering::Relaxed);
                words[released].store(1, Ordering::Release);
            }
            producer.join().unwrap();
            if words[header].load(Ordering::Acquire) == 2 {
                assert_eq!(words[data].load(Ordering::Relaxed), 8);
            }
        });
    }
}
