//! Shared memory that another side may write at any time.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::aliased_copy::aliased_copy;
use super::mapping::{Access, Mapping};
use super::prefetch::prefetch_read;
use super::streaming_copy::{LINE, STREAMING_MIN, streaming_copy};

/// A range of shared memory, for copying payload in and out.
#[derive(Clone, Debug)]
pub struct SharedBytes {
    base: NonNull<u8>,
    length: usize,
    access: Access,
    _mapping: Arc<Mapping>,
}

// SAFETY: payload may race, see the module documentation; no reference into it is given out.
unsafe impl Send for SharedBytes {}

impl SharedBytes {
    /// Returns `length` bytes from `offset`, if they lie inside the mapping.
    pub(crate) fn new(
        mapping: &Arc<Mapping>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Option<Self> {
        Some(Self {
            base: mapping.piece(offset, length, 1, access)?,
            length: usize::try_from(length).ok()?,
            access,
            _mapping: Arc::clone(mapping),
        })
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// Returns the address of `count` bytes from `offset`, if they are inside. They may change at any
    /// time.
    #[inline]
    pub(crate) fn address_of(&self, offset: u64, count: usize) -> Option<NonNull<u8>> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(count)? > self.length {
            return None;
        }
        // SAFETY: inside, as just checked.
        Some(unsafe { self.base.add(offset) })
    }

    /// As [`address_of`](Self::address_of), and prefetches the first `most` of the bytes for reading.
    #[inline(always)]
    pub(crate) fn prefetched(&self, offset: u64, count: usize, most: usize) -> Option<NonNull<u8>> {
        let start = self.address_of(offset, count)?;
        for at in (0..count.min(most)).step_by(LINE) {
            // SAFETY: below `count`, so inside.
            prefetch_read(unsafe { start.add(at) });
        }
        Some(start)
    }

    /// Returns where the bytes are in this process. They may change at any time.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the 32-bit word at an offset; `None` if it is not all inside or not aligned, or this
    /// side may only read.
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU32> {
        let place = self.writable_word::<u32>(offset)?;
        // SAFETY: place and alignment were checked, and the mapping lives as long as `self`. An
        // atomic may be shared with another process.
        Some(unsafe { AtomicU32::from_ptr(place.as_ptr()) })
    }

    /// The same for a 64-bit word.
    pub(crate) fn long_word(&self, offset: u64) -> Option<&AtomicU64> {
        let place = self.writable_word::<u64>(offset)?;
        // SAFETY: as in `word`.
        Some(unsafe { AtomicU64::from_ptr(place.as_ptr()) })
    }

    /// Returns the address of a word.
    fn writable_word<T>(&self, offset: u64) -> Option<NonNull<T>> {
        let place = self.writable_at(offset, size_of::<T>())?.cast::<T>();
        place.is_aligned().then_some(place)
    }

    /// Copies bytes out; `None`, and copies nothing, if they are not all inside.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Option<()> {
        let from = self.address_of(offset, to.len())?;
        // SAFETY: the source is inside the mapping; private memory never overlaps one.
        unsafe { aliased_copy(from.as_ptr(), to.as_mut_ptr(), to.len()) };
        Some(())
    }

    /// Copies `count` bytes to another range of shared memory; `None`, and copies nothing, if
    /// either is not all inside or this side may only read the target.
    #[inline]
    #[must_use]
    pub(crate) fn copy_to(&self, offset: u64, to: &Self, at: u64, count: usize) -> Option<()> {
        let (from, to) = (self.address_of(offset, count)?, to.writable_at(at, count)?);
        // SAFETY: both are inside their mappings, the target's is writable; they may overlap.
        unsafe { ptr::copy(from.as_ptr(), to.as_ptr(), count) };
        Some(())
    }

    /// Copies bytes in; `None`, and copies nothing, if they do not fit at `offset` or this side may
    /// only read.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: u64, from: &[u8]) -> Option<()> {
        match from.len() < STREAMING_MIN {
            true => self.write_cached(offset, from),
            false => self.write_streaming(offset, from),
        }
    }

    /// The same, by non-temporal stores.
    #[inline]
    #[must_use]
    pub(crate) fn write_streaming(&self, offset: u64, from: &[u8]) -> Option<()> {
        let to = self.writable_at(offset, from.len())?;
        // SAFETY: the target is inside a writable mapping; private memory never overlaps one.
        unsafe { streaming_copy(from.as_ptr(), to.as_ptr(), from.len()) };
        Some(())
    }

    /// The same, by ordinary stores.
    #[inline]
    #[must_use]
    pub(crate) fn write_cached(&self, offset: u64, from: &[u8]) -> Option<()> {
        let to = self.writable_at(offset, from.len())?;
        // SAFETY: the target is inside a writable mapping; private memory never overlaps one.
        unsafe { aliased_copy(from.as_ptr(), to.as_ptr(), from.len()) };
        Some(())
    }

    /// Writes one byte of each cache line of `count` bytes from `offset`, which is the begin of a line, if
    /// they are inside. Then this processor owns the lines: no other one has a copy.
    pub(crate) fn own_lines(&self, offset: u64, count: usize) -> Option<()> {
        let start = self.writable_at(offset, count)?;
        for at in (0..count).step_by(LINE) {
            // SAFETY: below `count`, so inside a writable mapping. An atomic may be shared with another
            // process.
            let byte = unsafe { AtomicU8::from_ptr(start.add(at).as_ptr()) };
            byte.store(0, Ordering::Relaxed);
        }
        Some(())
    }

    /// Returns the address of `count` bytes, if they are inside and this side may write them.
    #[inline]
    fn writable_at(&self, offset: u64, count: usize) -> Option<NonNull<u8>> {
        match self.access {
            Access::ReadWrite => self.address_of(offset, count),
            _ => None,
        }
    }
}
