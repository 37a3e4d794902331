//! How long a gateway sleeps between two polls of its control window.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::LONGEST_PAUSE;

/// The pause between two polls of the control window.
#[derive(Debug)]
pub(super) struct PollBackoff {
    /// The host cannot wake this gateway.
    pub(super) polling_only: bool,
    pause: Duration,
    polls: u32,
    pub(super) had_event: bool,
}

/// The first pause after an event.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);

/// Pauses are at most so many times as long as polls.
const PAUSE_PER_POLL: u32 = 150;

impl PollBackoff {
    pub(super) fn new(polling_only: bool) -> Self {
        Self {
            polling_only,
            pause: SHORTEST_PAUSE,
            polls: 0,
            had_event: false,
        }
    }

    pub(super) fn next(&mut self, moved: bool) -> Duration {
        if !self.polling_only {
            return Duration::from_secs(1);
        }
        self.polls = self.polls.saturating_add(1);
        self.pause = match moved || std::mem::take(&mut self.had_event) {
            true => SHORTEST_PAUSE,
            false => (self.pause * 2).min(self.longest()),
        };
        self.pause
    }

    /// Returns the longest pause: polls take less than 1 % of a processor, whatever a poll costs
    /// here.
    fn longest(&self) -> Duration {
        let spent = clock_gettime(ClockId::ThreadCPUTime);
        let spent = Duration::try_from(spent).unwrap_or_default();
        (spent / self.polls.max(1) * PAUSE_PER_POLL).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}
