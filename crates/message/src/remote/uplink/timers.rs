//! When an uplink runs the timers of its nodes.
//!
//! Running them takes as long as a short message. They count in milliseconds, but for acknowledgements that are due at once. So they wait
//! until a turn has moved nothing: then no message waits for them.

use std::time::Duration;

/// How long the timers may wait.
const WAIT: Duration = Duration::from_micros(20);

#[derive(Debug)]
pub(super) struct Timers {
    ran_at: Duration,
    /// Anything was moved since they ran.
    changed: bool,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self {
            ran_at: Duration::ZERO,
            changed: true,
        }
    }

    /// Returns whether they are to run in a turn that has moved anything or nothing.
    pub(super) fn begin(&mut self, now: Duration, moved: bool) -> bool {
        self.changed |= moved;
        let may_wait = moved || !self.changed;
        if may_wait && now.saturating_sub(self.ran_at) < WAIT {
            return false;
        }
        *self = Self {
            ran_at: now,
            changed: false,
        };
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
}
