//! When an uplink runs the timers of its nodes.
//!
//! Running them takes as long as a short message. They count in milliseconds, but for acknowledgements that are due at once. So they wait
//! until a turn has moved nothing: then no message waits for them. A turn that finds nothing new is over after its looks, until they may have
//! to run again: most turns of a program that polls are so.

use std::time::Duration;

/// How long the timers may wait.
const WAIT: Duration = Duration::from_micros(20);

#[derive(Debug)]
pub(super) struct Timers {
    ran_at: Duration,
    /// Anything was moved since they ran.
    changed: bool,
    /// The last whole turn has moved nothing, and left nothing that waits for room.
    is_settled: bool,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self {
            ran_at: Duration::ZERO,
            changed: true,
            is_settled: false,
        }
    }

    /// Records whether a whole turn has moved nothing, and left nothing that waits for room.
    pub(super) fn end_turn(&mut self, is_settled: bool) {
        self.is_settled = is_settled;
    }

    /// Returns whether a turn that finds nothing new would do nothing.
    pub(super) fn are_settled(&self, now: Duration) -> bool {
        self.is_settled && now.saturating_sub(self.ran_at) < WAIT
    }

    /// Returns whether they are to run in a turn that has moved anything or nothing.
    pub(super) fn begin(&mut self, now: Duration, moved: bool) -> bool {
        self.changed |= moved;
        let may_wait = moved || !self.changed;
        if may_wait && now.saturating_sub(self.ran_at) < WAIT {
            return false;
        }
        (self.ran_at, self.changed) = (now, false);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_run_when_nothing_is_moved_any_more_and_never_wait_for_long() {
        let mut timers = Timers::new();
        let micros = Duration::from_micros;
        let mut begins = |at, moved| timers.begin(micros(at), moved);
        assert!(begins(100, false));
        assert!(!begins(101, false) && !begins(102, true) && !begins(103, true));
        assert!(begins(104, false));
        assert!(!begins(105, false) && begins(125, false));
        assert!(!begins(126, true) && !begins(144, true) && begins(145, true));
        assert!(!begins(146, false));
    }

    #[test]
    fn turns_are_whole_after_one_that_moved_something_and_when_the_timers_may_be_due() {
        let mut timers = Timers::new();
        let micros = Duration::from_micros;
        assert!(!timers.are_settled(micros(100)));
        assert!(timers.begin(micros(100), false));
        timers.end_turn(true);
        assert!(timers.are_settled(micros(119)) && !timers.are_settled(micros(120)));
        timers.end_turn(false);
        assert!(!timers.are_settled(micros(119)));
    }
}
