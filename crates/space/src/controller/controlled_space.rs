//! The controller's state of one space: its estimates, its model and its resize policy.

use super::decision::{Decision, Id};
use super::limits::{
    AT_RISK_FRACTION, BAD_ERROR, BAD_ROUNDS, GOOD_ROUNDS, MIN_IMPROVEMENT, NEARLY_FULL, SLOW_PERIOD,
};
use crate::allocation::Claim;
use crate::demand::{Model, Objective};
use crate::estimator::{Change, Estimator, Window};
use crate::queueing::mean_time_to_slot;
use crate::residual::Residual;
use crate::resize_policy::{Reason, ResizePolicy, ResizeRequest};

/// Consecutive windows without a returned slot after which a space counts as one that only retains slots.
const RETAINING_WINDOWS: u32 = 5;

/// One space under the controller.
#[derive(Debug)]
pub(super) struct ControlledSpace {
    pub(super) objective: Objective,
    pub(super) slots: u32,
    pub(super) floor: u32,
    /// Fewest slots of the space.
    min_slots: u32,
    /// Slots that stay in use ([`Window::retained`]), up to an equal share.
    retained: u32,
    /// Windows since a slot was returned.
    windows_without_return: u32,
    estimator: Estimator,
    residual: Residual,
    resize_policy: ResizePolicy,
    /// Measurements since the last round of the slow loop.
    since_round: Window,
    /// The last window.
    pub(super) latest: Window,
    /// Slots in the last round of the slow loop.
    previous_slots: u32,
    /// Rounds since the space was added or its arrival rate changed.
    rounds: u32,
    bad_rounds: u32,
    good_rounds: u32,
    degraded: bool,
}

impl ControlledSpace {
    /// Creates the state of a space without measurements.
    pub(super) fn new(objective: Objective, slots: u32, min_slots: u32) -> Self {
        Self {
            objective,
            slots,
            floor: min_slots,
            min_slots,
            retained: 0,
            // A space counts as retaining until it returns a slot.
            windows_without_return: RETAINING_WINDOWS,
            estimator: Estimator::default(),
            residual: Residual::default(),
            resize_policy: ResizePolicy::new(SLOW_PERIOD),
            since_round: Window::default(),
            latest: Window::default(),
            previous_slots: slots,
            rounds: 0,
            bad_rounds: 0,
            good_rounds: 0,
            degraded: false,
        }
    }

    /// Records a window. Held slots count only up to `equal`, so a VM that fills its space and stops does not grow.
    pub(super) fn record_window(&mut self, window: &Window, equal: u32) {
        self.since_round = self.since_round.merge(window);
        self.latest = *window;
        self.retained = window.retained.min(equal);
        self.windows_without_return = match window.released {
            0 => self.windows_without_return.saturating_add(1),
            _ => 0,
        };
    }

    /// Returns whether the space does not return its slots, so the fast loop could not reclaim what it grants.
    pub(super) fn is_retaining(&self) -> bool {
        self.windows_without_return >= RETAINING_WINDOWS || self.latest.retained > self.retained
    }

    /// Returns how many of `slots` jobs pass through: all but the retained ones, and at least one.
    fn circulating(&self, slots: u32) -> u32 {
        slots.saturating_sub(self.retained).max(1)
    }

    /// Updates the estimates and the residual from the measurements since the last round.
    pub(super) fn update_model(&mut self) {
        let window = std::mem::take(&mut self.since_round);
        let change = self.estimator.update(&window);
        if change == Change::Step {
            self.residual.reset_covariance();
            self.rounds = 0;
        }
        let flow = self.estimator.flow(SLOW_PERIOD);
        if let (Some(flow), true) = (flow, window.has_enough_completions()) {
            let (now, before) = (
                self.circulating(self.slots),
                self.circulating(self.previous_slots),
            );
            let step = f64::from(now).ln() - f64::from(before).ln();
            let modelled = mean_time_to_slot(&flow, now);
            let error = (window.completion.max(1e-6) / modelled).ln();
            // The residual learns only from sizes that the model chose.
            let learn = self.rounds > 0 && self.slots > self.min_slots;
            let innovation = self.residual.observe(error, step, learn);
            self.count_round(innovation.abs() > BAD_ERROR);
        }
        self.rounds = self.rounds.saturating_add(1);
        self.previous_slots = self.slots;
    }

    /// Counts a good or bad round and switches the degraded mode.
    fn count_round(&mut self, bad: bool) {
        (self.bad_rounds, self.good_rounds) = match bad {
            true => (self.bad_rounds + 1, 0),
            false => (0, self.good_rounds + 1),
        };
        match self.degraded {
            false if self.bad_rounds >= BAD_ROUNDS => self.degraded = true,
            true if self.good_rounds >= GOOD_ROUNDS => self.degraded = false,
            _ => {}
        }
    }

