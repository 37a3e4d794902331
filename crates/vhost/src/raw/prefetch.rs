//! Prefetch instructions. A prefetch of any address, mapped or not, only affects performance.
//!
//! Cache lines of rings and payload come from another core's cache, some two hundred cycles away. Without
//! prefetches, waiting for these lines is most of the cost of a small frame.

use std::ptr::NonNull;

/// Prefetches the cache line in which a value begins, for a read that follows soon.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_read(NonNull::from(place));
}

/// Prefetches a cache line for reading.
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

/// Prefetches a cache line for writing, in exclusive state: one transfer between cores instead of two.
#[inline]
pub(super) fn prefetch_write<T>(address: NonNull<T>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: see the module. This is inline assembly because the compiler emits a read prefetch for the
    // intrinsic unless `prefetchw` is enabled as a target feature. Every 64-bit processor has the
    // instruction or ignores it.
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
