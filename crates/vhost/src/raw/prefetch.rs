//! Hints to the processor's caches. A hint for any address, mapped or not, has no effect but on
//! time.
//!
//! Ring and payload lines come from another core's cache, some two hundred cycles away: without
//! these, waiting for them is most of the cost of a small frame.

use std::ptr::NonNull;

/// Have the line where a value begins fetched, for a look at it soon.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_read(NonNull::from(place));
}

/// Have a line fetched for reading.
#[inline]
pub(super) fn prefetch_read<T>(address: NonNull<T>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: see the module.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.as_ptr().cast_const().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Have a line fetched for writing, taking it from whichever core has it: one trip instead of
/// two.
#[inline]
pub(super) fn prefetch_write<T>(address: NonNull<T>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: see the module. Written out because the compiler takes the intrinsic for a read
    // unless told the processor has the instruction; every 64-bit one has, or ignores it.
    unsafe {
        std::arch::asm!(
            "prefetchw [{address}]",
            address = in(reg) address.as_ptr(),
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
