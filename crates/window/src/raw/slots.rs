//! The slots of a ring: one cache line each, a header word and seven words of body, or twice a header word
//! and three words. Positions count halves of slots.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mapping::{Access, Mapping};
use super::pieces;
use super::prefetch::{prefetch_read, prefetch_write};
use crate::layout::SLOT;

/// The payload of a slot, beside its header.
pub(crate) type Body = [u64; 7];

/// The slots of a ring. Positions are free running and reduced modulo the number of slots here,
/// so no position reaches outside.
#[derive(Debug)]
pub(crate) struct Slots {
    base: NonNull<u64>,
    /// The bits of a position that choose the half of a slot.
    position_mask: u32,
    _mapping: Arc<Mapping>,
}

// SAFETY: slots are only reached through atomics; see the module documentation.
unsafe impl Send for Slots {}

/// Words of a slot, and of its half.
const WORDS: usize = SLOT as usize / 8;
const HALF: usize = WORDS / 2;

/// Words and bytes behind the first word of a body.
pub(super) const INLINE_WORDS: usize = WORDS - 2;
pub(crate) const INLINE_BYTES: usize = INLINE_WORDS * 8;

/// The same for the half of a slot, behind its header.
pub(crate) const SHORT_WORDS: usize = HALF - 1;
pub(crate) const SHORT_BYTES: usize = SHORT_WORDS * 8;

