//! How long a port is in quarantine after its front-end misbehaved.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Length of the first quarantine.
const FIRST_QUARANTINE: Duration = Duration::from_secs(1);

/// Length of the longest quarantine.
const LONGEST_QUARANTINE: Duration = Duration::from_secs(60);

/// Time without a fault after which the last quarantine no longer counts.
const RESET_AFTER: Duration = Duration::from_secs(60);

/// How often front-ends may connect to a port within [`CONNECTS_WITHIN`].
pub(in crate::serve) const CONNECTS: usize = 20;

/// The time in which [`CONNECTS`] connections are allowed.
pub(in crate::serve) const CONNECTS_WITHIN: Duration = Duration::from_secs(10);

/// The recent connections and the last quarantine of a port.
#[derive(Debug, Default)]
pub(in crate::serve) struct ConnectionHistory {
    /// Length and end of the last quarantine.
    last: Option<(Duration, Instant)>,
    /// Recent connections, oldest first, at most [`CONNECTS`].
    connects: VecDeque<Instant>,
}

impl ConnectionHistory {
    /// Records a connection. Returns false if there were too many recently.
    pub(in crate::serve) fn record(&mut self, now: Instant) -> bool {
        let recent = |then: &Instant| now.duration_since(*then) < CONNECTS_WITHIN;
        while self.connects.front().is_some_and(|then| !recent(then)) {
            self.connects.pop_front();
        }
        if self.connects.len() >= CONNECTS {
            return false;
        }
        self.connects.push_back(now);
        true
    }

    /// Begins a quarantine and returns its end. It is twice as long as the last one, if that still counts.
    pub(in crate::serve) fn quarantine(&mut self, now: Instant) -> Instant {
        let length = match self.last {
            Some((length, end)) if now.duration_since(end) < RESET_AFTER => {
                (length * 2).min(LONGEST_QUARANTINE)
            }
            _ => FIRST_QUARANTINE,
        };
        let end = now + length;
        self.last = Some((length, end));
        self.connects.clear();
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hold_doubles_up_to_a_minute() {
        let mut history = ConnectionHistory::default();
        let mut now = Instant::now();
        let mut holds = Vec::new();
        for _ in 0..9 {
            let end = history.quarantine(now);
            holds.push(end.duration_since(now).as_secs());
            now = end;
        }
        assert_eq!(holds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn the_length_resets_after_a_minute_without_faults_and_not_before() {
        let mut history = ConnectionHistory::default();
        let start = Instant::now();
        let end = history.quarantine(start);
        let early = end + RESET_AFTER - Duration::from_millis(1);
        let second = history.quarantine(early);
        assert_eq!(second.duration_since(early), Duration::from_secs(2));
        let late = second + RESET_AFTER;
        let third = history.quarantine(late);
        assert_eq!(third.duration_since(late), Duration::from_secs(1));
    }

    #[test]
    fn twenty_connections_in_ten_seconds_are_fine_and_the_next_is_not() {
        let mut history = ConnectionHistory::default();
        let start = Instant::now();
        for step in 0..20 {
            assert!(history.record(start + Duration::from_millis(step * 100)));
        }
        let almost = start + CONNECTS_WITHIN - Duration::from_millis(1);
        assert!(!history.record(almost));
        assert!(
            history.record(start + CONNECTS_WITHIN),
            "the first one is old now"
        );
        assert!(!history.record(start + CONNECTS_WITHIN));
    }

    #[test]
    fn a_quarantine_clears_the_count() {
        let mut history = ConnectionHistory::default();
        let start = Instant::now();
        while history.record(start) {}
        let end = history.quarantine(start);
        assert!(history.record(end));
    }
}
