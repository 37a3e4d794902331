//! What captures may cost a worker: all the time in which there is nothing else to do, and a small part of
//! that in which there is. So a capture slows nobody: where a worker has its hands full, what it is not
//! allowed to show is missed.
//!
//! What a frame costs is not measured but reckoned: looking at the clock would cost as much as the frame, and
//! would charge it with whatever else the CPU was given to meanwhile.

use std::time::Duration;

use crate::limits::{CAPTURE_BURST, CAPTURE_SHARE};

/// Nanoseconds that a frame costs, however short.
const FRAME: i64 = 80;

/// Bytes that are copied twice in a nanosecond: once to be shown, once by the kernel.
const BYTES: i64 = 5;

/// The time there is.
#[derive(Debug)]
pub(crate) struct CaptureBudget {
    /// Of [`CAPTURE_SHARE`]s of a nanosecond so many, up to [`MOST`]; below zero after a run of frames
    /// that cost more.
    left: i64,
}

/// [`CAPTURE_BURST`].
const MOST: i64 = CAPTURE_BURST.subsec_nanos() as i64 * CAPTURE_SHARE;

impl Default for CaptureBudget {
    fn default() -> Self {
        Self { left: MOST }
    }
}

impl CaptureBudget {
    /// So much time has passed; in it, there was nothing to do, or there was.
    #[inline]
    pub(crate) fn earn(&mut self, time: Duration, idle: bool) {
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let each = if idle { CAPTURE_SHARE } else { 1 };
        let earned = nanoseconds.saturating_mul(each);
        self.left = self.left.saturating_add(earned).min(MOST);
    }

    /// Whether frames may be shown.
    pub(crate) fn is_available(&self) -> bool {
        self.left > 0
    }

    /// So many bytes of a frame were shown.
    pub(crate) fn spend(&mut self, bytes: u32) {
        let cost = FRAME + i64::from(bytes) / BYTES;
        self.left = self.left.saturating_sub(cost * CAPTURE_SHARE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent() -> CaptureBudget {
        let mut budget = CaptureBudget::default();
        while budget.is_available() {
            budget.spend(1500);
        }
        budget
    }

    /// Frames of 60 bytes that may be shown now.
    fn frames(mut budget: CaptureBudget) -> i64 {
        let mut frames: i64 = 0;
        while budget.is_available() {
            budget.spend(60);
            frames += 1;
        }
        frames
    }

    #[test]
    fn a_busy_worker_shows_a_few_frames_and_an_idle_one_all() {
        let (mut busy, mut idle) = (spent(), spent());
        for _ in 0..1000 {
            busy.earn(Duration::from_micros(1), false);
            idle.earn(Duration::from_micros(1), true);
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
    fn what_a_long_sleep_earns_is_limited() {
        let mut budget = spent();
        for seconds in [3600, 0, 1, u64::MAX] {
            budget.earn(Duration::from_secs(seconds), false);
        }
        assert_eq!(budget.left, MOST);
        assert_eq!(frames(budget), frames(CaptureBudget::default()));
    }
}
