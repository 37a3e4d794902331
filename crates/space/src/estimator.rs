//! Estimates the rates, variations and high-water mark of a VM's jobs from windows of measurements.
//!
//! Rates are smoothed exponentially, so a single unusual window changes little. A two-sided CUSUM over the count of
//! arrivals detects a lasting change. The estimator then discards the smoothed values, so it follows a step within one or
//! two windows; smoothing alone would take five.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::queueing::Flow;

/// Weight of the newest window in a smoothed value.
const SMOOTHING_GAIN: f64 = 0.35;

/// The drift that the CUSUM subtracts per window, and the sum at which it reports a step. Both are in standard deviations
/// of a window's count.
const CUSUM_SLACK: f64 = 0.75;
const CUSUM_THRESHOLD: f64 = 5.0;

/// Windows over which the high-water mark is taken.
const HIGH_WATER_WINDOWS: usize = 3;

/// Below this number of completions in a window, its times are not significant.
pub const MIN_COMPLETIONS: u64 = 5;

/// Measurements of a VM's space in one window of time. It has sums and sums of squares, so the variation of merged
/// windows is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Length of the window, in seconds.
    pub seconds: f64,
    /// Number of jobs that arrived.
    pub arrived: u64,
    /// Sum of the squared times between arrivals, in s².
    pub gaps_squared: f64,
    /// Sum of the times between arrivals, in seconds.
    pub gaps: f64,
    /// Jobs that the first station (the guest) completed.
    pub computed: u64,
    /// Seconds in which the first station was busy, without those in which it waited for a slot.
    pub computing: f64,
    /// Sum of the squared service times of the first station, in s².
    pub computing_squared: f64,
    /// Seconds in which the first station waited for a slot.
    pub blocked: f64,
    /// Number of slots that became free.
    pub released: u64,
    /// Seconds in which the second station (transmission) was busy.
    pub transmitting: f64,
    /// Mean time, in seconds, from a job's arrival until it got its slot.
    pub completion: f64,
    /// Largest number of slots in use at any time of the window.
    pub high_water: u32,
    /// Slots in use at the end of the window.
    pub in_use: u32,
    /// Slots that stayed in use throughout the last windows. They store files that the guest keeps, so they are not part of
    /// the flow of jobs. The second station is busy while more than these are in use.
    #[serde(rename = "held")]
    pub retained: u32,
}

impl Window {
    /// Returns the window that consists of `self` followed by `next`.
    #[must_use]
    pub fn merge(&self, next: &Self) -> Self {
        let jobs = self.computed + next.computed;
        #[allow(clippy::cast_precision_loss, reason = "counts of a window")]
        let mean = |a: f64, b: f64| match jobs {
            0 => 0.0,
            _ => (a * self.computed as f64 + b * next.computed as f64) / jobs as f64,
        };
        Self {
            seconds: self.seconds + next.seconds,
            arrived: self.arrived + next.arrived,
            gaps_squared: self.gaps_squared + next.gaps_squared,
            gaps: self.gaps + next.gaps,
            computed: jobs,
            computing: self.computing + next.computing,
            computing_squared: self.computing_squared + next.computing_squared,
            blocked: self.blocked + next.blocked,
            released: self.released + next.released,
            transmitting: self.transmitting + next.transmitting,
            completion: mean(self.completion, next.completion),
            high_water: self.high_water.max(next.high_water),
            in_use: next.in_use,
            retained: next.retained,
        }
    }

    /// Returns whether enough jobs completed for the window's times to be significant.
    #[must_use]
    pub fn has_enough_completions(&self) -> bool {
        self.computed >= MIN_COMPLETIONS
    }
}

/// Smoothed estimates of a VM's jobs.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    arrival_rate: Option<f64>,
    compute_rate: Option<f64>,
    transmit_rate: Option<f64>,
    arrival_scv: Option<f64>,
    compute_scv: Option<f64>,
    cusum_above: f64,
    cusum_below: f64,
    high_water: VecDeque<u32>,
}

/// Whether a window shows a lasting change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The window fits the estimates.
    None,
    /// The arrival rate changed; the estimates start anew from this window.
    Step,
}

#[allow(clippy::cast_precision_loss, reason = "counts of a window")]
impl Estimator {
    /// Adds a window to the estimates.
    pub fn update(&mut self, window: &Window) -> Change {
        if window.seconds <= 0.0 {
            return Change::None;
        }
        let change = self.detect_step(window);
        if change == Change::Step {
            *self = Self {
                high_water: std::mem::take(&mut self.high_water),
                ..Self::default()
            };
        }
        smooth(
            &mut self.arrival_rate,
            Some(window.arrived as f64 / window.seconds),
        );
        let rate = |count: u64, busy: f64| (count > 0 && busy > 0.0).then(|| count as f64 / busy);
        smooth(
            &mut self.compute_rate,
            rate(window.computed, window.computing),
        );
        smooth(
            &mut self.transmit_rate,
            rate(window.released, window.transmitting),
        );
        let gaps = window.arrived;
        smooth(
            &mut self.arrival_scv,
            scv(gaps, window.gaps, window.gaps_squared),
        );
        let compute_scv = scv(window.computed, window.computing, window.computing_squared);
        smooth(&mut self.compute_scv, compute_scv);
        if self.high_water.len() == HIGH_WATER_WINDOWS {
            self.high_water.pop_front();
        }
        self.high_water.push_back(window.high_water);
        change
    }

