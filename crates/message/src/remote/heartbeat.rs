//! The heartbeat of a gateway: a counter that changes as long as the gateway runs.
//!
//! A gateway that is silent is not at its end. Its VM may be paused (QMP `stop`, a snapshot), its
//! virtual CPUs may be stopped by a quota, or its host may be overcommitted. It continues where it
//! stopped, and its links lose nothing meanwhile, because the windows keep what was sent. So silence
//! ends no link. What ends a gateway is seen elsewhere, at once: the socket of its QEMU or process
//! closes, or it leaves or joins again. A silent gateway cannot answer, so new links to it are
//! refused.

use std::time::{Duration, Instant};

/// A gateway without a heartbeat for this long is silent. It sends one a second.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Heartbeat {
    count: u32,
    /// When the count was last seen to change.
    changed: Instant,
    silent: bool,
}

impl Heartbeat {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            count: 0,
            changed: now,
            silent: false,
        }
    }

    /// Records that a gateway has joined.
    pub(super) fn joined(&mut self, now: Instant) {
        (self.changed, self.silent) = (now, false);
    }

    /// Records the counter as it is now.
    pub(super) fn update(&mut self, count: u32, now: Instant) {
        if count != self.count {
            (self.count, self.changed) = (count, now);
        }
        self.silent = now.saturating_duration_since(self.changed) >= SILENT_AFTER;
    }

    /// Returns whether the gateway was silent at the last update.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_silent_after_ten_seconds_until_its_next_heartbeat() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(start);
        let second = |number| start + Duration::from_secs(number);
        for number in 0..20 {
            heartbeat.update(7, second(number));
            assert_eq!(heartbeat.is_silent(), number >= 10, "{number} s");
        }
        heartbeat.update(8, second(20));
        assert!(!heartbeat.is_silent());
        heartbeat.update(8, second(30));
        assert!(heartbeat.is_silent());
        heartbeat.joined(second(31));
        assert!(!heartbeat.is_silent());
    }
}
