//! How many slots one VM needs for its objective.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::queueing::{
    Flow, blocked_fraction, mean_time_to_slot, quantile, smallest, stable_slots,
};
use crate::residual::Residual;

/// The share of jobs that find no slot up to which more slots are worth having, where no number of
/// them is enough.
const KNEE_BLOCKED_FRACTION: f64 = 0.01;

/// What a VM is promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// Seconds from a job's arrival until it has a slot.
    pub seconds: f64,
    /// The share of jobs that this holds for; without one it is for their mean.
    pub share: Option<f64>,
    /// The largest share of jobs that find no slot.
    pub blocked: f64,
    /// How much its jobs count against others' when slots are left.
    pub weight: f64,
    /// Its class: lower ones are served first.
    pub class: u8,
}

impl Objective {
    /// This much later for everybody.
    #[must_use]
    pub fn stretched(&self, factor: f64) -> Self {
        Self {
            seconds: self.seconds * factor,
            blocked: (self.blocked * factor).min(0.5),
            ..*self
        }
    }

    /// The mean that an exponential time must have.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.seconds / self.share.map_or(1.0, |share| quantile(1.0, share))
    }
}

/// What keeps a VM from its objective when memory does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// The guest computes too slowly.
    Compute,
    /// The network is too slow.
    Link,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Slots.
    pub slots: u32,
    /// Set when the objective is out of reach with any number of them.
    pub bottleneck: Option<Bottleneck>,
}

/// A VM as the model sees it.
#[derive(Clone, Debug)]
pub struct Model<'a> {
    /// Its jobs.
    pub flow: Flow,
    residual: &'a Residual,
    /// Slots it has.
    slots: u32,
    /// By slots, what was computed already: objectives are stretched many times.
    predictions: RefCell<BTreeMap<u32, Prediction>>,
}

/// What the model expects of a number of slots.
#[derive(Clone, Copy, Debug)]
struct Prediction {
    time_to_slot: f64,
    blocked_fraction: f64,
}

impl<'a> Model<'a> {
    /// Of a VM with these jobs, which has so many slots, and what the formulas were off by.
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

    /// The mean time to a slot with so many of them, corrected.
    #[must_use]
    pub fn predicted(&self, slots: u32) -> f64 {
        let change = f64::from(slots.max(1)).ln() - f64::from(self.slots.max(1)).ln();
        self.prediction(slots).time_to_slot * self.residual.predict(change).exp()
    }

    /// The fewest slots, at most `max_slots`, that meet an objective.
    #[must_use]
    pub fn demand(&self, objective: &Objective, max_slots: u32) -> Demand {
        let meets = |slots| {
            self.predicted(slots) <= objective.mean()
                && self.prediction(slots).blocked_fraction <= objective.blocked
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

    /// What one more slot would bring: jobs a second, weighted, that find one and would not have.
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
            share: None,
            blocked: 0.2,
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
