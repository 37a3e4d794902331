//! How long a gateway sleeps between two looks at its trunk.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::limits::PAUSE;

/// How long to sleep between two looks at the trunk.
#[derive(Debug)]
pub(super) struct PollBackoff {
    /// Nothing wakes this gateway.
    pub(super) blind: bool,
    now: Duration,
    looks: u32,
    pub(super) disturbed: bool,
}

/// The first pause after something happened.
const SHORT: Duration = Duration::from_micros(50);

/// PollBackoff are so many times longer than looks.
const SHARE: u32 = 150;

impl PollBackoff {
    pub(super) fn new(blind: bool) -> Self {
        Self {
            blind,
            now: SHORT,
            looks: 0,
            disturbed: false,
        }
    }

    pub(super) fn next(&mut self, moved: bool) -> Duration {
        if !self.blind {
            return Duration::from_secs(1);
        }
        self.looks = self.looks.saturating_add(1);
        self.now = match moved || std::mem::take(&mut self.disturbed) {
            true => SHORT,
            false => (self.now * 2).min(self.longest()),
        };
        self.now
    }

    /// So long that looks take less than a hundredth of a processor, whatever a look takes here.
    fn longest(&self) -> Duration {
        let spent = clock_gettime(ClockId::ThreadCPUTime);
        let spent = Duration::try_from(spent).unwrap_or_default();
        (spent / self.looks.max(1) * SHARE).clamp(SHORT, PAUSE)
    }
}
