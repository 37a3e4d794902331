//! The processor's time-stamp counter, for durations of which reading the kernel's clock would be a
//! large part.

/// Returns the counter. It counts at a constant rate, from an unspecified start and in steps of an
/// unspecified length.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, and Linux permits it to all programs.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        let time = START.get_or_init(Instant::now).elapsed();
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }
}
