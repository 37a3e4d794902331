//! How long a waiter polls: decisions without a clock of their own.
//!
//! A wait polls, yields or sleeps. Polling is right while the answer arrives sooner than a sleep and
//! a wake-up take. Two things end that:
//!
//! - **The waiter loses its processor** in the wait: no poll for [`Thresholds::lost_cpu`]. The time
//!   of the loss is no polling, so it is not counted. But the processors are scarce, and the peer had
//!   that time as well. So a remote wait then has the limits of a near one, and what it polled before
//!   counts.
//! - **The host is overcommitted**, as steal time shows: a poller keeps the processor from the VM
//!   that it waits for. Then each wait polls for [`Thresholds::spin`] and sleeps.
//!
//! Therefore a wait never polls for longer than its limit, and for at most
//! [`Thresholds::lost_cpu`] more in each poll.

use std::time::{Duration, Instant};

use window::calibration::Thresholds;

use crate::limits::{REMOTE_TRANSFER_SPIN, TRANSFER_SPIN};

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Poll,
    /// Yields the processor, calls [`Wait::yielded`], and polls.
    Yield,
    Sleep,
}

/// The conditions on the host, as a waiter knows them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostConditions {
    /// It has a remote peer: a wake-up passes gateways.
    pub(crate) remote: bool,
    /// Other programs use this processor.
    pub(crate) contended: bool,
    /// The host has too few processors.
    pub(crate) overcommitted: bool,
}

/// One wait, from its first poll to its end or its sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The time spent polling and yielding.
    polled: Duration,
    /// When it was last counted.
    counted: Instant,
    lost_cpu: bool,
}

/// The polls of a program that found nothing, since the last one that found something.
#[derive(Debug, Default)]
pub(crate) struct EmptyPolls {
    /// Since the last read of the clock.
    pub(crate) count: u32,
    /// The wait that the polls amount to, from the first read of the clock.
    pub(crate) wait: Option<Wait>,
    /// Yields that were left out since the last one.
    pub(crate) left_out: u32,
    /// When the last look at a peer's heap, and its sleep or yield, had ended.
    pub(crate) looked: Option<Instant>,
    /// The poll before them found something, and the clock was not read since.
    pub(crate) follow_found: bool,
}

impl Wait {
    pub(crate) fn begin(now: Instant) -> Self {
        Self {
            polled: Duration::ZERO,
            counted: now,
            lost_cpu: false,
        }
    }

    /// Returns whether each poll is to end with a `PAUSE`. The pause gives the core to its sibling
    /// thread, and it is how KVM detects a virtual CPU that waits for another (`ple_window` in
    /// `arch/x86/kvm/vmx/vmx.c`, `pause_filter_count` in `arch/x86/kvm/svm/svm.c`). It takes 40 ns on
    /// some processors, a quarter of the latency of a short message. So the first polls do not pause:
    /// most answers of a peer that runs arrive meanwhile.
    #[inline]
    pub(crate) fn pauses(&self, thresholds: &Thresholds) -> bool {
        self.polled >= thresholds.yield_after
    }

    /// Returns the time since time was last counted.
    #[inline]
    pub(crate) fn uncounted(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.counted)
    }

    /// Returns the time spent polling and yielding.
    #[inline]
    pub(crate) fn polled(&self) -> Duration {
        self.polled
    }

    /// Returns whether the program lost its processor, or gave it away, since time was last counted.
    #[inline]
    pub(crate) fn lost_cpu_until(&self, now: Instant, thresholds: &Thresholds) -> bool {
        self.uncounted(now) >= thresholds.lost_cpu
    }

    /// Records that polls found nothing until `now`; returns what to do next. `awaits_reply` tells
    /// whether a request waits for a peer's reply.
    #[inline]
    pub(crate) fn next(
        &mut self,
        now: Instant,
        thresholds: &Thresholds,
        around: HostConditions,
        awaits_reply: impl FnOnce() -> bool,
    ) -> Step {
        match self.lost_cpu_until(now, thresholds) {
            true => self.lost_cpu = true,
            false => self.polled += self.uncounted(now),
        }
        self.counted = now;
        let polled = self.polled;
        let over = |awaits_reply| polled >= self.limit(thresholds, around, awaits_reply);
        // The longer limit is that of a wait for a reply.
        if over(false) && (over(true) || !awaits_reply()) {
            return Step::Sleep;
        }
        let remote = around.remote && (polled >= thresholds.yield_after || around.contended);
        match polled >= thresholds.spin || remote {
            // A relay or a gateway may need this processor.
            true => Step::Yield,
            false => Step::Poll,
        }
    }

    /// Records that a yield ended at `now`. Its time counts, although another program may
    /// have used it: the peer had that time, too.
    #[inline]
    pub(crate) fn yielded(&mut self, now: Instant) {
        self.polled += self.uncounted(now);
        self.counted = now;
    }

    /// Returns the limit of the polling time.
    #[inline]
    fn limit(
        &self,
        thresholds: &Thresholds,
        around: HostConditions,
        awaits_reply: bool,
    ) -> Duration {
        if around.overcommitted {
            return thresholds.spin;
        }
        match (around.remote && !self.lost_cpu, awaits_reply) {
            (false, false) => thresholds.spin,
            (false, true) => TRANSFER_SPIN,
            (true, false) => thresholds.remote_spin,
            (true, true) => REMOTE_TRANSFER_SPIN,
        }
    }
}

