//! How long a gateway sleeps between two looks at its trunk when nothing wakes it.
//!
//! A VM without the driver `vicinity_wake` gets no interrupts of its region, so its gateway polls.
//! Each wake-up costs the guest a look, and the host an exit of the virtual CPU, a timer and an entry:
//! some 10 us that the guest cannot measure. So there are two scales. Soon after traffic, more traffic
//! is likely, and pauses are so short that looks take a hundredth of a processor. Later, a pause is
//! [`IDLE`] at least, and an idle VM costs 100 wake-ups a second at most.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::PAUSE;

/// How long to sleep between two looks at the trunk.
#[derive(Debug)]
pub(super) struct PollBackoff {
    /// Nothing wakes this gateway.
    pub(super) blind: bool,
    pause: Duration,
    /// The sum of all pauses since something happened.
    idle: Duration,
    looks: u32,
    pub(super) disturbed: bool,
}

/// The first pause after something happened.
const SHORT: Duration = Duration::from_micros(50);

/// Soon after traffic, pauses are at most so many times longer than looks.
const SHARE: u32 = 150;

/// Pauses may be short for so long after something happened.
const SOON: Duration = Duration::from_millis(100);

/// The shortest pause later.
const IDLE: Duration = Duration::from_millis(10);

impl PollBackoff {
    pub(super) fn new(blind: bool) -> Self {
        Self {
            blind,
            pause: SHORT,
            idle: Duration::ZERO,
            looks: 0,
            disturbed: false,
        }
    }

    /// The next pause; `moved` says whether the last look found anything.
    pub(super) fn next(&mut self, moved: bool) -> Duration {
        if !self.blind {
            return Duration::from_secs(1);
        }
        self.looks = self.looks.saturating_add(1);
        let spent = clock_gettime(ClockId::ThreadCPUTime);
        let spent = Duration::try_from(spent).unwrap_or_default();
        let moved = moved || std::mem::take(&mut self.disturbed);
        self.after(moved, spent / self.looks)
    }

    /// The next pause if a look takes so much processor time here.
    fn after(&mut self, moved: bool, look: Duration) -> Duration {
        if moved {
            (self.pause, self.idle) = (SHORT, Duration::ZERO);
            return self.pause;
        }
        let longest = (look * SHARE).clamp(SHORT, PAUSE);
        self.pause = match self.idle < SOON {
            true => (self.pause * 2).min(longest),
            false => (self.pause * 2).min(longest.max(IDLE)),
        };
        self.idle = self.idle.saturating_add(self.pause);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks in a second, if a look takes so much, a second after the last traffic and right after it.
    fn looks_in_a_second(look: Duration) -> [u32; 2] {
        let mut backoff = PollBackoff::new(true);
        let mut looks = [0; 2];
        for count in &mut looks {
            let mut slept = Duration::ZERO;
            while slept < Duration::from_secs(1) {
                slept += backoff.after(false, look) + look;
                *count += 1;
            }
        }
        looks
    }

    #[test]
    fn an_idle_vm_costs_200_wakeups_a_second_at_most_however_fast_it_looks() {
        for look in [2, 5, 8, 100, 1000] {
            let [_, idle] = looks_in_a_second(Duration::from_micros(look));
            assert!(idle <= 101, "{idle} for looks of {look} us");
        }
    }

    #[test]
    fn pauses_are_short_soon_after_traffic() {
        let mut backoff = PollBackoff::new(true);
        let look = Duration::from_micros(5);
        let mut slept = Duration::ZERO;
        while slept < SOON {
            let pause = backoff.after(false, look);
            assert!(pause <= look * SHARE, "{pause:?}");
            slept += pause;
        }
        // Much later one message is enough.
        for _ in 0..100 {
            backoff.after(false, look);
        }
        assert!(backoff.after(false, look) >= IDLE);
        assert_eq!(backoff.after(true, look), SHORT);
        assert!(backoff.after(false, look) <= look * SHARE);
    }
}
