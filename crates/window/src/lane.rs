//! A lane: a single-producer, single-consumer ring of records in one direction, with a data area.
//!
//! A slot's header holds the record's tag in the high half and its sequence number in the low half.
//! The sequence number is the position plus one, so memory that was never written, or that was last
//! written one lap ago, does not look like a record. The consumer therefore polls the cache line
//! that holds the record itself, and needs no separate index. The only word that the consumer
//! writes is the number of slots that it has released. It writes that word seldom: after a quarter
//! of the ring, or after it took data. The producer reads that word only when it has no free slot
//! left.
//!
//! The data area is used in the order of the slots, first in, first out. Only the producer keeps
//! which part of it belongs to which slot. A record that carries data holds the data's offset; the
//! consumer checks offset and length against the data area when it reads.

use crate::ProtocolError;
use crate::layout::LaneOffsets;
use crate::raw::{self, Access, Body, Mapping, SharedBytes, Slots, Word};
use std::ptr::NonNull;
use std::sync::Arc;

/// Data is allocated in whole cache lines.
const CACHE_LINE: u64 = 64;

/// Bytes that fit into a slot behind the first word of the record's body.
pub const INLINE_BYTES: usize = raw::INLINE_BYTES;

/// Slots ahead of the head that the producer prefetches for writing.
const PREFETCH_DISTANCE: u32 = 4;

/// A record: 4 bytes of tag and seven 8-byte words, in one cache line with their sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The kind of the record. The user of the lane defines the values.
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

/// The producer's end of a lane.
#[derive(Debug)]
pub struct Producer {
    slots: Slots,
    released: Word,
    data: SharedBytes,
    capacity: u64,
    /// The next slot to write, and the first slot that may still be unread; both free running.
    head: u32,
    tail: u32,
    /// The same for the data area.
    data_head: u64,
    data_tail: u64,
    /// Where the used data ended after each slot.
    ends: Box<[u64]>,
}

/// The consumer's end of a lane.
#[derive(Debug)]
pub struct Consumer {
    slots: Slots,
    released: Word,
    data: SharedBytes,
    /// The next slot to read, and the value last written to `released`; both free running.
    next: u32,
    last_released: u32,
    data_taken: bool,
}

impl Producer {
    pub(crate) fn new(mapping: &Arc<Mapping>, offsets: &LaneOffsets) -> Option<Self> {
        let count = offsets.size.slots;
        Some(Self {
            slots: Slots::new(mapping, offsets.ring, count)?,
            released: Word::new(mapping, offsets.released)?,
            data: data(mapping, offsets)?,
            capacity: u64::from(offsets.size.data),
            head: 0,
            tail: 0,
            data_head: 0,
            data_tail: 0,
            ends: vec![0; count as usize].into_boxed_slice(),
        })
    }

    /// Returns whether a record can be pushed.
    ///
    /// # Errors
    /// The consumer released slots that were never written.
    #[inline(always)]
    pub fn has_room(&mut self) -> Result<bool, ProtocolError> {
        let used = self.head.wrapping_sub(self.tail);
        if used < self.slots.count() {
            return Ok(true);
        }
        self.catch_up()?;
        Ok(self.head != self.tail.wrapping_add(self.slots.count()))
    }

    /// Reads how many slots the consumer has released.
    #[cold]
    fn catch_up(&mut self) -> Result<(), ProtocolError> {
        let now = self.released.load();
        let (released, outstanding) = (
            now.wrapping_sub(self.tail),
            self.head.wrapping_sub(self.tail),
        );
        if released > outstanding {
            return Err(ProtocolError::Released {
                released,
                outstanding,
            });
        }
        if released > 0 {
            let last = now.wrapping_sub(1) & (self.slots.count() - 1);
            self.data_tail = self.ends.get(last as usize).copied().unwrap_or_default();
        }
        self.tail = now;
        Ok(())
    }

    /// Returns space for `length` contiguous bytes of data, with a free slot for the record that
    /// carries them; `None` if the consumer has to release some first. Nothing is allocated before
    /// [`push_with_data`](Self::push_with_data).
    ///
    /// # Errors
    /// As [`has_room`](Self::has_room).
    #[inline]
    pub fn room(&mut self, length: u32) -> Result<Option<Room>, ProtocolError> {
        if !self.has_room()? {
            return Ok(None);
        }
        let room = self.place(length);
        if room.end - self.data_tail <= self.capacity {
            return Ok(Some(room));
        }
        self.catch_up()?;
        Ok((room.end - self.data_tail <= self.capacity).then_some(room))
    }

    /// Returns where the data would go. Data is contiguous, so it may skip the end of the area.
    #[inline]
    fn place(&self, length: u32) -> Room {
        let length = u64::from(length).next_multiple_of(CACHE_LINE);
        let offset = self.data_head & (self.capacity - 1);
        let skip = match offset + length > self.capacity {
            true => self.capacity - offset,
            false => 0,
        };
        let start = self.data_head + skip;
        Room {
            // Below the capacity, which is 32 bits.
            offset: u32::try_from(start & (self.capacity - 1)).unwrap_or_default(),
            end: start + length,
        }
    }

    /// Copies data into the data area, at byte `at`; `None` if it does not fit there.
    #[inline]
    #[must_use]
    pub fn write(&self, at: u64, bytes: &[u8]) -> Option<()> {
        self.data.write(at, bytes)
    }

    /// Publishes a record. The caller must have checked [`has_room`](Self::has_room).
    #[inline(always)]
    pub fn push(&mut self, record: &Record) {
        let header = self.header(record.tag);
        self.slots.write(self.head, header, &record.body);
        self.advance();
    }

