//! The processor's time-stamp counter, the unit of the figure "cycles per frame".

/// Returns the counter; 0 on machines without one.
#[inline]
#[must_use]
pub(crate) fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, and Linux allows it in user space.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        0
    }
}
