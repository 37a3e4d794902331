//! A token bucket: a rate with a burst.
//!
//! The algorithm is the generic cell rate algorithm (ITU-T I.371, annex A) in its virtual scheduling form.
//! Its state is one number: the time at which everything that has passed would have passed at the rate. A
//! frame may pass while this time is at most a burst ahead of the clock, and then advances the time by its
//! cost. So in any interval, no more passes than the rate allows in the interval and in a burst, plus the
//! last frame. Large frames need no large burst, because they are charged after they have passed. The
//! number is atomic: several threads may use a meter, and frames that pass at the same moment are all
//! charged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A rate with a burst. Times are in nanoseconds since a moment that the caller chooses.
#[derive(Debug)]
pub(super) struct Meter {
    /// Time that one unit takes at the rate, in nanoseconds times 2^32.
    unit: u64,
    /// How far `paid` may be ahead of the clock.
    burst: u64,
    /// When everything that has passed would have passed at the rate.
    paid: AtomicU64,
}

impl Meter {
    /// Creates a meter for `rate` units a second.
    pub(super) fn new(rate: u64, burst: Duration) -> Self {
        Self {
            unit: (1_000_000_000_u64 << 32).div_ceil(rate.max(1)),
            burst: u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX),
            paid: AtomicU64::new(0),
        }
    }

    /// Returns the time that `units` units take, rounded up.
    fn time(&self, units: u64) -> u64 {
        let time = (u128::from(units) * u128::from(self.unit)).div_ceil(1 << 32);
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Returns the time until something may pass after `units` more units; zero if it may pass now.
    pub(super) fn wait_after(&self, now: u64, units: u64) -> u64 {
        let paid = self.paid.load(Ordering::Relaxed).max(now);
        let ahead = paid.saturating_add(self.time(units)) - now;
        ahead.saturating_sub(self.burst)
    }

    /// Charges units that have passed.
    pub(super) fn charge(&self, now: u64, units: u64) {
        let time = self.time(units);
        let later = |paid: u64| Some(paid.max(now).saturating_add(time));
        // The closure always returns a value, so this cannot fail.
        let _ = self
            .paid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Lets `units` units pass and charges them, if anything may pass now.
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
        // Ten units take 10 ms; a unit may pass while no more than that is owed.
        let at_once = (0..100).filter(|_| meter.take(0, 1)).count();
        assert_eq!(at_once, 11);
        assert_eq!(meter.wait_after(0, 0), SECOND / 1000);
        assert!(!meter.take(SECOND / 1000 - 1, 1));
        assert!(meter.take(SECOND / 1000, 1));
        // Idle time accumulates up to the burst.
        let later = (0..100).filter(|_| meter.take(60 * SECOND, 1)).count();
        assert_eq!(later, 11);
    }

    #[test]
    fn a_frame_larger_than_the_burst_passes_and_is_charged() {
        let meter = Meter::new(1_000_000, Duration::from_millis(1));
        assert!(meter.take(0, 65_550));
        assert_eq!(meter.wait_after(0, 0), 65_550 * 1000 - 1_000_000);
        assert!(!meter.take(0, 1));
        assert!(meter.take(65_550 * 1000 - 1_000_000, 1));
    }

    #[test]
    fn extreme_rates_neither_overflow_nor_block() {
        let slow = Meter::new(1, Duration::from_millis(1));
        slow.charge(5, u64::MAX);
        slow.charge(5, u64::MAX);
        assert!(slow.wait_after(5, 0) > 0);
        let fast = Meter::new(u64::MAX, Duration::MAX);
        assert!(fast.take(u64::MAX, u64::MAX));
        assert_eq!(fast.wait_after(u64::MAX, 0), 0);
    }

    #[test]
    fn several_threads_together_do_not_exceed_the_rate() {
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