    /// Publishes a record whose body is one word followed by at most [`INLINE_BYTES`] bytes. The
    /// caller must have checked [`has_room`](Self::has_room). Body words that the bytes do not
    /// reach are not written: they keep what an earlier record had there.
    #[inline(always)]
    pub fn push_bytes(&mut self, tag: u32, first: u64, bytes: &[u8]) {
        let header = self.header(tag);
        self.slots.write_bytes(self.head, header, first, bytes);
        self.advance();
    }

    /// Returns the header of the next record.
    #[inline(always)]
    fn header(&self, tag: u32) -> u64 {
        u64::from(tag) << 32 | u64::from(self.head.wrapping_add(1))
    }

    /// Moves the head behind the record that was just published.
    #[inline(always)]
    fn advance(&mut self) {
        let place = (self.head & (self.slots.count() - 1)) as usize;
        if let Some(end) = self.ends.get_mut(place) {
            *end = self.data_head;
        }
        self.head = self.head.wrapping_add(1);
        self.slots
            .prefetch_write(self.head.wrapping_add(PREFETCH_DISTANCE));
    }

    /// Publishes a record that carries the data written into `room`.
    #[inline]
    pub fn push_with_data(&mut self, record: &Record, room: Room) {
        self.data_head = room.end;
        self.push(record);
    }

    /// Copies data from another lane's last record, without interpreting it. `at` is as for
    /// [`write`](Self::write), `offset` as for [`Consumer::read`].
    #[inline]
    #[must_use]
    pub fn copy_from(&self, at: u64, from: &mut Consumer, offset: u64, length: u32) -> Option<()> {
        from.data_taken = true;
        from.data.copy_to(offset, &self.data, at, length as usize)
    }

    /// Returns the length of the data area in bytes. Data of more than half of it may not fit
    /// contiguously.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl Consumer {
    pub(crate) fn new(mapping: &Arc<Mapping>, offsets: &LaneOffsets) -> Option<Self> {
        Some(Self {
            slots: Slots::new(mapping, offsets.ring, offsets.size.slots)?,
            released: Word::new(mapping, offsets.released)?,
            data: data(mapping, offsets)?,
            next: 0,
            last_released: 0,
            data_taken: false,
        })
    }

    /// Returns whether the next record is published.
    #[inline(always)]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.tag().is_some()
    }

    /// Returns the tag of the next record, if it is published. The record stays the next one until
    /// [`pop`](Self::pop) or [`step`](Self::step).
    #[inline(always)]
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the halves of a word"
    )]
    pub fn tag(&self) -> Option<u32> {
        let header = self.slots.header(self.next);
        (header as u32 == self.next.wrapping_add(1)).then_some((header >> 32) as u32)
    }

    /// Copies the next record out of its slot. Its data stays until [`release`](Self::release).
    #[inline(always)]
    #[must_use]
    pub fn pop(&mut self) -> Option<Record> {
        let tag = self.tag()?;
        Some(self.take(tag))
    }

    /// Copies the next record out of its slot, with the tag that [`tag`](Self::tag) returned.
    /// Reading the tag again could return another value, because the producer can write there at
    /// any time. Otherwise as [`pop`](Self::pop).
    #[inline(always)]
    #[must_use]
    pub fn take(&mut self, tag: u32) -> Record {
        let body = self.slots.body(self.next);
        self.step();
        Record { tag, body }
    }

    /// Copies the next record out of its slot, as [`take`](Self::take), but the record stays the next
    /// one.
    #[inline]
    #[must_use]
    pub fn peek(&self, tag: u32) -> Record {
        let body = self.slots.body(self.next);
        Record { tag, body }
    }

    /// Returns the address of data of the next record; `None` if it is not all inside the data area.
    /// The data stays there until [`release`](Self::release), and the producer can change it at any
    /// time.
    #[inline]
    #[must_use]
    pub fn data_address(&self, offset: u64, length: usize) -> Option<NonNull<u8>> {
        self.data.address_of(offset, length)
    }

    /// Returns the first word of the next record's body. A second call may return another value,
    /// because the producer can write there at any time.
    #[inline(always)]
    #[must_use]
    pub fn first(&self) -> u64 {
        self.slots.first(self.next)
    }

    /// Copies the bytes behind the first word of the next record's body, reading each word once;
    /// fills at most [`INLINE_BYTES`] bytes.
    #[inline(always)]
    pub fn bytes(&self, to: &mut [u8]) {
        self.slots.read_bytes(self.next, to);
    }

    /// Moves on to the record behind the current one.
    #[inline(always)]
    pub fn step(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.slots.prefetch_read(self.next);
    }

    /// Copies data of the last record out; `None` if it is not all inside the data area.
    #[inline]
    #[must_use]
    pub fn read(&mut self, offset: u64, to: &mut [u8]) -> Option<()> {
        self.data_taken = true;
        self.data.read(offset, to)
    }

    /// Drops the data of a record without reading it, so that its space can be released.
    #[inline]
    pub fn skip(&mut self) {
        self.data_taken = true;
    }

    /// Releases the slots and the data that were read, if a quarter of the ring or any data was
    /// used. Returns true if it wrote the released count: then the producer may have to be woken.
    #[inline(always)]
    pub fn release(&mut self) -> bool {
        let quarter = self.slots.count() / 4;
        if !self.data_taken && self.next.wrapping_sub(self.last_released) < quarter {
            return false;
        }
        self.data_taken = false;
        self.last_released = self.next;
        self.released.store(self.next);
        true
    }
}

fn data(mapping: &Arc<Mapping>, offsets: &LaneOffsets) -> Option<SharedBytes> {
    let length = u64::from(offsets.size.data);
    SharedBytes::new(mapping, offsets.data, length, Access::ReadWrite)
}
