//! A contiguous piece of guest memory, and the copy of payload to and from it.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::mapping::Mapping;
use super::prefetch::{prefetch_read, prefetch_write};
use super::ring::Descriptor;
use crate::frame_start::FrameStart;
use crate::net_header::NetHeader;

/// A number at an address of any alignment. The crate supports little-endian hosts only, and virtio is
/// little endian.
#[repr(C, packed)]
struct Unaligned<T>(T);

/// Bytes of guest memory, contiguous in this process. The lifetime ties them to their mapping.
#[derive(Clone, Copy, Debug)]
pub struct Span<'m> {
    base: NonNull<u8>,
    length: u32,
    mapping: PhantomData<&'m Mapping>,
}

impl Mapping {
    /// Returns the span of `length` bytes from `offset`, if it is inside the region.
    #[inline]
    #[must_use]
    pub fn span(&self, offset: u64, length: u32) -> Option<Span<'_>> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(length as usize)?;
        if end > self.size {
            return None;
        }
        // SAFETY: `offset + length <= size`, so the whole span lies in the mapping, which the
        // span's lifetime keeps alive.
        Some(unsafe { Span::new(self.base.add(offset), length) })
    }

    /// Returns the offset of a span in this region, if the span begins in it.
    #[must_use]
    pub fn offset_of(&self, span: &Span<'_>) -> Option<u64> {
        let start = self.base.addr().get();
        let offset = span.base().addr().get().checked_sub(start)?;
        (offset < self.size).then_some(offset as u64)
    }
}

impl<'m> Span<'m> {
    /// # Safety
    /// `base` must be valid for reads and writes of `length` bytes for `'m`, and there must be no
    /// reference to these bytes.
    pub(super) unsafe fn new(base: NonNull<u8>, length: u32) -> Self {
        Self {
            base,
            length,
            mapping: PhantomData,
        }
    }