/// Conditions and thresholds for tests.
#[cfg(test)]
pub(crate) mod conditions {
    use super::*;

    pub(crate) const REMOTE: HostConditions = HostConditions {
        remote: true,
        contended: false,
        overcommitted: false,
    };

    pub(crate) const NEAR: HostConditions = HostConditions {
        remote: false,
        ..REMOTE
    };

    pub(crate) const OVERCOMMITTED: HostConditions = HostConditions {
        overcommitted: true,
        ..REMOTE
    };

    pub(crate) fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// The thresholds of a fast host.
    pub(crate) fn thresholds() -> Thresholds {
        Thresholds::of(&window::calibration::Samples::default())
    }
}

#[cfg(test)]
mod tests {
    use super::conditions::{NEAR, OVERCOMMITTED, REMOTE, thresholds, us};
    use super::*;

    /// Returns the time until the wait sleeps, if a poll takes 1 us and it loses its processor for
    /// `loss` after `at`.
    fn time_to_sleep(
        around: HostConditions,
        awaits_reply: bool,
        at: Duration,
        loss: Duration,
    ) -> Duration {
        let start = Instant::now();
        let (mut wait, mut now, mut lost) = (Wait::begin(start), start, false);
        loop {
            now += us(1);
            if !lost && now - start > at {
                (now, lost) = (now + loss, true);
            }
            match wait.next(now, &thresholds(), around, || awaits_reply) {
                Step::Sleep => return now - start,
                Step::Yield => wait.yielded(now),
                Step::Poll => {}
            }
        }
    }

    const NO_LOSS: Duration = Duration::ZERO;

    #[test]
    fn a_wait_sleeps_at_its_limit() {
        let limit = |around, awaits_reply| time_to_sleep(around, awaits_reply, NO_LOSS, NO_LOSS);
        assert_eq!(limit(NEAR, false), us(20));
        assert_eq!(limit(NEAR, true), TRANSFER_SPIN);
        assert_eq!(limit(REMOTE, false), us(500));
        assert_eq!(limit(REMOTE, true), REMOTE_TRANSFER_SPIN);
        assert_eq!(limit(OVERCOMMITTED, false), us(20));
        assert_eq!(limit(OVERCOMMITTED, true), us(20));
    }

    #[test]
    fn a_lost_processor_is_no_polling_and_ends_the_patience_with_remote_peers() {
        for loss in [1, 5, 90, 60_000].map(Duration::from_millis) {
            let polled = |around, reply, at| time_to_sleep(around, reply, us(at), loss) - loss;
            // The loss itself is not counted: the rest of the limit is polled. The poll that was
            // interrupted is not counted either.
            assert_eq!(polled(NEAR, false, 5), us(21), "{loss:?}");
            assert_eq!(polled(NEAR, true, 5), TRANSFER_SPIN + us(1), "{loss:?}");
            assert_eq!(polled(REMOTE, false, 5), us(21), "{loss:?}");
            assert_eq!(polled(REMOTE, true, 5), TRANSFER_SPIN + us(1), "{loss:?}");
            // What it polled before counts.
            assert_eq!(polled(REMOTE, true, 7_000), us(7_001), "{loss:?}");
        }
        let slow_poll = thresholds().lost_cpu - us(2);
        let all = time_to_sleep(REMOTE, true, us(5), slow_poll);
        assert_eq!(all, REMOTE_TRANSFER_SPIN, "a slow poll is no loss");
    }

    #[test]
    fn remote_waiters_yield_early_and_near_ones_never_before_they_could_sleep() {
        let step = |around, polled| {
            let start = Instant::now();
            let mut wait = Wait::begin(start);
            wait.next(start + us(polled), &thresholds(), around, || true)
        };
        let contended = HostConditions {
            contended: true,
            ..REMOTE
        };
        assert_eq!(step(REMOTE, 1), Step::Poll);
        assert_eq!(step(REMOTE, 2), Step::Yield);
        assert_eq!(step(contended, 1), Step::Yield);
        assert_eq!(step(NEAR, 19), Step::Poll);
        assert_eq!(step(NEAR, 20), Step::Yield);
    }

    #[test]
    fn polls_pause_after_the_latency_of_a_short_message() {
        let start = Instant::now();
        let mut wait = Wait::begin(start);
        assert!(!wait.pauses(&thresholds()));
        wait.next(start + us(2), &thresholds(), NEAR, || true);
        assert!(wait.pauses(&thresholds()));
    }
}
