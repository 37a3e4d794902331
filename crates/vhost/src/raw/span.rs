//! A piece of guest memory, and the only routine that copies payload.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::mapping::Mapping;
use super::prefetch::{prefetch_read, prefetch_write};
use super::ring::Descriptor;
use crate::frame_start::FrameStart;
use crate::net_header::NetHeader;

/// A number at any address. All hosts we build for are little endian, as is virtio.
#[repr(C, packed)]
struct Unaligned<T>(T);

/// Bytes of guest memory, contiguous in this process, kept alive by the mapping they lie in.
#[derive(Clone, Copy, Debug)]
pub struct Span<'m> {
    base: NonNull<u8>,
    length: u32,
    mapping: PhantomData<&'m Mapping>,
}

impl Mapping {
    /// The bytes from `offset`, if all `length` of them are inside the region.
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

    /// Where a span begins in this region, if it does.
    #[must_use]
    pub fn offset_of(&self, span: &Span<'_>) -> Option<u64> {
        let start = self.base.addr().get();
        let offset = span.base().addr().get().checked_sub(start)?;
        (offset < self.size).then_some(offset as u64)
    }
}

impl<'m> Span<'m> {
    /// # Safety
    /// `base` must be valid for reads and writes of `length` bytes for as long as `'m` lasts,
    /// with no reference to them anywhere.
    pub(super) unsafe fn new(base: NonNull<u8>, length: u32) -> Self {
        Self {
            base,
            length,
            mapping: PhantomData,
        }
    }

    /// Length in bytes.
    #[inline(always)]
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Where the span begins. For ring addresses and system calls, inside this module only.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The span without its first `count` bytes; empty when it has no more.
    #[inline(always)]
    #[must_use]
    pub fn skip(self, count: u32) -> Span<'m> {
        let count = count.min(self.length);
        // SAFETY: `count <= length`: the rest lies in the same valid range.
        unsafe { Span::new(self.base.add(count as usize), self.length - count) }
    }

    /// The first `count` bytes of the span; all of it when it has no more.
    #[inline(always)]
    #[must_use]
    pub fn first(self, count: u32) -> Span<'m> {
        Span {
            length: self.length.min(count),
            ..self
        }
    }

    /// Copy the first bytes out, as many as both sides have; returns how many.
    #[inline(always)]
    pub fn read(&self, to: &mut [u8]) -> usize {
        let count = to.len().min(self.length as usize);
        // SAFETY: both sides are valid for `count` bytes; private memory never overlaps a
        // mapping of guest memory.
        unsafe { ptr::copy_nonoverlapping(self.base.as_ptr(), to.as_mut_ptr(), count) };
        count
    }

    /// Read the start of a frame, once, if the span is that long.
    #[inline(always)]
    #[must_use]
    pub fn read_start(&self) -> Option<FrameStart> {
        if (self.length as usize) < FrameStart::SIZE {
            return None;
        }
        let words = self.base.cast::<Unaligned<u64>>();
        // SAFETY: the span is valid for the 26 bytes read, and the type asks for no alignment.
        // Volatile: read once, whatever the guest writes meanwhile.
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

    /// Read the Ethernet header of a frame, once, and not its network header: as the start of a
    /// frame that asks for nothing. `None` if the span is not that long.
    #[inline(always)]
    #[must_use]
    pub fn read_ethernet(&self) -> Option<FrameStart> {
        if (self.length as usize) < FrameStart::SIZE {
            return None;
        }
        // SAFETY: the span is valid for bytes 12 to 25, and the type asks for no alignment.
        // Volatile: read once, whatever the guest writes meanwhile.
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

    /// Write the start of a frame, if there is room for all of it.
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

    /// Copy private bytes in, as many as both sides have; returns how many.
    #[inline(always)]
    pub fn write(&self, from: &[u8]) -> usize {
        let count = from.len().min(self.length as usize);
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr(), count) };
        count
    }

    /// Copy guest memory to guest memory, as much as both sides have; returns how much.
    ///
    /// The two may overlap: a hostile front-end can present one region twice.
    #[inline(always)]
    pub fn copy_to(&self, to: &Span<'_>) -> u32 {
        let count = self.length.min(to.length);
        // SAFETY: both sides are valid for `count` bytes.
        unsafe { ptr::copy(self.base.as_ptr(), to.base.as_ptr(), count as usize) };
        count
    }

    /// Read the descriptor at `index` of an indirect table, if the span is that long.
    #[inline(always)]
    #[must_use]
    pub fn descriptor(&self, index: u32) -> Option<Descriptor> {
        let offset = index.checked_mul(Descriptor::SIZE)?;
        let end = offset.checked_add(Descriptor::SIZE)?;
        if end > self.length {
            return None;
        }
        // SAFETY: both words lie in the span, and the type asks for no alignment. Volatile: read
        // once, whatever the guest writes meanwhile.
        let (low, high) = unsafe {
            let words = self.base.add(offset as usize).cast::<Unaligned<u64>>();
            (words.read_volatile().0, words.add(1).read_volatile().0)
        };
        Some(Descriptor::from_words(low, high))
    }

    /// Have the first cache lines fetched, two at most: they will be read soon.
    #[inline(always)]
    pub fn prefetch_read(&self) {
        prefetch_read(self.base);
        prefetch_read(self.last_of_two_lines());
    }

    /// Have the first cache lines fetched for ourselves alone, two at most: they will be written
    /// soon.
    #[inline(always)]
    pub fn prefetch_write(&self) {
        prefetch_write(self.base);
        prefetch_write(self.last_of_two_lines());
    }

    /// The last byte, or one a cache line further than the first. A line that is not needed must
    /// not be fetched: it would be taken from the core that works on it.
    #[inline(always)]
    fn last_of_two_lines(&self) -> NonNull<u8> {
        let ahead = self.length.saturating_sub(1).min(64) as usize;
        self.base.map_addr(|address| address.saturating_add(ahead))
    }
}
