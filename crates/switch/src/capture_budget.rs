//! The CPU time that a worker may use for captures: a token bucket.
//!
//! A worker copies frames for captures only while it is idle, plus 1/[`CAPTURE_SHARE`] of its busy time. So
//! captures do not slow forwarding: a busy worker counts frames that exceed the budget as missed.
//!
//! The cost of a frame is estimated, not measured. Reading the clock would cost as much as copying the
//! frame, and would include time in which other threads had the CPU.

use std::time::Duration;

use crate::limits::{CAPTURE_BURST, CAPTURE_SHARE};

/// Fixed cost of a frame in nanoseconds.
const FRAME: i64 = 80;

/// Bytes of a frame that can be copied twice in one nanosecond: once by the worker, once by the kernel.
const BYTES: i64 = 5;

/// The remaining budget.
#[derive(Debug)]
pub(crate) struct CaptureBudget {
    /// In units of 1/[`CAPTURE_SHARE`] nanosecond, up to [`MAX_BUDGET`]. Negative after a run of frames that cost
    /// more than was left.
    left: i64,
}

/// [`CAPTURE_BURST`] in units of the budget.
const MAX_BUDGET: i64 = CAPTURE_BURST.subsec_nanos() as i64 * CAPTURE_SHARE;

impl Default for CaptureBudget {
    fn default() -> Self {
        Self { left: MAX_BUDGET }
    }
}

impl CaptureBudget {
    /// Adds the budget of the time that has passed, in which the worker was idle or busy.
    #[inline]
    pub(crate) fn refill(&mut self, time: Duration, idle: bool) {
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let each = if idle { CAPTURE_SHARE } else { 1 };
        let earned = nanoseconds.saturating_mul(each);
        self.left = self.left.saturating_add(earned).min(MAX_BUDGET);
    }

    /// Returns whether frames may be copied.
    pub(crate) fn is_available(&self) -> bool {
        self.left > 0
    }

    /// Subtracts the cost of a frame of which `bytes` bytes were copied.
    pub(crate) fn charge(&mut self, bytes: u32) {
        let cost = FRAME + i64::from(bytes) / BYTES;
        self.left = self.left.saturating_sub(cost * CAPTURE_SHARE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exhausted() -> CaptureBudget {
        let mut budget = CaptureBudget::default();
        while budget.is_available() {
            budget.charge(1500);
        }
        budget
    }

    /// Returns how many frames of 60 bytes may be copied now.
    fn frames(mut budget: CaptureBudget) -> i64 {
        let mut frames: i64 = 0;
        while budget.is_available() {
            budget.charge(60);
            frames += 1;
        }
        frames
    }

    #[test]
    fn a_busy_worker_copies_few_frames_and_an_idle_one_all() {
        let (mut busy, mut idle) = (exhausted(), exhausted());
        for _ in 0..1000 {
            busy.refill(Duration::from_micros(1), false);
            idle.refill(Duration::from_micros(1), true);
        }
        let cost = FRAME + 60 / BYTES;
        let (busy, idle) = (frames(busy), frames(idle));
        assert!(
            (1_000_000 / CAPTURE_SHARE / cost).abs_diff(busy) < 5,
            "{busy}"
        );
        assert!((1_000_000 / cost).abs_diff(idle) < 5, "{idle}");
    }

    #[test]
    fn the_budget_that_a_long_sleep_adds_is_limited() {
        let mut budget = exhausted();
        for seconds in [3600, 0, 1, u64::MAX] {
            budget.refill(Duration::from_secs(seconds), false);
        }
        assert_eq!(budget.left, MAX_BUDGET);
        assert_eq!(frames(budget), frames(CaptureBudget::default()));
    }
}
