//! A piece of guest memory, and the only routine that copies payload.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::mapping::Mapping;
use super::ring::Descriptor;

/// Bytes of guest memory, contiguous in this process, kept alive by the mapping they lie in.
#[derive(Clone, Copy, Debug)]
pub struct Span<'m> {
    base: NonNull<u8>,
    length: u32,
    mapping: PhantomData<&'m Mapping>,
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
    #[inline]
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Where the span begins. For ring addresses and system calls, inside this module only.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The span without its first `count` bytes; empty when it has no more.
    #[inline]
    #[must_use]
    pub fn skip(self, count: u32) -> Span<'m> {
        let count = count.min(self.length);
        // SAFETY: `count <= length`: the rest lies in the same valid range.
        unsafe { Span::new(self.base.add(count as usize), self.length - count) }
    }

    /// The first `count` bytes of the span; all of it when it has no more.
    #[inline]
    #[must_use]
    pub fn first(self, count: u32) -> Span<'m> {
        Span {
            length: self.length.min(count),
            ..self
        }
    }

    /// Copy the first bytes out, as many as both sides have; returns how many.
    #[inline]
    pub fn read(&self, to: &mut [u8]) -> usize {
        let count = to.len().min(self.length as usize);
        // SAFETY: both sides are valid for `count` bytes; private memory never overlaps a
        // mapping of guest memory.
        unsafe { ptr::copy_nonoverlapping(self.base.as_ptr(), to.as_mut_ptr(), count) };
        count
    }

    /// Copy private bytes in, as many as both sides have; returns how many.
    #[inline]
    pub fn write(&self, from: &[u8]) -> usize {
        let count = from.len().min(self.length as usize);
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr(), count) };
        count
    }

    /// Copy guest memory to guest memory, as much as both sides have; returns how much.
    ///
    /// The two may overlap: a hostile front-end can present one region twice.
    #[inline]
    pub fn copy_to(&self, to: &Span<'_>) -> u32 {
        let count = self.length.min(to.length);
        // SAFETY: both sides are valid for `count` bytes.
        unsafe { ptr::copy(self.base.as_ptr(), to.base.as_ptr(), count as usize) };
        count
    }

    /// Read the descriptor at `index` of an indirect table, if the span is that long.
    #[inline]
    #[must_use]
    pub fn descriptor(&self, index: u32) -> Option<Descriptor> {
        let offset = index.checked_mul(Descriptor::SIZE)?;
        let end = offset.checked_add(Descriptor::SIZE)?;
        if end > self.length {
            return None;
        }
        let mut bytes = [0; Descriptor::SIZE as usize];
        self.skip(offset).read(&mut bytes);
        Some(Descriptor::from_bytes(bytes))
    }

    /// Ask the processor to fetch the first two cache lines, which will be needed soon.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let first = self.base.as_ptr().cast_const().cast::<i8>();
            // SAFETY: a prefetch of any address, mapped or not, has no effect but on time.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(first);
                _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64));
            }
        }
    }
}
