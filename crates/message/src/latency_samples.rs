//! The times of many short things, one after the other.

use std::time::{Duration, Instant};

use crate::raw::ticks;

/// A stopwatch for things of some ten nanoseconds: it reads the processor's counter, for a look at the
/// kernel's clock would be a large part of what is measured.
#[derive(Debug)]
pub struct LatencySamples {
    start: Instant,
    first: u64,
    last: u64,
    ticks: Vec<u64>,
}

impl LatencySamples {
    /// Start, with memory for so many laps.
    #[must_use]
    pub fn start(count: usize) -> Self {
        let ticks = Vec::with_capacity(count);
        let start = Instant::now();
        let first = ticks::now();
        Self {
            start,
            first,
            last: first,
            ticks,
        }
    }

    /// A lap ends here, and the next one begins.
    #[inline(always)]
    pub fn lap(&mut self) {
        let now = ticks::now();
        self.ticks.push(now.saturating_sub(self.last));
        self.last = now;
    }

    /// What each lap took. How long a step of the counter is shows from the start to now.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "ticks of some hours fit")]
    pub fn times(self) -> Vec<Duration> {
        let all = ticks::now().saturating_sub(self.first).max(1);
        let tick = self.start.elapsed().as_secs_f64() / all as f64;
        let time = |ticks| Duration::from_secs_f64(ticks as f64 * tick);
        self.ticks.into_iter().map(time).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_follow_each_other_and_take_what_the_clock_says() {
        let all = Instant::now();
        let mut laps = LatencySamples::start(2);
        std::thread::sleep(Duration::from_millis(20));
        laps.lap();
        laps.lap();
        let [slept, rest] = *laps.times() else {
            panic!("two laps");
        };
        // Of less than a nanosecond each.
        let rounding = Duration::from_nanos(2);
        assert!(slept + rounding >= Duration::from_millis(20));
        assert!(slept + rest <= all.elapsed() + rounding);
    }
}
