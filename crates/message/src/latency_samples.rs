//! Latency samples: the durations of many short operations in a row.

use std::time::{Duration, Instant};

use window::ticks;

/// Measures operations of some ten nanoseconds. It reads the processor's time-stamp counter,
/// because reading the kernel's clock would be a large part of the measured time.
#[derive(Debug)]
pub struct LatencySamples {
    start: Instant,
    first: u64,
    last: u64,
    ticks: Vec<u64>,
}

impl LatencySamples {
    /// Starts, with memory for `count` samples.
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

    /// Ends a sample and begins the next one.
    #[inline(always)]
    pub fn record(&mut self) {
        let now = ticks::now();
        self.ticks.push(now.saturating_sub(self.last));
        self.last = now;
    }

    /// Returns the duration of each sample. The length of a counter step follows from the time
    /// since the start.
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
    fn samples_are_contiguous_and_agree_with_the_clock() {
        let all = Instant::now();
        let mut laps = LatencySamples::start(2);
        std::thread::sleep(Duration::from_millis(20));
        laps.record();
        laps.record();
        let [slept, rest] = *laps.times() else {
            panic!("two laps");
        };
        // Rounding of less than a nanosecond each.
        let rounding = Duration::from_nanos(2);
        assert!(slept + rounding >= Duration::from_millis(20));
        assert!(slept + rest <= all.elapsed() + rounding);
    }
}
