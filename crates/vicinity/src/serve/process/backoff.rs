//! Exponential back-off of a process that ends again and again.

use std::time::Duration;

use tokio::time::Instant;

/// Pause before the second restart in a row; each further pause is twice as long as the one before. The first
/// restart comes at once, because VMs wait.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A process that ran for so long resets the back-off.
const RESET_AFTER: Duration = Duration::from_secs(60);

/// After so many ends in a row the process counts as failed. It is still started again.
const FAILED: u32 = 3;

/// The restarts of one process.
#[derive(Debug)]
pub(in crate::serve) struct Backoff {
    started: Instant,
    in_a_row: u32,
}

impl Backoff {
    /// Returns the back-off of a process that was started now, for the first time.
    pub(in crate::serve) fn new(now: Instant) -> Self {
        Self {
            started: now,
            in_a_row: 0,
        }
    }

    /// Notes that the process was started again.
    pub(in crate::serve) fn started(&mut self, now: Instant) {
        self.started = now;
    }

    /// Notes that the process ended; returns the pause before the next start.
    pub(in crate::serve) fn ended(&mut self, now: Instant) -> Duration {
        if now.duration_since(self.started) >= RESET_AFTER {
            self.in_a_row = 0;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        match self.in_a_row.checked_sub(2) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_PAUSE
                .saturating_mul(1 << doublings.min(16))
                .min(LONGEST_PAUSE),
        }
    }

    /// Returns whether the process ended [`FAILED`] times in a row, or more often.
    pub(in crate::serve) fn has_failed(&self) -> bool {
        self.in_a_row >= FAILED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_is_at_once_and_pauses_double_up_to_a_minute() {
        let now = Instant::now();
        let mut backoff = Backoff::new(now);
        let pauses: Vec<u128> = (0..13).map(|_| backoff.ended(now).as_millis()).collect();
        assert_eq!(pauses[..4], [0, 100, 200, 400]);
        assert_eq!(pauses[10..], [51_200, 60_000, 60_000]);
    }

    #[test]
    fn it_has_failed_when_it_ends_again_and_again_and_not_after_a_steady_time() {
        let now = Instant::now();
        let mut backoff = Backoff::new(now);
        for _ in 0..2 {
            backoff.ended(now);
            assert!(!backoff.has_failed());
        }
        backoff.ended(now);
        assert!(backoff.has_failed());
        backoff.started(now);
        let almost = now + RESET_AFTER - Duration::from_millis(1);
        assert_ne!(backoff.ended(almost), Duration::ZERO);
        assert_eq!(backoff.ended(now + RESET_AFTER), Duration::ZERO);
        assert!(!backoff.has_failed());
    }
}
