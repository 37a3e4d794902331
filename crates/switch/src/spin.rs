//! Whether to look for more work before sleeping.
//!
//! Sleeping and waking costs two system calls and a few microseconds. If the last sleeps were
//! shorter than [`limits::SPIN`](crate::limits::SPIN), looking on for that long would have been cheaper, so the next
//! time we do, longer each time it would have paid and shorter each time it would not. A core is
//! never burnt: after one look without success the worker sleeps.

use std::time::{Duration, Instant};

/// The decision, and what it learns from.
#[derive(Debug)]
pub(crate) struct Spin {
    longest: Duration,
    budget: Duration,
    since: Option<Instant>,
}

impl Spin {
    /// Look for at most `longest`; at first not at all.
    #[must_use]
    pub(crate) fn new(longest: Duration) -> Self {
        Self {
            longest,
            budget: Duration::ZERO,
            since: None,
        }
    }

    /// There was work.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.since = None;
    }

    /// There was none: look again?
    #[inline]
    pub(crate) fn keep_looking(&mut self) -> bool {
        if self.budget.is_zero() {
            return false;
        }
        let now = Instant::now();
        now.duration_since(*self.since.get_or_insert(now)) < self.budget
    }

    /// A sleep has ended after so long.
    pub(crate) fn slept(&mut self, time: Duration) {
        self.since = None;
        let step = self.longest / 8;
        self.budget = if time < self.longest {
            (self.budget + step).min(self.longest)
        } else {
            self.budget / 2
        };
        // Halving would take for ever to get to nothing.
        if self.budget < step {
            self.budget = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_teach_to_look_and_long_ones_to_sleep() {
        let mut spin = Spin::new(Duration::from_secs(80));
        assert!(!spin.keep_looking());
        for _ in 0..3 {
            spin.slept(Duration::from_secs(1));
        }
        assert!(spin.keep_looking());
        for _ in 0..3 {
            spin.slept(Duration::from_secs(100));
        }
        assert!(!spin.keep_looking());
    }
}
