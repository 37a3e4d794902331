//! How many slots one VM needs for its objective.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::queueing::{Flow, blocked, completion, fewest, quantile, stable_slots};
use crate::residual::Residual;

/// The share of jobs that find no slot up to which more slots are worth having, where no number of
/// them is enough.
const KNEE: f64 = 0.01;

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
    pub fn stretched(&self, by: f64) -> Self {
        Self {
            seconds: self.seconds * by,
            blocked: (self.blocked * by).min(0.5),
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
    known: RefCell<BTreeMap<u32, Expected>>,
}

/// What the model expects of a number of slots.
#[derive(Clone, Copy, Debug)]
struct Expected {
    completion: f64,
    blocked: f64,
}

impl<'a> Model<'a> {
    /// Of a VM with these jobs, which has so many slots, and what the formulas were off by.
    #[must_use]
    pub fn new(flow: Flow, residual: &'a Residual, slots: u32) -> Self {
        Self {
            flow,
            residual,
            slots,
            known: RefCell::default(),
        }
    }

    fn expected(&self, slots: u32) -> Expected {
        let compute = || Expected {
            completion: completion(&self.flow, slots),
            blocked: blocked(&self.flow, slots),
        };
        *self.known.borrow_mut().entry(slots).or_insert_with(compute)
    }

    /// The mean time to a slot with so many of them, corrected.
    #[must_use]
    pub fn predicted(&self, slots: u32) -> f64 {
        let change = f64::from(slots.max(1)).ln() - f64::from(self.slots.max(1)).ln();
        self.expected(slots).completion * self.residual.expected(change).exp()
    }

    /// The fewest slots, at most `most`, that meet an objective.
    #[must_use]
    pub fn demand(&self, objective: &Objective, most: u32) -> Demand {
        let meets = |slots| {
            self.predicted(slots) <= objective.mean()
                && self.expected(slots).blocked <= objective.blocked
        };
        let stable = stable_slots(&self.flow, most);
        if let (Some(stable), Some(enough)) = (stable, fewest(most, meets)) {
            return Demand {
                slots: stable.max(enough),
                bottleneck: None,
            };
        }
        let knee = fewest(most, |slots| self.expected(slots).blocked <= KNEE);
        Demand {
            slots: knee.unwrap_or(most).max(stable.unwrap_or(1)),
            bottleneck: Some(match self.flow.compute < self.flow.transmit {
                true => Bottleneck::Compute,
                false => Bottleneck::Link,
            }),
        }
    }

    /// What one more slot would bring: jobs a second, weighted, that find one and would not have.
    #[must_use]
    pub fn gain(&self, objective: &Objective, slots: u32) -> f64 {
        let load = self.flow.arrivals / self.flow.transmit;
        let full = |slots| crate::queueing::full(load, slots);
        objective.weight * self.flow.arrivals * (full(slots) - full(slots.saturating_add(1)))
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
    fn what_memory_cannot_do_is_named() {
        let residual = Residual::default();
        let model =
            |compute, transmit| Model::new(Flow::exponential(1.0, compute, transmit), &residual, 8);
        let asked = |compute, transmit| model(compute, transmit).demand(&objective(0.5), 256);
        assert_eq!(asked(1.2, 9.0).bottleneck, Some(Bottleneck::Compute));
        assert_eq!(asked(9.0, 0.9).bottleneck, Some(Bottleneck::Link));
        assert_eq!(asked(9.0, 9.0).bottleneck, None);
    }

    proptest! {
        #[test]
        fn more_work_never_needs_fewer_slots(
            arrivals in 0.1_f64..0.8, more in 1.0_f64..1.2, compute in 1.2_f64..4.0,
            seconds in 1.0_f64..20.0,
        ) {
            let residual = Residual::default();
            let asked = |arrivals, compute| {
                let flow = Flow::exponential(arrivals, compute, 1.0);
                Model::new(flow, &residual, 8).demand(&objective(seconds), 256)
            };
            let (one, busier) = (asked(arrivals, compute), asked(arrivals * more, compute));
            let slower = asked(arrivals, compute / more);
            for other in [busier, slower] {
                if one.bottleneck.is_none() && other.bottleneck.is_none() {
                    prop_assert!(other.slots >= one.slots);
                }
            }
        }

        #[test]
        fn gains_fall_with_slots(
            arrivals in 0.1_f64..3.0, transmit in 0.2_f64..3.0, slots in 0_u32..200,
        ) {
            let residual = Residual::default();
            let flow = Flow::exponential(arrivals, 1.0, transmit);
            let model = Model::new(flow, &residual, 8);
            let gain = |slots| model.gain(&objective(1.0), slots);
            prop_assert!(gain(slots + 1) <= gain(slots) + 1e-12);
        }
    }
}
