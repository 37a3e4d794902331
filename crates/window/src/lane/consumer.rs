//! The consumer's end.

use std::ptr::NonNull;
use std::sync::Arc;

use super::{FIRST_SHIFT, HALVES, OWN_LINES, Place, Record, SHORT, TAG_MASK, TAG_SHIFT, data};
use crate::layout::LaneOffsets;
use crate::raw::{INLINE_BYTES, Mapping, SHORT_BYTES, SharedBytes, Slots, Word};

/// Slots ahead of the next one that the consumer prefetches: a program reads several messages in one go.
const PREFETCH_DISTANCE: u32 = 3;

/// Bytes that the consumer prefetches of data that is read in place: those of a message of 1 KiB with a header of a library. The library
/// looks at its header first, and the rest would come only then.
const PREFETCHED: usize = 1088;

/// Records whose lines the consumer owns by one release, at most.
const OWNED_AT_ONCE: usize = 16;

/// The consumer's end of a lane.
#[derive(Debug)]
pub struct Consumer {
    slots: Slots,
    released: Word,
    pub(super) data: SharedBytes,
    /// The next position to read, and the value last written to `released`; both free running.
    next: u32,
    last_released: u32,
    /// The header of the next record, as [`Consumer::tag`] read it. The producer can change it, also
    /// while the record is read.
    pub(super) header: u64,
    data_taken: bool,
    /// Data whose lines the producer asks to own: offsets and lengths, as the producer wrote them.
    to_own: Vec<(u64, usize)>,
}

impl Consumer {
    pub(crate) fn new(mapping: &Arc<Mapping>, offsets: &LaneOffsets) -> Option<Self> {
        Some(Self {
            slots: Slots::new(mapping, offsets.ring, offsets.size.slots)?,
            released: Word::new(mapping, offsets.released)?,
            data: data(mapping, offsets)?,
            next: 0,
            last_released: 0,
            header: 0,
            data_taken: false,
            to_own: Vec::new(),
        })
    }

