//! The processor's time-stamp counter, for durations of which reading the kernel's clock would be a
//! large part.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the counter's rate is measured, once in a process.
const MEASURED_FOR: Duration = Duration::from_micros(20);

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
        static START: OnceLock<Instant> = OnceLock::new();
        let time = START.get_or_init(Instant::now).elapsed();
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns the counter when all loads before have ended, and before any load that follows begins.
#[inline(always)]
#[must_use]
pub fn ordered() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: as in `now`; the fence is part of SSE2.
        unsafe {
            _mm_lfence();
            let now = _rdtsc();
            _mm_lfence();
            now
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    now()
}

/// Returns the counter's steps in a microsecond. The first call takes 20 us.
#[must_use]
pub fn per_microsecond() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (start, first) = (Instant::now(), now());
        let elapsed = loop {
            let elapsed = start.elapsed();
            if elapsed >= MEASURED_FOR {
                break elapsed;
            }
        };
        let nanoseconds = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        now().saturating_sub(first).saturating_mul(1000) / nanoseconds.max(1)
    })
}
