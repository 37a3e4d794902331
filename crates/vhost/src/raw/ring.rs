//! The memory of a split ring (virtio 1.3, section 2.7).
//!
//! ```text
//! descriptors: size * { address u64, length u32, flags u16, next u16 }
//! available:   flags u16, index u16, size * head u16, used_event u16
//! used:        flags u16, index u16, size * { id u32, length u32 }, avail_event u16
//! ```
//! All fields are little endian. The driver writes the first two parts, the device the third.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::mapping::Mapping;
use super::prefetch::{prefetch_read, prefetch_write};
use crate::dirty_log::UsedLog;

/// One descriptor, as read (2.7.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Guest-physical address of the buffer.
    pub address: u64,
    /// Its length in bytes.
    pub length: u32,
    /// `VRING_DESC_F_*`.
    pub flags: u16,
    /// The index of the next descriptor, if the flags have `VRING_DESC_F_NEXT`.
    pub next: u16,
}

impl Descriptor {
    /// Length of a descriptor in bytes.
    pub const SIZE: u32 = 16;

    /// Converts from two words.
    #[inline]
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking fields out of a word"
    )]
    pub fn from_words(low: u64, high: u64) -> Self {
        Self {
            address: low,
            length: high as u32,
            flags: (high >> 32) as u16,
            next: (high >> 48) as u16,
        }
    }
}

/// An invalid ring: its size, or the memory of one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// 2.7: the size is a power of two, at most 32768.
    #[error("its size {0} is not a power of two up to 32768")]
    Size(u32),
    /// The mapping of a part ends before the part does.
    #[error("one of its parts is outside guest memory")]
    Short,
    /// 2.7: descriptors are aligned to 16, available to 2, used to 4 bytes.
    #[error("one of its parts is not aligned as virtio requires")]
    Alignment,
}

/// The location of a part of a ring: a mapping and the offset into it.
pub type Part = (Arc<Mapping>, u64);

/// The three parts of a split ring.
///
/// Positions and indices are free running. Each access reduces them modulo the size, so no index that a
/// guest writes leads outside the ring.
#[derive(Debug)]
pub struct RingMemory {
    descriptors: NonNull<u8>,
    available: NonNull<u16>,
    used: NonNull<u16>,
    mask: u16,
    /// The dirty log of the used part, while writes are logged.
    log: Option<UsedLog>,
    /// Keep the memory behind the pointers mapped.
    _mappings: [Arc<Mapping>; 3],
}