    /// Returns whether the next record is published.
    #[inline(always)]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.published(self.next).is_some_and(|header| {
            !is_unused(self.next, header) || self.published(self.next.wrapping_add(1)).is_some()
        })
    }

    /// Returns the header at a position, if it is published.
    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the lower half of a word"
    )]
    fn published(&self, position: u32) -> Option<u64> {
        let header = self.slots.header(position);
        (header as u32 == position.wrapping_add(1)).then_some(header)
    }

    /// Returns the position of the next record. It runs free, and moves on with each record.
    #[inline(always)]
    #[must_use]
    pub fn position(&self) -> u32 {
        self.next
    }

    /// Returns the tag of the next record, if it is published. The record stays the next one until
    /// [`pop`](Self::pop) or [`step`](Self::step). The methods that read the record need this call before.
    #[inline(always)]
    #[must_use]
    pub fn tag(&mut self) -> Option<u32> {
        let mut header = self.published(self.next)?;
        if is_unused(self.next, header) {
            self.next = self.next.wrapping_add(1);
            header = self.published(self.next)?;
        }
        self.header = header;
        // 15 bits.
        u32::try_from(header >> TAG_SHIFT & TAG_MASK).ok()
    }

    #[inline(always)]
    fn is_short(&self) -> bool {
        self.header & SHORT != 0
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
        let record = self.peek(tag);
        self.step();
        record
    }

    /// Copies the next record out of its slot, as [`take`](Self::take), but the record stays the next
    /// one.
    #[inline(always)]
    #[must_use]
    pub fn peek(&self, tag: u32) -> Record {
        let body = match self.is_short() {
            true => {
                let [a, b, c] = self.slots.short_body(self.next);
                [self.first(), a, b, c, 0, 0, 0]
            }
            false => self.slots.body(self.next),
        };
        Record { tag, body }
    }

    /// Returns the place of the bytes behind the first word of the next record's body.
    #[inline(always)]
    #[must_use]
    pub fn place(&self) -> Place {
        match self.is_short() {
            true => Place::Half(self.next),
            false => Place::Slot(self.next),
        }
    }

    /// Returns the address of bytes of a record; `None` if they are not all inside the slot or the data
    /// area. The bytes stay there until [`release`](Self::release), and the producer can change them at
    /// any time.
    #[inline(always)]
    #[must_use]
    pub fn address(&self, place: Place, length: usize) -> Option<NonNull<u8>> {
        match place {
            Place::Slot(position) => {
                (length <= INLINE_BYTES).then(|| self.slots.inline_address(position))
            }
            Place::Half(position) => {
                (length <= SHORT_BYTES).then(|| self.slots.short_address(position))
            }
            Place::Data(offset) => self.data.address_of(offset, length),
        }
    }

    /// Returns the first word of the next record's body. A second call may return another value,
    /// because the producer can write there at any time.
    #[inline(always)]
    #[must_use]
    pub fn first(&self) -> u64 {
        match self.is_short() {
            true => self.header >> FIRST_SHIFT,
            false => self.slots.first(self.next),
        }
    }

    /// Copies the bytes behind the first word of the next record's body, reading each word once;
    /// fills at most [`INLINE_BYTES`] bytes.
    #[inline(always)]
    pub fn bytes(&self, to: &mut [u8]) {
        let _all_fit = self.copy_out(self.place(), to);
    }

    /// Copies bytes of a record, also one whose [`address`](Self::address) was given out, reading each word
    /// of a slot once; `None` if they are not all there.
    #[inline(always)]
    #[must_use]
    pub fn copy_out(&self, place: Place, to: &mut [u8]) -> Option<()> {
        match place {
            Place::Slot(position) => {
                self.slots.read_bytes(position, to);
                (to.len() <= INLINE_BYTES).then_some(())
            }
            Place::Half(position) => {
                self.slots.read_short_bytes(position, to);
                (to.len() <= SHORT_BYTES).then_some(())
            }
            Place::Data(offset) => self.data.read(offset, to),
        }
    }

    /// Moves on to the record behind the current one.
    #[inline(always)]
    pub fn step(&mut self) {
        let halves = if self.is_short() { 1 } else { HALVES };
        self.next = self.next.wrapping_add(halves);
        if self.next % HALVES == 0 {
            self.slots
                .prefetch_read(self.next.wrapping_add(PREFETCH_DISTANCE * HALVES));
        }
    }

    /// Moves on to the record behind the next short ones, of which it calls `read` with each: its tag, the first word of its
    /// body, the place and the address of the others, which have [`SHORT_BYTES`] bytes and stay there until
    /// [`release`](Self::release). The producer can change these bytes at any time. A record for which `read` returns false
    /// stays the next one. Returns whether there may be a record to read by the other methods.
    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the lower half of a word"
    )]
    pub fn read_short(
        &mut self,
        most: usize,
        mut read: impl FnMut(u32, u64, Place, NonNull<u8>) -> bool,
    ) -> bool {
        let slots = &self.slots;
        // A field would be loaded again after each header, whose load orders later ones.
        let mut next = self.next;
        let mut published = true;
        for _ in 0..most {
            let header = slots.header(next);
            published = header as u32 == next.wrapping_add(1);
            if !published || header & SHORT == 0 {
                break;
            }
            let tag = (header >> TAG_SHIFT & TAG_MASK) as u32;
            let (place, address) = (Place::Half(next), slots.short_address(next));
            if !read(tag, header >> FIRST_SHIFT, place, address) {
                break;
            }
            next = next.wrapping_add(1);
            if next % HALVES == 0 {
                slots.prefetch_read(next.wrapping_add(PREFETCH_DISTANCE * HALVES));
            }
        }
        self.next = next;
        published
    }

    /// Copies data of the last record out; `None` if it is not all inside the data area.
    #[inline]
    #[must_use]
    pub fn read(&mut self, offset: u64, to: &mut [u8]) -> Option<()> {
        self.take_data(offset, to.len());
        self.data.read(offset, to)
    }

    /// Returns the address of bytes of the next record, as [`address`](Self::address). If they are data, its
    /// space is released by the next [`release`](Self::release).
    #[inline(always)]
    #[must_use]
    pub fn read_in_place(&mut self, place: Place, length: usize) -> Option<NonNull<u8>> {
        let Place::Data(offset) = place else {
            return self.address(place, length);
        };
        self.take_data(offset, length);
        self.data.prefetched(offset, length, PREFETCHED)
    }

    /// Records that data of the last record is read before the next release.
    #[inline]
    pub(super) fn take_data(&mut self, offset: u64, length: usize) {
        self.data_taken = true;
        if self.header & OWN_LINES != 0 && !self.is_short() && self.to_own.len() < OWNED_AT_ONCE {
            self.to_own.push((offset, length));
        }
    }

    /// Owns the lines of data that was read.
    #[cold]
    fn own_lines(&mut self) {
        for (offset, length) in self.to_own.drain(..) {
            // The offset is the producer's. Data that is not inside was not read either.
            let _inside = self.data.own_lines(offset, length);
        }
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
        let quarter = self.slots.positions() / 4;
        if !self.data_taken && self.next.wrapping_sub(self.last_released) < quarter {
            return false;
        }
        if !self.to_own.is_empty() {
            self.own_lines();
        }
        self.data_taken = false;
        self.last_released = self.next;
        self.released.store(self.next);
        true
    }
}

/// Returns whether a header says that the second half of its slot is unused.
#[inline(always)]
fn is_unused(position: u32, header: u64) -> bool {
    position % HALVES != 0 && header & SHORT == 0
}
