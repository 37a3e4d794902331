//! Prints the steps of a long run, one line each, with the time since its start.

use std::time::Instant;

/// Prints steps on standard error.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    start: Instant,
}

impl Progress {
    /// Starts the clock.
    #[must_use]
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Prints the name of the step that begins.
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
