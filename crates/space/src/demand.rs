//! Computes how many slots one VM needs to meet its objective, from the queueing model and its learnt residual.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::queueing::{
    Flow, blocked_fraction, mean_time_to_slot, quantile, smallest, stable_slots,
};
use crate::residual::Residual;

/// If no number of slots meets the objective, the demand is the number from which on at most this fraction of the jobs
/// is blocked: more slots would hardly help.
const KNEE_BLOCKED_FRACTION: f64 = 0.01;

/// The service-level objective of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// Seconds from a job's arrival until it has a slot.
    pub seconds: f64,
    /// The fraction of the jobs for which `seconds` holds (a quantile). Without it, `seconds` is for the mean.
    pub quantile: Option<f64>,
    /// The largest fraction of the jobs that may find no free slot.
    pub max_blocked: f64,
    /// The weight of its jobs in the division of slots that remain after all floors.
    pub weight: f64,
    /// The class. Lower classes are served first.
    pub class: u8,
}

impl Objective {
    /// Returns this objective with its times, and its blocked fraction up to 0.5, multiplied by `factor`.
    #[must_use]
    pub fn stretched(&self, factor: f64) -> Self {
        Self {
            seconds: self.seconds * factor,
            max_blocked: (self.max_blocked * factor).min(0.5),
            ..*self
        }
    }

    /// Returns the mean of an exponentially distributed time that meets this objective exactly.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.seconds
            / self
                .quantile
                .map_or(1.0, |fraction| quantile(1.0, fraction))
    }
}

/// The station that keeps a VM from its objective when slots do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// The first station: the guest computes too slowly.
    Compute,
    /// The second station: the network transmits too slowly.
    Link,
}

/// The slots that an objective requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Number of slots.
    pub slots: u32,
    /// Set if no number of slots meets the objective.
    pub bottleneck: Option<Bottleneck>,
}

/// The queueing model of one VM, corrected by its residual.
#[derive(Clone, Debug)]
pub struct Model<'a> {
    /// Rates and variations of the VM's jobs.
    pub flow: Flow,
    residual: &'a Residual,
    /// Slots that the VM has now; the residual is relative to them.
    slots: u32,
    /// Predictions already computed, by number of slots. The search for a stretch asks for the same numbers many times.
    predictions: RefCell<BTreeMap<u32, Prediction>>,
}

/// The uncorrected prediction for a number of slots.
#[derive(Clone, Copy, Debug)]
struct Prediction {
    time_to_slot: f64,
    blocked_fraction: f64,
}

impl<'a> Model<'a> {
    /// Creates the model of a VM that has `slots` slots now.
    #[must_use]
    pub fn new(flow: Flow, residual: &'a Residual, slots: u32) -> Self {
        Self {
            flow,
            residual,
            slots,
            predictions: RefCell::default(),
        }
    }

    fn prediction(&self, slots: u32) -> Prediction {
        let compute = || Prediction {
            time_to_slot: mean_time_to_slot(&self.flow, slots),
            blocked_fraction: blocked_fraction(&self.flow, slots),
        };
        *self
            .predictions
            .borrow_mut()
            .entry(slots)
            .or_insert_with(compute)
    }

    /// Returns the corrected mean time, in seconds, from a job's arrival to its slot, if the VM has `slots` slots.
    #[must_use]
    pub fn predicted(&self, slots: u32) -> f64 {
        let change = f64::from(slots.max(1)).ln() - f64::from(self.slots.max(1)).ln();
        self.prediction(slots).time_to_slot * self.residual.predict(change).exp()
    }

    /// Returns the fewest slots, at most `max_slots`, that meet an objective.
    #[must_use]
    pub fn demand(&self, objective: &Objective, max_slots: u32) -> Demand {
        let meets = |slots| {
            self.predicted(slots) <= objective.mean()
                && self.prediction(slots).blocked_fraction <= objective.max_blocked
        };
        let stable = stable_slots(&self.flow, max_slots);
        if let (Some(stable), Some(meeting)) = (stable, smallest(max_slots, meets)) {
            return Demand {
                slots: stable.max(meeting),
                bottleneck: None,
            };
        }
        let knee = smallest(max_slots, |slots| {
            self.prediction(slots).blocked_fraction <= KNEE_BLOCKED_FRACTION
        });
        Demand {
            slots: knee.unwrap_or(max_slots).max(stable.unwrap_or(1)),
            bottleneck: Some(match self.flow.compute_rate < self.flow.transmit_rate {
                true => Bottleneck::Compute,
                false => Bottleneck::Link,
            }),
        }
    }

    /// Returns the gain of one slot in addition to `slots`: the weighted number of jobs per second that would find a slot
    /// and did not before.
    #[must_use]
    pub fn marginal_gain(&self, objective: &Objective, slots: u32) -> f64 {
        let load = self.flow.arrival_rate / self.flow.transmit_rate;
        let blocked = |slots| crate::queueing::blocking_probability(load, slots);
        objective.weight
            * self.flow.arrival_rate
            * (blocked(slots) - blocked(slots.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn objective(seconds: f64) -> Objective {
        Objective {
            seconds,
            quantile: None,
            max_blocked: 0.2,
            weight: 1.0,
            class: 0,
        }
    }

    #[test]
    fn the_bottleneck_is_named_when_slots_do_not_help() {
        let residual = Residual::default();
        let model =
            |compute, transmit| Model::new(Flow::exponential(1.0, compute, transmit), &residual, 8);
        let demand_of = |compute, transmit| model(compute, transmit).demand(&objective(0.5), 256);
        assert_eq!(demand_of(1.2, 9.0).bottleneck, Some(Bottleneck::Compute));
        assert_eq!(demand_of(9.0, 0.9).bottleneck, Some(Bottleneck::Link));
        assert_eq!(demand_of(9.0, 9.0).bottleneck, None);
    }

    proptest! {
        #[test]
        fn more_work_never_needs_fewer_slots(
            arrivals in 0.1_f64..0.8, more in 1.0_f64..1.2, compute in 1.2_f64..4.0,
            seconds in 1.0_f64..20.0,
        ) {
            let residual = Residual::default();
            let demand_of = |arrivals, compute| {
                let flow = Flow::exponential(arrivals, compute, 1.0);
                Model::new(flow, &residual, 8).demand(&objective(seconds), 256)
            };
            let (one, busier) = (demand_of(arrivals, compute), demand_of(arrivals * more, compute));
            let slower = demand_of(arrivals, compute / more);
            for other in [busier, slower] {
                if one.bottleneck.is_none() && other.bottleneck.is_none() {
                    prop_assert!(other.slots >= one.slots);
                }
            }
        }

        #[test]
        fn marginal_gains_fall_with_slots(
            arrivals in 0.1_f64..3.0, transmit in 0.2_f64..3.0, slots in 0_u32..200,
        ) {
            let residual = Residual::default();
            let flow = Flow::exponential(arrivals, 1.0, transmit);
            let model = Model::new(flow, &residual, 8);
            let gain = |slots| model.marginal_gain(&objective(1.0), slots);
            prop_assert!(gain(slots + 1) <= gain(slots) + 1e-12);
        }
    }
}
