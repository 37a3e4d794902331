//! The slots of a ring: one cache line each, a header word and seven words of body.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mapping::{Access, Mapping};
use super::prefetch::{prefetch_read, prefetch_write};
use crate::layout::SLOT;

/// The payload of a slot, beside its header.
pub(crate) type Body = [u64; 7];

/// The slots of a ring. Positions are free running and reduced modulo the number of slots here,
/// so no position reaches outside.
#[derive(Debug)]
pub(crate) struct Slots {
    base: NonNull<u64>,
    mask: u32,
    _mapping: Arc<Mapping>,
}

// SAFETY: slots are only reached through atomics; see the module documentation.
unsafe impl Send for Slots {}

/// Words of a slot.
const WORDS: usize = SLOT as usize / 8;

/// Bytes behind the first word of a body.
pub(crate) const INLINE_BYTES: usize = (WORDS - 2) * 8;

impl Slots {
    /// Returns `count` slots (a power of two) at `offset`, if they lie inside and are aligned to
    /// cache lines.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: u64, count: u32) -> Option<Self> {
        let length = u64::from(count) * u64::from(SLOT);
        let base = mapping.piece(offset, length, SLOT as usize, Access::ReadWrite)?;
        count.is_power_of_two().then(|| Self {
            base: base.cast(),
            mask: count - 1,
            _mapping: Arc::clone(mapping),
        })
    }

    /// Returns the number of slots.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.mask + 1
    }

    #[inline(always)]
    fn slot_address(&self, position: u32) -> NonNull<u64> {
        let index = (position & self.mask) as usize;
        // SAFETY: the masked position is below the count, for which `new` checked the length.
        unsafe { self.base.add(index * WORDS) }
    }

    /// Returns the atomic at a word of a slot; `word < WORDS`.
    #[inline(always)]
    fn word(&self, position: u32, word: usize) -> &AtomicU64 {
        // SAFETY: callers stay below `WORDS`; lines are aligned. An atomic may be shared with
        // another process.
        unsafe { AtomicU64::from_ptr(self.slot_address(position).add(word).as_ptr()) }
    }

    /// Loads the header of a slot. The body that was stored before the header is visible
    /// afterwards.
    #[inline(always)]
    pub(crate) fn header(&self, position: u32) -> u64 {
        self.word(position, 0).load(Ordering::Acquire)
    }

    /// Loads the body of a slot, each word once.
    #[inline(always)]
    pub(crate) fn body(&self, position: u32) -> Body {
        std::array::from_fn(|word| self.word(position, word + 1).load(Ordering::Relaxed))
    }

    /// Stores a slot, its header last.
    #[inline(always)]
    pub(crate) fn write(&self, position: u32, header: u64, body: &Body) {
        for (word, value) in body.iter().enumerate() {
            self.word(position, word + 1)
                .store(*value, Ordering::Relaxed);
        }
        self.word(position, 0).store(header, Ordering::Release);
    }

    /// Stores a slot: `first`, at most [`INLINE_BYTES`] of `bytes`, and the header last. Words that
    /// the bytes do not reach keep their values, which the other side has read before.
    #[inline(always)]
    pub(crate) fn write_bytes(&self, position: u32, header: u64, first: u64, bytes: &[u8]) {
        let store = |word, value| self.word(position, word).store(value, Ordering::Relaxed);
        store(1, first);
        let chunks = bytes.chunks_exact(8);
        let rest = chunks.remainder();
        for (word, chunk) in (2..WORDS).zip(chunks) {
            // As long as a word.
            store(word, chunk.try_into().map_or(0, u64::from_ne_bytes));
        }
        let word = 2 + bytes.len() / 8;
        if !rest.is_empty() && word < WORDS {
            let mut last = [0; 8];
            for (target, byte) in last.iter_mut().zip(rest) {
                *target = *byte;
            }
            store(word, u64::from_ne_bytes(last));
        }
        self.word(position, 0).store(header, Ordering::Release);
    }

    /// Loads the first word of a slot's body.
    #[inline(always)]
    pub(crate) fn first(&self, position: u32) -> u64 {
        self.word(position, 1).load(Ordering::Relaxed)
    }

    /// Copies what [`write_bytes`](Self::write_bytes) stored behind the first word, loading each
    /// word once; fills at most [`INLINE_BYTES`] bytes.
    #[inline(always)]
    pub(crate) fn read_bytes(&self, position: u32, to: &mut [u8]) {
        let load = |word| {
            self.word(position, word)
                .load(Ordering::Relaxed)
                .to_ne_bytes()
        };
        let word = 2 + to.len() / 8;
        let mut chunks = to.chunks_exact_mut(8);
        for (word, chunk) in (2..WORDS).zip(&mut chunks) {
            chunk.copy_from_slice(&load(word));
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() && word < WORDS {
            for (target, byte) in rest.iter_mut().zip(load(word)) {
                *target = byte;
            }
        }
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
