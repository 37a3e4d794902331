//! Prefetches. A prefetch of any address, mapped or not, affects nothing but time.

use std::ptr::NonNull;

/// Prefetches a cache line for writing, which takes ownership from the core that has it: one
/// transfer instead of two, and no store waits for it.
#[inline(always)]
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

/// Prefetches a cache line for reading.
#[inline(always)]
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
