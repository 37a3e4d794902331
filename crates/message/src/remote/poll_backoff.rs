//! How long a gateway sleeps between two polls of its control window, where the host cannot wake it.
//!
//! A VM without the driver `vicinity_wake` gets no interrupts of its region, so its gateway polls.
//! Each wake-up costs the guest a poll. It costs the host an exit of the virtual CPU, a timer and an
//! entry: some 10 us that the guest cannot measure. So there are two scales. Soon after traffic, more
//! traffic is likely, and pauses are so short that polls take less than 1 % of a processor. Later, a
//! pause is [`IDLE_PAUSE`] at least, and an idle VM costs at most 100 wake-ups a second.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::limits::LONGEST_PAUSE;

/// The pause between two polls of the control window.
#[derive(Debug)]
pub(super) struct PollBackoff {
    /// The host cannot wake this gateway.
    pub(super) polling_only: bool,
    pause: Duration,
    /// The sum of all pauses since the last event.
    idle: Duration,
    polls: u32,
    pub(super) had_event: bool,
}

/// The first pause after an event.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);

/// Soon after an event, pauses are at most so many times as long as polls.
const PAUSE_PER_POLL: u32 = 150;

/// Pauses may be short for so long after an event.
const SHORT_PAUSE_TIME: Duration = Duration::from_millis(100);

/// The shortest pause after that.
const IDLE_PAUSE: Duration = Duration::from_millis(10);

impl PollBackoff {
    pub(super) fn new(polling_only: bool) -> Self {
        Self {
            polling_only,
            pause: SHORTEST_PAUSE,
            idle: Duration::ZERO,
            polls: 0,
            had_event: false,
        }
    }

    /// Returns the next pause; `moved` says whether the last poll found anything.
    pub(super) fn next(&mut self, moved: bool) -> Duration {
        if !self.polling_only {
            return Duration::from_secs(1);
        }
        self.polls = self.polls.saturating_add(1);
        let spent = clock_gettime(ClockId::ThreadCPUTime);
        let spent = Duration::try_from(spent).unwrap_or_default();
        let had_event = moved || std::mem::take(&mut self.had_event);
        self.after(had_event, spent / self.polls)
    }

    /// Returns the next pause if a poll takes this much processor time.
    fn after(&mut self, had_event: bool, poll: Duration) -> Duration {
        if had_event {
            (self.pause, self.idle) = (SHORTEST_PAUSE, Duration::ZERO);
            return self.pause;
        }
        let longest = (poll * PAUSE_PER_POLL).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        self.pause = match self.idle < SHORT_PAUSE_TIME {
            true => (self.pause * 2).min(longest),
            false => (self.pause * 2).min(longest.max(IDLE_PAUSE)),
        };
        self.idle = self.idle.saturating_add(self.pause);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the polls in the first and in the second idle second.
    fn polls_a_second(poll: Duration) -> [u32; 2] {
        let mut backoff = PollBackoff::new(true);
        let mut polls = [0; 2];
        for count in &mut polls {
            let mut slept = Duration::ZERO;
            while slept < Duration::from_secs(1) {
                slept += backoff.after(false, poll) + poll;
                *count += 1;
            }
        }
        polls
    }

    #[test]
    fn an_idle_vm_costs_at_most_200_wakeups_a_second_however_fast_it_polls() {
        for poll in [2, 5, 8, 100, 1000] {
            let [_, idle] = polls_a_second(Duration::from_micros(poll));
            assert!(idle <= 101, "{idle} for polls of {poll} us");
        }
    }

    #[test]
    fn pauses_are_short_soon_after_an_event() {
        let mut backoff = PollBackoff::new(true);
        let poll = Duration::from_micros(5);
        let mut slept = Duration::ZERO;
        while slept < SHORT_PAUSE_TIME {
            let pause = backoff.after(false, poll);
            assert!(pause <= poll * PAUSE_PER_POLL, "{pause:?}");
            slept += pause;
        }
        for _ in 0..100 {
            backoff.after(false, poll);
        }
        assert!(backoff.after(false, poll) >= IDLE_PAUSE);
        // One event is enough.
        assert_eq!(backoff.after(true, poll), SHORTEST_PAUSE);
        assert!(backoff.after(false, poll) <= poll * PAUSE_PER_POLL);
    }
}