impl Slots {
    /// Returns `count` slots (a power of two) at `offset`, if they lie inside and are aligned to
    /// cache lines.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: u64, count: u32) -> Option<Self> {
        let length = u64::from(count) * u64::from(SLOT);
        let base = mapping.piece(offset, length, SLOT as usize, Access::ReadWrite)?;
        let halves = count.checked_mul(2).filter(|_| count.is_power_of_two())?;
        Some(Self {
            base: base.cast(),
            position_mask: halves - 1,
            _mapping: Arc::clone(mapping),
        })
    }

    /// Returns the number of positions, at least two.
    #[inline(always)]
    pub(crate) fn positions(&self) -> u32 {
        self.position_mask.wrapping_add(1)
    }

    /// Returns the address of the slot, or half of a slot, at a position.
    #[inline(always)]
    fn half_address(&self, position: u32) -> NonNull<u64> {
        let index = (position & self.position_mask) as usize;
        // SAFETY: the masked position is below twice the count of slots, for which `new` checked the length.
        unsafe { self.base.add(index * HALF) }
    }

    #[inline(always)]
    fn slot_address(&self, position: u32) -> NonNull<u64> {
        self.half_address(position & !1)
    }

    /// Returns the words of a slot.
    #[inline(always)]
    fn slot(&self, position: u32) -> &[AtomicU64; WORDS] {
        // SAFETY: the words are inside; lines are aligned. Atomics may be shared with another process.
        unsafe { self.slot_address(position).cast().as_ref() }
    }

    /// Returns the words of half a slot.
    #[inline(always)]
    fn half(&self, position: u32) -> &[AtomicU64; HALF] {
        // SAFETY: as in `slot`.
        unsafe { self.half_address(position).cast().as_ref() }
    }

    /// Loads the header at a position. The consumer then sees what the producer stored before the header.
    #[inline(always)]
    pub(crate) fn header(&self, position: u32) -> u64 {
        let [header, ..] = self.half(position);
        header.load(Ordering::Acquire)
    }

    /// Stores only the header at a position.
    #[inline(always)]
    pub(crate) fn write_header(&self, position: u32, header: u64) {
        let [word, ..] = self.half(position);
        word.store(header, Ordering::Release);
    }

    /// Loads the words of a short record, each once.
    #[inline(always)]
    pub(crate) fn short_body(&self, position: u32) -> [u64; SHORT_WORDS] {
        let [_, body @ ..] = self.half(position);
        body.each_ref().map(load)
    }

    /// Stores a short record: at most [`SHORT_BYTES`] of the pieces, and the header last. In the first
    /// half of a slot, it also invalidates the header of the second one, by the sequence number of
    /// this record.
    #[inline(always)]
    pub(crate) fn write_short(&self, position: u32, header: u64, pieces: &[&[u8]]) {
        let [_, body @ ..] = self.half(position);
        pieces::write(pieces, body);
        self.write_short_header(position, header);
    }

    /// Stores a short record whose bytes are words already.
    #[inline(always)]
    pub(crate) fn write_short_words(&self, position: u32, header: u64, words: &[u64; SHORT_WORDS]) {
        let [_, body @ ..] = self.half(position);
        for (word, value) in body.iter().zip(words) {
            word.store(*value, Ordering::Relaxed);
        }
        self.write_short_header(position, header);
    }

    #[inline(always)]
    fn write_short_header(&self, position: u32, header: u64) {
        if position % 2 == 0 {
            let [second, ..] = self.half(position | 1);
            second.store(header, Ordering::Relaxed);
        }
        self.write_header(position, header);
    }

    /// Copies what [`write_short`](Self::write_short) stored, loading each word once; fills at most
    /// [`SHORT_BYTES`] bytes.
    #[inline(always)]
    pub(crate) fn read_short_bytes(&self, position: u32, to: &mut [u8]) {
        let [_, body @ ..] = self.half(position);
        copy_words(body, to);
    }

    /// Returns the address of the [`SHORT_BYTES`] behind the header of a half. They may change at any time.
    #[inline(always)]
    pub(crate) fn short_address(&self, position: u32) -> NonNull<u8> {
        // SAFETY: inside the half.
        unsafe { self.half_address(position).add(1) }.cast()
    }

    /// Loads the body of a slot, each word once.
    #[inline(always)]
    pub(crate) fn body(&self, position: u32) -> Body {
        let [_, body @ ..] = self.slot(position);
        body.each_ref().map(load)
    }

    /// Stores a slot, its header last.
    #[inline(always)]
    pub(crate) fn write(&self, position: u32, header: u64, body: &Body) {
        let [own, words @ ..] = self.slot(position);
        for (word, value) in words.iter().zip(body) {
            word.store(*value, Ordering::Relaxed);
        }
        own.store(header, Ordering::Release);
    }

    /// Stores a slot: `first`, at most [`INLINE_BYTES`] of the pieces one after the other, and the header
    /// last. Words that the bytes do not reach keep their values, which the other side has read before.
    #[inline(always)]
    pub(crate) fn write_pieces(&self, position: u32, header: u64, first: u64, pieces: &[&[u8]]) {
        let [own, first_word, body @ ..] = self.slot(position);
        first_word.store(first, Ordering::Relaxed);
        pieces::write(pieces, body);
        own.store(header, Ordering::Release);
    }

    /// Loads the first word of a slot's body.
    #[inline(always)]
    pub(crate) fn first(&self, position: u32) -> u64 {
        let [_, first, ..] = self.slot(position);
        load(first)
    }

    /// Copies what [`write_pieces`](Self::write_pieces) stored behind the first word, loading each
    /// word once; fills at most [`INLINE_BYTES`] bytes.
    #[inline(always)]
    pub(crate) fn read_bytes(&self, position: u32, to: &mut [u8]) {
        let [_, _, body @ ..] = self.slot(position);
        copy_words(body, to);
    }

    /// Returns the address of the [`INLINE_BYTES`] behind the first word of a slot's body. They may change
    /// at any time.
    #[inline(always)]
    pub(crate) fn inline_address(&self, position: u32) -> NonNull<u8> {
        // SAFETY: inside the slot.
        unsafe { self.slot_address(position).add(2) }.cast()
    }

    /// Prefetches a slot for reading.
    #[inline(always)]
    pub(crate) fn prefetch_read(&self, position: u32) {
        prefetch_read(self.slot_address(position));
    }

    /// Prefetches a slot for writing.
    #[inline(always)]
    pub(crate) fn prefetch_write(&self, position: u32) {
        prefetch_write(self.slot_address(position));
    }
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Copies bytes of words, each loaded once; fills at most as many as the words have.
#[inline(always)]
fn copy_words(words: &[AtomicU64], to: &mut [u8]) {
    for (word, chunk) in words.iter().zip(to.chunks_mut(8)) {
        for (target, byte) in chunk.iter_mut().zip(load(word).to_ne_bytes()) {
            *target = byte;
        }
    }
}
