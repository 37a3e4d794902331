//! The processor's time-stamp counter: for times that reading the kernel's clock would be a large
//! part of.

/// The counter now. It counts evenly, from whenever, in steps of whatever length.
#[inline(always)]
pub(crate) fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, and Linux leaves it to everybody.
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
