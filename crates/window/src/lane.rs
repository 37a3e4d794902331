//! One direction's stream of records: a ring of slots, and data that goes with them in order.
//!
//! A slot's header is its tag in the high and its sequence number in the low half: position plus
//! one, so that memory that was never written, or was written a lap ago, is no record. The
//! consumer thus polls the line that the record is in, and needs no index. The only word it
//! writes is how many slots it has released; it writes it seldom, when a quarter of the ring is
//! used up or data was taken, and the producer reads it only when it knows of no free slot.
//!
//! Data is used like the slots: first in, first out. Which part of it belongs to which slot the
//! producer alone remembers. A record that carries data says where it is, and the consumer checks
//! that against the data area's length when it reads.

use crate::ProtocolError;
use crate::layout::LaneOffsets;
use crate::raw::{self, Access, Body, Mapping, SharedBytes, Slots, Word};
use std::sync::Arc;

/// Data is used in whole cache lines.
const CACHE_LINE: u64 = 64;

/// Bytes that a record has room for behind the first word of its body.
pub const INLINE_BYTES: usize = raw::INLINE_BYTES;

/// How far ahead the producer asks for the lines it will write.
const PREFETCH_DISTANCE: u32 = 4;

/// A record: 4 bytes of tag and seven words, in one cache line with their sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What it is, in the user's own terms.
    pub tag: u32,
    /// The rest.
    pub body: Body,
}

/// Data that a record will carry.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Where it lies in the data area, in bytes. The record has to say it.
    pub offset: u32,
    /// Where the data in use will end, free running.
    end: u64,
}

/// The writing end of a lane.
#[derive(Debug)]
pub struct Producer {
    slots: Slots,
    released: Word,
    data: SharedBytes,
    capacity: u64,
    /// The next slot to write, and the first that may still be unread; free running.
    head: u32,
    tail: u32,
    /// The same of data.
    data_head: u64,
    data_tail: u64,
    /// Where data ended after each slot.
    ends: Box<[u64]>,
}

/// The reading end of a lane.
#[derive(Debug)]
pub struct Consumer {
    slots: Slots,
    released: Word,
    data: SharedBytes,
    /// The next slot to read, and how far they were released; free running.
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

    /// Whether a record can be pushed.
    ///
    /// # Errors
    /// The consumer claims to have read what was not written.
    #[inline(always)]
    pub fn has_room(&mut self) -> Result<bool, ProtocolError> {
        let used = self.head.wrapping_sub(self.tail);
        if used < self.slots.count() {
            return Ok(true);
        }
        self.catch_up()?;
        Ok(self.head != self.tail.wrapping_add(self.slots.count()))
    }

    /// Learn what was released.
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

    /// Room for `length` bytes of data, in one piece, and for the record that carries it; `None`
    /// when the consumer has to read first. Nothing is taken before [`push_with_data`](Self::push_with_data).
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

    /// Where data would go: in one piece, so the end of the area may have to be skipped.
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

    /// Write data; `at` counts from the start of the data area. `None` when it does not fit there.
    #[inline]
    #[must_use]
    pub fn write(&self, at: u64, bytes: &[u8]) -> Option<()> {
        self.data.write(at, bytes)
    }

    /// Publish a record. There must be room, as [`has_room`](Self::has_room) tells.
    #[inline(always)]
    pub fn push(&mut self, record: &Record) {
        let header = self.header(record.tag);
        self.slots.write(self.head, header, &record.body);
        self.advance();
    }

    /// Publish a record whose body is a word and then bytes, at most [`INLINE_BYTES`] of them. There must
    /// be room, as [`has_room`](Self::has_room) tells. Words of the body that are not needed are
    /// not written: they hold what an earlier record had there.
    #[inline(always)]
    pub fn push_bytes(&mut self, tag: u32, first: u64, bytes: &[u8]) {
        let header = self.header(tag);
        self.slots.write_bytes(self.head, header, first, bytes);
        self.advance();
    }

    /// The header of the next record.
    #[inline(always)]
    fn header(&self, tag: u32) -> u64 {
        u64::from(tag) << 32 | u64::from(self.head.wrapping_add(1))
    }

    /// The next record is published.
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

    /// Publish a record that carries the data written into `room`.
    #[inline]
    pub fn push_with_data(&mut self, record: &Record, room: Room) {
        self.data_head = room.end;
        self.push(record);
    }

    /// Write data of another lane's last record, unseen; `at` counts as for [`write`](Self::write),
    /// `offset` as for [`Consumer::read`].
    #[inline]
    #[must_use]
    pub fn copy_from(&self, at: u64, from: &mut Consumer, offset: u64, length: u32) -> Option<()> {
        from.data_taken = true;
        from.data.copy_to(offset, &self.data, at, length as usize)
    }

    /// Bytes the data area has. More than half of it may not fit in one piece.
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

    /// Whether a record is there.
    #[inline(always)]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.tag().is_some()
    }

    /// The tag of the next record, if one is there. Until [`pop`](Self::pop) or
    /// [`step`](Self::step), the record is the next one.
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

    /// Take the next record out of its slot. Its data stays until [`release`](Self::release).
    #[inline(always)]
    #[must_use]
    pub fn pop(&mut self) -> Option<Record> {
        let tag = self.tag()?;
        Some(self.take(tag))
    }

    /// Take the next record, whose [`tag`](Self::tag) was looked at. Another look may find another: the
    /// producer can write there at any time. As [`pop`](Self::pop).
    #[inline(always)]
    #[must_use]
    pub fn take(&mut self, tag: u32) -> Record {
        let body = self.slots.body(self.next);
        self.step();
        Record { tag, body }
    }

    /// The first word of the next record's body. Another look may find another: the producer can
    /// write there at any time.
    #[inline(always)]
    #[must_use]
    pub fn first(&self) -> u64 {
        self.slots.first(self.next)
    }

    /// Copy the bytes behind the first word of the next record's body, each read once; no more than
    /// [`INLINE_BYTES`] are filled.
    #[inline(always)]
    pub fn bytes(&self, to: &mut [u8]) {
        self.slots.read_bytes(self.next, to);
    }

    /// Done with the next record: it is the one behind it now.
    #[inline(always)]
    pub fn step(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.slots.prefetch_read(self.next);
    }

    /// Copy data of the last record out; `None` when it is not all inside the data area.
    #[inline]
    #[must_use]
    pub fn read(&mut self, offset: u64, to: &mut [u8]) -> Option<()> {
        self.data_taken = true;
        self.data.read(offset, to)
    }

    /// Data of a record was not wanted: its room is free all the same.
    #[inline]
    pub fn skip(&mut self) {
        self.data_taken = true;
    }

    /// Give back the slots and the data that were read, if it is worth telling. True when it was
    /// last_released: then the producer may have to be woken.
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
