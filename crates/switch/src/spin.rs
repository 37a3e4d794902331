//! Adaptive busy-polling before a worker sleeps.
//!
//! A sleep and a wake-up cost two system calls and a few microseconds. If the last sleeps were shorter
//! than [`limits::SPIN`](crate::limits::SPIN), polling for that long would have been cheaper. So the worker
//! polls before the next sleep, longer after each short sleep and shorter after each long one. This does not
//! use a whole core: when polling finds nothing within its time, the worker sleeps.

use std::time::{Duration, Instant};

use crate::clock;

/// The adaptive polling time.
#[derive(Debug)]
pub(crate) struct Spin {
    longest: Duration,
    budget: Duration,
    since: Option<Instant>,
}

impl Spin {
    /// Creates a state that polls for at most `longest`, and at first not at all.
    #[must_use]
    pub(crate) fn new(longest: Duration) -> Self {
        Self {
            longest,
            budget: Duration::ZERO,
            since: None,
        }
    }

    /// Records that there was work.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.since = None;
    }

    /// Records that there was no work; returns whether to poll again.
    #[inline]
    pub(crate) fn continue_polling(&mut self) -> bool {
        if self.budget.is_zero() {
            return false;
        }
        let now = clock::now();
        now.duration_since(*self.since.get_or_insert(now)) < self.budget
    }

    /// Records the length of a sleep.
    pub(crate) fn slept(&mut self, time: Duration) {
        self.since = None;
        let step = self.longest / 8;
        self.budget = if time < self.longest {
            (self.budget + step).min(self.longest)
        } else {
            self.budget / 2
        };
        // Halving alone would never reach zero.
        if self.budget < step {
            self.budget = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_increase_polling_and_long_sleeps_reduce_it() {
        let mut spin = Spin::new(Duration::from_secs(80));
        assert!(!spin.continue_polling());
        for _ in 0..3 {
            spin.slept(Duration::from_secs(1));
        }
        assert!(spin.continue_polling());
        for _ in 0..3 {
            spin.slept(Duration::from_secs(100));
        }
        assert!(!spin.continue_polling());
    }
}
