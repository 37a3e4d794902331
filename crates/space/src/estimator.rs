//! From what a window of time brought to what a VM's jobs do: rates, variations, high water.
//!
//! Rates are smoothed, so that one odd window does not move anything. A change that lasts is found
//! by a two-sided CUSUM over arrivals, and what was smoothed before is forgotten then: a step is
//! believed within a window or two, where smoothing alone would take five.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::queueing::Flow;

/// Weight of the newest window in a smoothed figure.
const SMOOTHING_GAIN: f64 = 0.35;

/// What a CUSUM ignores, and at which sum it rings, in standard deviations of a window's count.
const CUSUM_SLACK: f64 = 0.75;
const CUSUM_THRESHOLD: f64 = 5.0;

/// Windows whose high water is remembered.
const HIGH_WATER_WINDOWS: usize = 3;

/// Completions in a window below which its times say nothing.
pub const MIN_COMPLETIONS: u64 = 5;

/// What happened to a VM's space in one window of time. Sums of squares make variations exact
/// however windows are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Its length in seconds.
    pub seconds: f64,
    /// Jobs that arrived.
    pub arrived: u64,
    /// Sum of squared times between arrivals, and how many there were.
    pub gaps_squared: f64,
    /// Sum of the times between arrivals.
    pub gaps: f64,
    /// Jobs that the first station has done.
    pub computed: u64,
    /// Seconds it worked; not those in which it waited for a slot.
    pub computing: f64,
    /// Sum of its squared service times.
    pub computing_squared: f64,
    /// Seconds in which it waited for a slot.
    pub blocked: f64,
    /// Slots given back.
    pub released: u64,
    /// Seconds in which the second station had something to do.
    pub transmitting: f64,
    /// Mean time, in seconds, from arrival to slot of the jobs that got one.
    pub completion: f64,
    /// Most slots in use at any time.
    pub high_water: u32,
    /// Slots in use at the end.
    pub in_use: u32,
    /// Slots that have been in use all the time for some windows: what lies there, not what passes
    /// through. The second station is busy while more than these are in use.
    pub held: u32,
}

impl Window {
    /// Both, one after the other.
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
            held: next.held,
        }
    }

    /// Whether its times mean something.
    #[must_use]
    pub fn has_enough_completions(&self) -> bool {
        self.computed >= MIN_COMPLETIONS
    }
}

/// What is believed of a VM.
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

/// What a window changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing unusual.
    None,
    /// The arrivals are others than before.
    Step,
}

#[allow(clippy::cast_precision_loss, reason = "counts of a window")]
impl Estimator {
    /// Take a window in.
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

    /// Two-sided CUSUM over the count of arrivals, in standard deviations of a Poisson count.
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

    /// What the VM's jobs do, once both stations have been seen at work. Arrivals are taken half a
    /// standard deviation of a window of `seconds` higher than they are: too small a space costs
    /// more than too large a one.
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

    /// Most slots in use in the last windows.
    #[must_use]
    pub fn high_water(&self) -> u32 {
        self.high_water.iter().copied().max().unwrap_or(0)
    }
}

/// Squared coefficient of variation of so many values with these sums; none of too few.
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
            // Up and down by a standard deviation.
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