    fn model(&self) -> Option<Model<'_>> {
        Some(Model::new(
            self.estimator.flow(SLOW_PERIOD)?,
            &self.residual,
            self.circulating(self.slots),
        ))
    }

    pub(super) fn claim(&self, max_slots: u32) -> SpaceClaim<'_> {
        SpaceClaim {
            space: self,
            model: self.model(),
            max_slots,
        }
    }

    /// Returns the new size and the reason, given the allocation's `target`.
    pub(super) fn propose(&mut self, now: f64, target: u32, pressure: bool) -> (u32, Reason) {
        if self.degraded {
            return (self.slots, Reason::Degraded);
        }
        let Some(model) = self.model() else {
            return (self.slots, Reason::HoldUnknown);
        };
        let demand = model.demand(
            &self.objective,
            self.circulating(target.max(self.min_slots)),
        );
        let predicted = |slots| model.predicted(self.circulating(slots));
        let (current, proposed) = (predicted(self.slots), predicted(target));
        let blocked = self.latest.blocked > 0.0;
        if target > self.slots && !blocked && current < proposed * (1.0 + MIN_IMPROVEMENT) {
            return (self.slots, Reason::HoldNoLeverage);
        }
        if pressure && target > self.slots {
            return (self.slots, Reason::HoldPressure);
        }
        let request = ResizeRequest {
            slots: self.slots,
            target,
            in_use: self
                .estimator
                .high_water()
                .max(self.latest.in_use)
                .max(self.min_slots),
            blocked,
        };
        match self.resize_policy.decide(now, request) {
            (slots, _) if slots == self.slots && demand.bottleneck.is_some() => {
                (slots, Reason::NotAMemoryProblem)
            }
            decided => decided,
        }
    }

    /// Returns whether writes wait for slots so long that the objective is at risk.
    pub(super) fn is_at_risk(&self) -> bool {
        let Window {
            seconds,
            blocked,
            completion,
            ..
        } = self.latest;
        blocked > AT_RISK_FRACTION * seconds
            || blocked > 0.0 && completion > AT_RISK_FRACTION * self.objective.seconds
    }

    /// Returns whether the space is full, or will be before the next windows arrive.
    fn is_nearly_full(&self) -> bool {
        let Window {
            seconds,
            arrived,
            released,
            in_use,
            blocked,
            ..
        } = self.latest;
        let inflow = f64::from(u32::try_from(arrived.saturating_sub(released)).unwrap_or(u32::MAX));
        let soon = f64::from(in_use) + 2.0 * inflow;
        seconds > 0.0
            && (blocked > 0.0
                || f64::from(in_use) >= NEARLY_FULL * f64::from(self.slots)
                || soon > f64::from(self.slots) && in_use * 2 > self.slots)
    }

    /// Returns the slots that can be reclaimed without an immediate effect. A space that uses half of its floor keeps the
    /// floor.
    pub(super) fn slack(&self) -> u32 {
        if self.is_nearly_full() {
            return 0;
        }
        let high = self.latest.high_water.max(self.latest.in_use);
        let used = high.saturating_add(high / 4).saturating_add(1);
        let min_size = match high >= self.floor / 2 {
            true => self.floor.max(used),
            false => used,
        };
        self.slots.saturating_sub(min_size.max(self.min_slots))
    }

    pub(super) fn decision(&self, space: Id, before: u32, reason: Reason) -> Decision {
        let model = self.model();
        let demand = model.as_ref().map(|m| {
            m.demand(
                &self.objective,
                self.circulating(self.slots.max(self.min_slots)),
            )
        });
        let circulating = self.circulating(self.slots);
        let predicted = model.as_ref().map(|model| model.predicted(circulating));
        let bottleneck = demand.and_then(|demand| demand.bottleneck);
        Decision {
            space,
            slots: self.slots,
            before,
            reason,
            bottleneck,
            predicted: predicted.filter(|time| time.is_finite()),
        }
    }
}

/// The claim of one space on the budget.
pub(super) struct SpaceClaim<'a> {
    space: &'a ControlledSpace,
    model: Option<Model<'a>>,
    max_slots: u32,
}

impl Claim for SpaceClaim<'_> {
    fn min_slots(&self) -> u32 {
        self.space.latest.in_use.max(self.space.min_slots)
    }

    fn class(&self) -> u8 {
        self.space.objective.class
    }

    fn required(&self, stretch: f64) -> u32 {
        let objective = self.space.objective.stretched(stretch);
        let model = self.model.as_ref();
        let max_slots = self.space.circulating(self.max_slots);
        let demand = model.map(|model| model.demand(&objective, max_slots));
        demand.map_or(self.space.slots, |demand| {
            demand.slots + self.space.retained
        })
    }

    fn marginal_gain(&self, slots: u32) -> f64 {
        let objective = &self.space.objective;
        let model = self.model.as_ref();
        model.map_or(0.0, |model| {
            model.marginal_gain(objective, self.space.circulating(slots))
        })
    }
}