    /// Adds a window's count of arrivals to the two-sided CUSUM, in standard deviations of a Poisson count.
    fn detect_step(&mut self, window: &Window) -> Change {
        let Some(arrival_rate) = self.arrival_rate else {
            return Change::None;
        };
        let expected = (arrival_rate * window.seconds).max(1.0);
        let deviation = (window.arrived as f64 - expected) / expected.sqrt();
        self.cusum_above = (self.cusum_above + deviation - CUSUM_SLACK).max(0.0);
        self.cusum_below = (self.cusum_below - deviation - CUSUM_SLACK).max(0.0);
        match self.cusum_above.max(self.cusum_below) > CUSUM_THRESHOLD {
            true => Change::Step,
            false => Change::None,
        }
    }

    /// Returns the rates and variations of the VM's jobs, once both stations were busy. The arrival rate is raised by half a
    /// standard deviation of the count in a window of `seconds`, because a space that is too small costs more than one
    /// that is too large.
    #[must_use]
    pub fn flow(&self, seconds: f64) -> Option<Flow> {
        let arrival_rate = self.arrival_rate?;
        Some(Flow {
            arrival_rate: arrival_rate
                + 0.5 * (arrival_rate / seconds.max(f64::MIN_POSITIVE)).sqrt(),
            compute_rate: self.compute_rate?,
            transmit_rate: self.transmit_rate?,
            arrival_scv: self.arrival_scv.unwrap_or(1.0),
            compute_scv: self.compute_scv.unwrap_or(1.0),
        })
    }

    /// Returns the largest number of slots in use in the last windows.
    #[must_use]
    pub fn high_water(&self) -> u32 {
        self.high_water.iter().copied().max().unwrap_or(0)
    }
}

/// Returns the squared coefficient of variation of `count` values with this sum and sum of squares; `None` if there are
/// too few values.
#[allow(clippy::cast_precision_loss, reason = "counts of a window")]
fn scv(count: u64, sum: f64, squares: f64) -> Option<f64> {
    if count < MIN_COMPLETIONS || sum <= 0.0 {
        return None;
    }
    let mean = sum / count as f64;
    let variance = (squares / count as f64 - mean * mean).max(0.0);
    Some((variance / (mean * mean)).clamp(0.05, 20.0))
}

fn smooth(value: &mut Option<f64>, new: Option<f64>) {
    if let Some(new) = new.filter(|new| new.is_finite()) {
        *value = Some(value.map_or(new, |old| old + SMOOTHING_GAIN * (new - old)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(arrived: u64) -> Window {
        Window {
            seconds: 5.0,
            arrived,
            computed: arrived,
            #[allow(clippy::cast_precision_loss, reason = "small")]
            computing: arrived as f64 * 0.1,
            released: arrived,
            #[allow(clippy::cast_precision_loss, reason = "small")]
            transmitting: arrived as f64 * 0.2,
            high_water: u32::try_from(arrived).unwrap(),
            ..Window::default()
        }
    }

    #[test]
    fn service_rates_count_busy_time_only() {
        let mut estimator = Estimator::default();
        assert_eq!(estimator.flow(5.0), None);
        estimator.update(&window(20));
        let flow = estimator.flow(5.0).unwrap();
        assert!((flow.compute_rate - 10.0).abs() < 1e-9 && (flow.transmit_rate - 5.0).abs() < 1e-9);
        assert!((flow.arrival_rate - (4.0 + 0.5 * 0.8_f64.sqrt())).abs() < 1e-9);
    }

    #[test]
    fn a_step_is_detected_within_two_windows_and_noise_is_not() {
        let mut estimator = Estimator::default();
        for round in 0..100 {
            // Up and down by half a standard deviation.
            let arrived = if round % 2 == 0 { 95 } else { 105 };
            assert_eq!(estimator.update(&window(arrived)), Change::None);
        }
        let steps = [300, 300].map(|arrived| estimator.update(&window(arrived)));
        assert!(steps.contains(&Change::Step));
        let flow = estimator.flow(1e12).unwrap();
        assert!(
            (flow.arrival_rate - 60.0).abs() < 1.0,
            "{}",
            flow.arrival_rate
        );
    }

    #[test]
    fn high_water_covers_the_last_three_windows() {
        let mut estimator = Estimator::default();
        for high in [9, 3, 4] {
            estimator.update(&window(high));
        }
        assert_eq!(estimator.high_water(), 9);
        estimator.update(&window(2));
        assert_eq!(estimator.high_water(), 4);
    }

    proptest! {
        #[test]
        fn empty_and_inconsistent_windows_leave_finite_estimates(
            windows in prop::collection::vec((0_u64..50, 0.0_f64..2.0, 0.0_f64..2.0), 1..40),
        ) {
            let mut estimator = Estimator::default();
            for (count, computing, transmitting) in windows {
                let window = Window { computing, transmitting, ..window(count) };
                estimator.update(&window);
                if let Some(flow) = estimator.flow(5.0) {
                    let all = [flow.arrival_rate, flow.compute_rate, flow.transmit_rate, flow.arrival_scv];
                    prop_assert!(all.iter().all(|value| value.is_finite() && *value >= 0.0));
                    prop_assert!(flow.compute_rate > 0.0 && flow.transmit_rate > 0.0);
                }
            }
        }
    }
}