    /// Returns the length in bytes.
    #[inline(always)]
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Returns the address of the first byte, for ring addresses and system calls of this module.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the span without its first `count` bytes; empty when it has no more.
    #[inline(always)]
    #[must_use]
    pub fn skip(self, count: u32) -> Span<'m> {
        let count = count.min(self.length);
        // SAFETY: `count <= length`: the rest lies in the same valid range.
        unsafe { Span::new(self.base.add(count as usize), self.length - count) }
    }

    /// Returns the first `count` bytes of the span, or all of it when it is shorter.
    #[inline(always)]
    #[must_use]
    pub fn first(self, count: u32) -> Span<'m> {
        Span {
            length: self.length.min(count),
            ..self
        }
    }

    /// Copies the first bytes to private memory, as many as both sides have; returns the count.
    #[inline(always)]
    pub fn read(&self, to: &mut [u8]) -> usize {
        let count = to.len().min(self.length as usize);
        // SAFETY: both sides are valid for `count` bytes; private memory never overlaps a
        // mapping of guest memory.
        unsafe { ptr::copy_nonoverlapping(self.base.as_ptr(), to.as_mut_ptr(), count) };
        count
    }

    /// Reads the start of a frame once, if the span is long enough.
    #[inline(always)]
    #[must_use]
    pub fn read_start(&self) -> Option<FrameStart> {
        if (self.length as usize) < FrameStart::SIZE {
            return None;
        }
        let words = self.base.cast::<Unaligned<u64>>();
        // SAFETY: the span is valid for the 26 bytes read, and the type needs no alignment.
        // Volatile: the guest may write concurrently, so each byte is read only once.
        let (words, tail) = unsafe {
            (
                [
                    words.read_volatile().0,
                    words.add(1).read_volatile().0,
                    words.add(2).read_volatile().0,
                ],
                words.add(3).cast::<Unaligned<u16>>().read_volatile().0,
            )
        };
        Some(FrameStart { words, tail })
    }

    /// Reads the Ethernet header of a frame once, without its network header, and returns it as the
    /// start of a frame without offloads. Returns `None` if the span is too short.
    #[inline(always)]
    #[must_use]
    pub fn read_ethernet(&self) -> Option<FrameStart> {
        if (self.length as usize) < FrameStart::SIZE {
            return None;
        }
        // SAFETY: the span is valid for bytes 12 to 25, and the type needs no alignment.
        // Volatile: the guest may write concurrently, so each byte is read only once.
        let (second, third, tail) = unsafe {
            let ethernet = self.base.add(NetHeader::SIZE);
            (
                ethernet.cast::<Unaligned<u32>>().read_volatile().0,
                ethernet.add(4).cast::<Unaligned<u64>>().read_volatile().0,
                ethernet.add(12).cast::<Unaligned<u16>>().read_volatile().0,
            )
        };
        Some(FrameStart {
            words: [0, u64::from(second) << 32, third],
            tail,
        })
    }

    /// Writes the start of a frame, if the span has room for all of it; returns whether it did.
    #[inline(always)]
    #[must_use]
    pub fn write_start(&self, start: &FrameStart) -> bool {
        if (self.length as usize) < FrameStart::SIZE {
            return false;
        }
        let [first, second, third] = start.words;
        let words = self.base.cast::<Unaligned<u64>>();
        // SAFETY: as in `read_start`.
        unsafe {
            words.write(Unaligned(first));
            words.add(1).write(Unaligned(second));
            words.add(2).write(Unaligned(third));
            words
                .add(3)
                .cast::<Unaligned<u16>>()
                .write(Unaligned(start.tail));
        }
        true
    }

    /// Copies private bytes into the span, as many as both sides have; returns the count.
    #[inline(always)]
    pub fn write(&self, from: &[u8]) -> usize {
        let count = from.len().min(self.length as usize);
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr(), count) };
        count
    }

    /// Copies guest memory to guest memory, as much as both sides have; returns the count.
    ///
    /// The two spans may overlap: a hostile front-end can present one region twice.
    #[inline(always)]
    pub fn copy_to(&self, to: &Span<'_>) -> u32 {
        let count = self.length.min(to.length);
        // SAFETY: both sides are valid for `count` bytes.
        unsafe { ptr::copy(self.base.as_ptr(), to.base.as_ptr(), count as usize) };
        count
    }

    /// Reads the descriptor at `index` of an indirect table, if the span is long enough.
    #[inline(always)]
    #[must_use]
    pub fn descriptor(&self, index: u32) -> Option<Descriptor> {
        let offset = index.checked_mul(Descriptor::SIZE)?;
        let end = offset.checked_add(Descriptor::SIZE)?;
        if end > self.length {
            return None;
        }
        // SAFETY: both words lie in the span, and the type needs no alignment. Volatile: the guest
        // may write concurrently, so each word is read only once.
        let (low, high) = unsafe {
            let words = self.base.add(offset as usize).cast::<Unaligned<u64>>();
            (words.read_volatile().0, words.add(1).read_volatile().0)
        };
        Some(Descriptor::from_words(low, high))
    }

    /// Prefetches the first cache lines, two at most, for reading.
    #[inline(always)]
    pub fn prefetch_read(&self) {
        prefetch_read(self.base);
        prefetch_read(self.last_of_two_lines());
    }

    /// Prefetches the first cache lines, two at most, for writing (in exclusive state).
    #[inline(always)]
    pub fn prefetch_write(&self) {
        prefetch_write(self.base);
        prefetch_write(self.last_of_two_lines());
    }

    /// Returns the address of the last byte, or of the byte 64 bytes behind the first. The prefetch
    /// must not touch a line outside the span: it would take the line from the core that uses it.
    #[inline(always)]
    fn last_of_two_lines(&self) -> NonNull<u8> {
        let ahead = self.length.saturating_sub(1).min(64) as usize;
        self.base.map_addr(|address| address.saturating_add(ahead))
    }
}
