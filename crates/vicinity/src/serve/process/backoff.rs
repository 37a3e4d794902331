//! When a data plane that ended is started again.

use std::time::Duration;

use tokio::time::Instant;

/// Pause before the second start in a row; each is twice as long as the one before. The first
/// start comes at once: VMs wait.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A data plane that ran for so long starts a new row.
const STEADY: Duration = Duration::from_secs(60);

/// So many ends in a row, and the network has failed. It is tried on all the same.
const FAILED: u32 = 3;

/// The starts of one network's data plane.
#[derive(Debug)]
pub(in crate::serve) struct Backoff {
    started: Instant,
    in_a_row: u32,
}

impl Backoff {
    /// A data plane was started now, for the first time.
    pub(in crate::serve) fn new(now: Instant) -> Self {
        Self {
            started: now,
            in_a_row: 0,
        }
    }

    /// The data plane was started again.
    pub(in crate::serve) fn started(&mut self, now: Instant) {
        self.started = now;
    }

    /// The data plane ended; how long to wait before the next start.
    pub(in crate::serve) fn ended(&mut self, now: Instant) -> Duration {
        if now.duration_since(self.started) >= STEADY {
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

    /// It ends again and again.
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
        let almost = now + STEADY - Duration::from_millis(1);
        assert_ne!(backoff.ended(almost), Duration::ZERO);
        assert_eq!(backoff.ended(now + STEADY), Duration::ZERO);
        assert!(!backoff.has_failed());
    }
}
