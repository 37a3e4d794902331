//! The time at which something happens.
//!
//! In loom models it stands still. Loom repeats the choices that led to an interleaving, so what a worker does must depend
//! on nothing else. A model at idle priority is paused for longer than the time limits of workers. If a worker then does
//! something else than before, loom may continue a thread that has ended, without an end.

use std::time::Instant;

/// Returns the time.
#[cfg(not(loom))]
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the time of the first call.
#[cfg(loom)]
pub(crate) fn now() -> Instant {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *FIRST.get_or_init(Instant::now)
}
