//! How much may pass in a second, and how much of it at once.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A) in its virtual scheduling form: one
//! number, the time at which what has passed so far would have passed at the rate. Something may
//! pass while that time is at most a burst ahead of the clock, and then moves it on by what it
//! costs. So in any time no more passes than the rate allows in it and in a burst, and what passed
//! last: large frames need no large burst, they are paid for afterwards. The number is atomic:
//! several threads may use a meter, and what they let pass at the same moment is paid for too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A rate at work. Times are in nanoseconds since whenever the user began to count.
#[derive(Debug)]
pub(super) struct Meter {
    /// Time that one unit takes, in nanoseconds times 2^32.
    unit: u64,
    /// How far ahead of the clock it may get.
    burst: u64,
    /// When all that has passed would have passed at the rate.
    paid: AtomicU64,
}

impl Meter {
    /// A meter for `rate` units a second.
    pub(super) fn new(rate: u64, burst: Duration) -> Self {
        Self {
            unit: (1_000_000_000_u64 << 32).div_ceil(rate.max(1)),
            burst: u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX),
            paid: AtomicU64::new(0),
        }
    }

    /// Time that so many units take, rounded up.
    fn time(&self, units: u64) -> u64 {
        let time = (u128::from(units) * u128::from(self.unit)).div_ceil(1 << 32);
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// How long it is until something may pass after so many units more; zero when it may now.
    pub(super) fn wait_after(&self, now: u64, units: u64) -> u64 {
        let paid = self.paid.load(Ordering::Relaxed).max(now);
        let ahead = paid.saturating_add(self.time(units)) - now;
        ahead.saturating_sub(self.burst)
    }

    /// So many units have passed.
    pub(super) fn charge(&self, now: u64, units: u64) {
        let time = self.time(units);
        let later = |paid: u64| Some(paid.max(now).saturating_add(time));
        // Never refused.
        let _ = self
            .paid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Let so many units pass, if anything may.
    pub(super) fn take(&self, now: u64, units: u64) -> bool {
        let time = self.time(units);
        let later = |paid: u64| {
            let paid = paid.max(now);
            (paid - now <= self.burst).then(|| paid.saturating_add(time))
        };
        self.paid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_may_pass_at_once_and_the_rest_at_the_rate() {
        let meter = Meter::new(1000, Duration::from_millis(10));
        // Ten units are 10 ms; one may begin as long as not more than that is owed.
        let at_once = (0..100).filter(|_| meter.take(0, 1)).count();
        assert_eq!(at_once, 11);
        assert_eq!(meter.wait_after(0, 0), SECOND / 1000);
        assert!(!meter.take(SECOND / 1000 - 1, 1));
        assert!(meter.take(SECOND / 1000, 1));
        // Idle time is not saved up past the burst.
        let later = (0..100).filter(|_| meter.take(60 * SECOND, 1)).count();
        assert_eq!(later, 11);
    }

    #[test]
    fn what_is_larger_than_the_burst_passes_and_is_paid_for() {
        let meter = Meter::new(1_000_000, Duration::from_millis(1));
        assert!(meter.take(0, 65_550));
        assert_eq!(meter.wait_after(0, 0), 65_550 * 1000 - 1_000_000);
        assert!(!meter.take(0, 1));
        assert!(meter.take(65_550 * 1000 - 1_000_000, 1));
    }

    #[test]
    fn the_extremes_neither_overflow_nor_stop() {
        let slow = Meter::new(1, Duration::from_millis(1));
        slow.charge(5, u64::MAX);
        slow.charge(5, u64::MAX);
        assert!(slow.wait_after(5, 0) > 0);
        let fast = Meter::new(u64::MAX, Duration::MAX);
        assert!(fast.take(u64::MAX, u64::MAX));
        assert_eq!(fast.wait_after(u64::MAX, 0), 0);
    }

    #[test]
    fn threads_together_do_not_get_more() {
        let meter = Meter::new(1000, Duration::from_millis(10));
        let passed = std::thread::scope(|scope| {
            let takes = || (0..1000).filter(|_| meter.take(7, 1)).count();
            let threads = [(); 4].map(|()| scope.spawn(takes));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(passed.iter().sum::<usize>(), 11);
    }

    proptest! {
        #[test]
        fn no_interval_sees_more_than_rate_times_time_and_a_burst_and_one(
            rate in prop::sample::select(vec![1_u64, 7, 1000, 1_250_000, 12_500_000_000]),
            burst_ms in 1_u64..200,
            steps in prop::collection::vec((0_u64..40_000_000, 1_u64..66_000), 1..200),
        ) {
            let meter = Meter::new(rate, Duration::from_millis(burst_ms));
            let mut now = 0;
            let mut passed: Vec<(u64, u64)> = Vec::new();
            for (pause, units) in steps {
                now += pause;
                let open = meter.wait_after(now, 0) == 0;
                prop_assert_eq!(meter.take(now, units), open);
                if open {
                    passed.push((now, units));
                }
            }
            let burst = u128::from(rate) * u128::from(burst_ms) / 1000;
            for (first, (begin, _)) in passed.iter().enumerate() {
                // All but the last of an interval began within the rate and the burst.
                let mut sum = 0_u128;
                for (at, units) in &passed[first..] {
                    let time = u128::from(at - begin);
                    let allowed = u128::from(rate) * time / u128::from(SECOND) + burst + 1;
                    prop_assert!(sum <= allowed, "{} > {}", sum, allowed);
                    sum += u128::from(*units);
                }
            }
        }
    }
}