// SAFETY: the pointers are to shared guest memory, reachable from any thread; see the module
// documentation for what may race.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// Returns the lengths of the parts in bytes: descriptors, available, used.
    #[must_use]
    pub fn part_lengths(size: u32) -> [u32; 3] {
        [size * 16, 6 + size * 2, 6 + size * 8]
    }

    /// Creates a ring from its parts (descriptors, available, used); checks their size and alignment.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn new(size: u32, parts: [Part; 3]) -> Result<Self, RingError> {
        if !size.is_power_of_two() || size > crate::limits::MAX_RING_SIZE {
            return Err(RingError::Size(size));
        }
        let mask = u16::try_from(size - 1).map_err(|_| RingError::Size(size))?;
        let [descriptors, available, used] = Self::part_lengths(size);
        let base = |part: &Part, length, alignment| {
            let span = part.0.span(part.1, length).ok_or(RingError::Short)?;
            let aligned = span.base().addr().get() % alignment == 0;
            aligned.then_some(span.base()).ok_or(RingError::Alignment)
        };
        let [d, a, u] = &parts;
        Ok(Self {
            descriptors: base(d, descriptors, 16)?,
            available: base(a, available, 2)?.cast(),
            used: base(u, used, 4)?.cast(),
            mask,
            log: None,
            _mappings: parts.map(|(mapping, _)| mapping),
        })
    }

    /// Returns the same ring with this dirty log, or without one.
    #[must_use]
    pub fn logged_by(self, log: Option<UsedLog>) -> Self {
        Self { log, ..self }
    }

    /// Returns the number of descriptors.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        u32::from(self.mask) + 1
    }

    /// Reads a descriptor.
    #[inline]
    #[must_use]
    pub fn descriptor(&self, index: u16) -> Descriptor {
        let offset = usize::from(index & self.mask) * 16;
        // SAFETY: the masked index is below the size, for which `new` checked the length; the
        // part is 16-aligned. Volatile: the guest may write it at any time, so it is read only once.
        let (low, high) = unsafe {
            let words = self.descriptors.add(offset).cast::<u64>();
            (words.read_volatile(), words.add(1).read_volatile())
        };
        Descriptor::from_words(low, high)
    }

    /// Prefetches a descriptor.
    #[inline]
    pub fn prefetch_descriptor(&self, index: u16) {
        let offset = usize::from(index & self.mask) * 16;
        prefetch_read(
            self.descriptors
                .map_addr(|address| address.saturating_add(offset)),
        );
    }

    /// Prefetches the cache line of a used element.
    #[inline]
    pub fn prefetch_used(&self, position: u16) {
        let offset = 4 + usize::from(position & self.mask) * 8;
        prefetch_write(self.used.map_addr(|address| address.saturating_add(offset)));
    }

    /// Loads the driver's available index (2.7.6). The entries below the index are visible after this.
    #[inline]
    #[must_use]
    pub fn available_index(&self) -> u16 {
        self.available_word(1).load(Ordering::Acquire)
    }

    /// Returns whether the driver suppresses calls when `EVENT_IDX` is not negotiated (2.7.7).
    #[inline]
    #[must_use]
    pub fn no_interrupt(&self) -> bool {
        self.available_word(0).load(Ordering::Relaxed) & 1 != 0
    }

    /// Returns the head of the chain at a position of the available ring.
    #[inline]
    #[must_use]
    pub fn available_head(&self, position: u16) -> u16 {
        self.available_word(2 + usize::from(position & self.mask))
            .load(Ordering::Relaxed)
    }

    /// Returns the used index at which the driver wants a call (2.7.7, `EVENT_IDX`).
    #[inline]
    #[must_use]
    pub fn used_event(&self) -> u16 {
        self.available_word(3 + usize::from(self.mask))
            .load(Ordering::Relaxed)
    }

    /// Returns the used index that is in memory.
    #[must_use]
    pub fn used_index(&self) -> u16 {
        self.used_word(1).load(Ordering::Relaxed)
    }

    /// Writes a used element (2.7.8). The driver sees it after the next
    /// [`publish_used`](Self::publish_used), which also marks it in the dirty log.
    #[inline]
    pub fn put_used(&self, position: u16, head: u16, length: u32) {
        let offset = 2 + usize::from(position & self.mask) * 4;
        let element = u64::from(head) | (u64::from(length) << 32);
        // SAFETY: the masked position is below the size, for which `new` checked the length. The
        // element is 4-aligned, hence the unaligned form.
        unsafe {
            ptr::write_unaligned(
                self.used.as_ptr().add(offset).cast::<u64>(),
                element.to_le(),
            );
        }
    }

    /// Publishes the used elements from `old` up to, but not including, `new`.
    #[inline]
    pub fn publish_used(&self, old: u16, new: u16) {
        self.used_word(1).store(new, Ordering::Release);
        if let Some(log) = &self.log {
            self.log_published(log, old, new);
        }
    }

    /// Marks used elements and the index in the dirty log; the elements may wrap.
    #[cold]
    fn log_published(&self, log: &UsedLog, old: u16, new: u16) {
        let count = u32::from(new.wrapping_sub(old)).min(self.size());
        let first = u32::from(old & self.mask);
        let before_end = count.min(self.size() - first);
        log.mark(4 + 8 * first, 8 * before_end);
        log.mark(4, 8 * (count - before_end));
        log.mark(2, 2);
    }

    /// Requests a kick for when the driver's index passes `index` (2.7.10, `EVENT_IDX`).
    #[inline]
    pub fn set_avail_event(&self, index: u16) {
        self.used_word(2 + 4 * (usize::from(self.mask) + 1))
            .store(index, Ordering::Relaxed);
        if let Some(log) = &self.log {
            log.mark(4 + 8 * self.size(), 2);
        }
    }

    /// Suppresses or enables the driver's kicks when `EVENT_IDX` is not negotiated (2.7.10).
    #[inline]
    pub fn set_no_notify(&self, suppressed: bool) {
        self.used_word(0)
            .store(u16::from(suppressed), Ordering::Relaxed);
        if let Some(log) = &self.log {
            log.mark(0, 2);
        }
    }

    /// Returns the atomic word at an index of the available part; `word < 3 + size`.
    #[inline]
    fn available_word(&self, word: usize) -> &AtomicU16 {
        // SAFETY: every caller stays below `3 + size` words, a length that `new` checked; the part
        // is 2-aligned. An atomic may be shared with another process.
        unsafe { AtomicU16::from_ptr(self.available.as_ptr().add(word)) }
    }

    /// Returns the atomic word at an index of the used part; `word < 3 + 4 * size`.
    #[inline]
    fn used_word(&self, word: usize) -> &AtomicU16 {
        // SAFETY: as above, with `3 + 4 * size` words.
        unsafe { AtomicU16::from_ptr(self.used.as_ptr().add(word)) }
    }
}

/// Little-endian hosts only: the code uses the ring's words without conversion.
const _: () = assert!(cfg!(target_endian = "little"));
