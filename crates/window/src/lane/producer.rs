//! The producer's end.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use super::distance::Distance;
use super::store_choice::{Copy, StoreChoice, Stores};
use super::{
    FIRST_SHIFT, HALVES, OWN_LINES, Record, Room, SHORT, SHORT_WORDS, TAG_MASK, TAG_SHIFT, data,
};
use crate::ProtocolError;
use crate::lane::Consumer;
use crate::layout::LaneOffsets;
use crate::raw::{
    LINE, Mapping, SHORT_BYTES, STREAMING_MIN, SharedBytes, Slots, Word, is_emulated, ticks,
};

/// Data is allocated in whole cache lines.
const CACHE_LINE: u64 = LINE as u64;

/// Slots ahead of the head that the producer prefetches for writing.
const PREFETCH_DISTANCE: u32 = 4;

/// Bytes from which on data can be a trial.
const TRIAL_MIN: usize = 16 * 1024;

/// Data that starts before this offset is at the begin of the area, perhaps behind a header of the program.
const BEGIN: u64 = 4 * CACHE_LINE;

/// Returns how many bytes a trial writes by each kind of stores: whole lines.
fn trial_part(bytes: &[u8]) -> usize {
    bytes.len() / 2 / LINE * LINE
}

/// The producer's end of a lane.
#[derive(Debug)]
pub struct Producer {
    slots: Slots,
    released: Word,
    data: SharedBytes,
    capacity: u64,
    /// The next position to write, and the first one that may still be unread; both free running.
    head: u32,
    tail: u32,
    /// The same for the data area.
    data_head: u64,
    data_tail: u64,
    /// Unread records with data, in order: the position behind the record, and where the used data ends with it.
    ends: VecDeque<(u32, u64)>,
    pub(super) choice: StoreChoice,
    distance: Distance,
    /// Long data of the next record was written, all or a part, by stores that want the consumer to own the lines.
    own_lines: bool,
    /// Long data is written by ordinary stores, without trials.
    in_cache: bool,
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
            ends: VecDeque::with_capacity(count as usize),
            choice: StoreChoice::new(is_emulated()),
            distance: Distance::new(),
            own_lines: false,
            in_cache: false,
        })
    }

    /// Returns whether a record can be pushed.
    ///
    /// # Errors
    /// The consumer released slots that were never written.
    #[inline(always)]
    pub fn has_room(&mut self) -> Result<bool, ProtocolError> {
        if self.has_free_slot() {
            return Ok(true);
        }
        self.catch_up()?;
        Ok(self.has_free_slot())
    }

    /// Returns whether a slot is known to be free, besides the second half of the last one. The consumer may have released
    /// others, which [`has_room`](Self::has_room) finds.
    #[inline(always)]
    #[must_use]
    pub fn has_free_slot(&self) -> bool {
        let used = self.head.wrapping_sub(self.tail);
        // No overflow: each term is far below 32 bits. Each message passes here, so nothing checks that once more.
        used.wrapping_add(self.head % HALVES) <= self.slots.positions().wrapping_sub(HALVES)
    }

    /// Reads up to which position the consumer has released.
    #[cold]
    fn catch_up(&mut self) -> Result<(), ProtocolError> {
        let now = self.distance.measure(self.tail, || self.released.load());
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
        let tail = self.tail;
        while let Some((behind, end)) = self.ends.front().copied()
            && behind.wrapping_sub(tail) <= released
        {
            self.data_tail = end;
            self.ends.pop_front();
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

    /// Writes all data by ordinary stores from now on, see [`Ends::keep_in_cache`](crate::Ends::keep_in_cache).
    pub(crate) fn keep_in_cache(&mut self) {
        self.in_cache = true;
    }

    /// Copies data into the data area, at byte `at`; `None` if it does not fit there.
    #[inline]
    #[must_use]
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        match bytes.len() < STREAMING_MIN || self.in_cache {
            true => self.data.write_cached(at, bytes),
            false => self.write_long(at, bytes),
        }
    }

    /// Writes data by the stores that were chosen, or makes a trial.
    fn write_long(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        let at_begin = at < BEGIN;
        let copy = match bytes.len() < TRIAL_MIN {
            true => Copy::By(self.choice.next_short(at_begin, self.distance.is_near())),
            false => self.choice.next(at_begin, self.distance.is_near()),
        };
        let (Copy::By(stores) | Copy::WarmUp(stores) | Copy::Trial(stores)) = copy;
        self.own_lines |= stores == Stores::Owned;
        match copy {
            Copy::By(stores) => self.write_by(stores, at, bytes),
            Copy::WarmUp(subject) => {
                let (first, rest) = bytes.split_at(trial_part(bytes));
                self.write_by(subject, at, first)?;
                self.write_by(Stores::NonTemporal, at + first.len() as u64, rest)
            }
            Copy::Trial(subject) => self.write_trial(subject, at, bytes),
        }
    }

    fn write_by(&self, stores: Stores, at: u64, bytes: &[u8]) -> Option<()> {
        match stores {
            Stores::Ordinary | Stores::Owned => self.data.write_cached(at, bytes),
            Stores::NonTemporal => self.data.write_streaming(at, bytes),
        }
    }

    /// Writes a part of the data by the kind on trial and a part by non-temporal stores, and measures how long each takes.
    fn write_trial(&mut self, subject: Stores, at: u64, bytes: &[u8]) -> Option<()> {
        let part = trial_part(bytes);
        let (first, rest) = bytes.split_at_checked(part)?;
        let (second, rest) = rest.split_at_checked(part)?;
        let part = part as u64;
        let start = ticks::now();
        self.write_by(subject, at, first)?;
        let middle = ticks::now();
        self.write_by(Stores::NonTemporal, at + part, second)?;
        let end = ticks::now();
        self.write_by(self.choice.stores(), at + 2 * part, rest)?;
        self.choice
            .tried(middle.saturating_sub(start), end.saturating_sub(middle));
        Some(())
    }

    /// Publishes a record. The caller must have checked [`has_room`](Self::has_room).
    #[inline(always)]
    pub fn push(&mut self, record: &Record) {
        self.begin_slot();
        self.publish(record, 0);
    }

    /// Publishes a record at the begin of a slot, with these bits in its header, too.
    #[inline(always)]
    fn publish(&mut self, record: &Record, bits: u64) {
        let header = self.header(record.tag) | bits;
        self.slots.write(self.head, header, &record.body);
        self.advance(HALVES);
    }

    /// Publishes a record whose body is one word followed by at most [`INLINE_BYTES`](super::INLINE_BYTES)
    /// of the pieces, one after the other; `length` is the sum of their lengths. The caller must have
    /// checked [`has_room`](Self::has_room). Body words that the bytes do not reach are not written:
    /// they keep what an earlier record had there.
    #[inline(always)]
    pub fn push_pieces(&mut self, tag: u32, first: u64, pieces: &[&[u8]], length: usize) {
        if length <= SHORT_BYTES
            && let Ok(first) = u16::try_from(first)
        {
            let header = self.short_header(tag, first);
            self.slots.write_short(self.head, header, pieces);
            self.advance(1);
            return;
        }
        self.begin_slot();
        let header = self.header(tag);
        self.slots.write_pieces(self.head, header, first, pieces);
        self.advance(HALVES);
    }

    /// Publishes a short record with this first word, whose other bytes are in words. The caller must have checked
    /// [`has_room`](Self::has_room) or [`has_free_slot`](Self::has_free_slot).
    #[inline(always)]
    pub fn push_words(&mut self, tag: u32, first: u16, words: &[u64; SHORT_WORDS]) {
        let header = self.short_header(tag, first);
        self.slots.write_short_words(self.head, header, words);
        self.advance(1);
    }

    /// Returns the header of the next record, if it is short.
    #[inline(always)]
    fn short_header(&self, tag: u32, first: u16) -> u64 {
        self.header(tag) | SHORT | u64::from(first) << FIRST_SHIFT
    }

    /// Returns the header of the next record, if it is not short.
    #[inline(always)]
    fn header(&self, tag: u32) -> u64 {
        (u64::from(tag) & TAG_MASK) << TAG_SHIFT | u64::from(self.head.wrapping_add(1))
    }

    /// Moves the head to the begin of a slot.
    #[inline(always)]
    fn begin_slot(&mut self) {
        if self.head % HALVES != 0 {
            self.slots.write_header(self.head, self.header(0));
            self.advance(1);
        }
    }

    /// Moves the head behind what was just published.
    #[inline(always)]
    fn advance(&mut self, halves: u32) {
        self.head = self.head.wrapping_add(halves);
        if self.head % HALVES == 0 {
            let ahead = self.head.wrapping_add(PREFETCH_DISTANCE * HALVES);
            self.slots.prefetch_write(ahead);
        }
    }

    /// Publishes a record that carries the data written into `room`.
    #[inline]
    pub fn push_with_data(&mut self, record: &Record, room: Room) {
        // First: an unused half before the record does not carry its data.
        self.begin_slot();
        self.data_head = room.end;
        let own_lines = match mem::take(&mut self.own_lines) {
            true => OWN_LINES,
            false => 0,
        };
        self.publish(record, own_lines);
        self.ends.push_back((self.head, room.end));
    }

    /// Copies data from another lane's last record, without interpreting it. `at` is as for
    /// [`write`](Self::write), `offset` as for [`Consumer::read`].
    #[inline]
    #[must_use]
    pub fn copy_from(&self, at: u64, from: &mut Consumer, offset: u64, length: u32) -> Option<()> {
        from.take_data(offset, length as usize);
        from.data.copy_to(offset, &self.data, at, length as usize)
    }

    /// Returns the length of the data area in bytes. Data of more than half of it may not fit
    /// contiguously.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
}
