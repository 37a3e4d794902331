//! What a long run is doing, a line a step, with the time since it began.

use std::time::Instant;

/// Prints steps on standard error.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    start: Instant,
}

impl Progress {
    /// Start the clock.
    #[must_use]
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Say what begins now.
    #[expect(clippy::print_stderr, reason = "this is its purpose")]
    pub fn step(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!("[{seconds:6.1} s] {what}");
    }

    /// Seconds since the start.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}
