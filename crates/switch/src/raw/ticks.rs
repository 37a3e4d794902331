//! The processor's time-stamp counter: what "cycles per frame" is counted in.

/// The counter now; 0 on machines without one.
#[inline]
#[must_use]
pub(crate) fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, and Linux leaves it to everybody.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        0
    }
}
