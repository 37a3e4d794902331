//! One space as the controller knows it: what it is believed to need, and what it may do about it.

use super::{
    AT_RISK, BAD_ERROR, BAD_ROUNDS, Decision, GOOD_ROUNDS, Id, MIN_IMPROVEMENT, NEARLY_FULL,
    SLOW_PERIOD,
};
use crate::allocation::Claim;
use crate::demand::{Model, Objective};
use crate::estimator::{Change, Estimator, Window};
use crate::queueing::mean_time_to_slot;
use crate::residual::Residual;
use crate::resize_policy::{Reason, ResizePolicy, ResizeRequest};

/// Windows without a slot that came back, after which a space counts as one that only keeps.
const RETAINING_WINDOWS: u32 = 5;

/// A space of the controller's.
#[derive(Debug)]
pub(super) struct ControlledSpace {
    pub(super) objective: Objective,
    pub(super) slots: u32,
    pub(super) floor: u32,
    /// Slots that it must have.
    min_slots: u32,
    /// Slots that lie full for long ([`Window::held`]), as far as they count: up to an equal share.
    held: u32,
    /// Windows since a slot came back.
    windows_without_return: u32,
    estimator: Estimator,
    residual: Residual,
    resize_policy: ResizePolicy,
    /// Since the slow loop's last round.
    since_round: Window,
    /// The last one.
    pub(super) latest: Window,
    /// Slots in the slow loop's last round.
    previous_slots: u32,
    /// Rounds since it came, or since its jobs changed.
    rounds: u32,
    bad_rounds: u32,
    good_rounds: u32,
    degraded: bool,
}

impl ControlledSpace {
    /// One that nothing is known of yet.
    pub(super) fn new(objective: Objective, slots: u32, min_slots: u32) -> Self {
        Self {
            objective,
            slots,
            floor: min_slots,
            min_slots,
            held: 0,
            // Until something comes back.
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

    /// A window is over. What lies full for long counts up to `equal` slots, so that who fills a
    /// space and stops does not grow for it.
    pub(super) fn record_window(&mut self, window: &Window, equal: u32) {
        self.since_round = self.since_round.merge(window);
        self.latest = *window;
        self.held = window.held.min(equal);
        self.windows_without_return = match window.released {
            0 => self.windows_without_return.saturating_add(1),
            _ => 0,
        };
    }

    /// Whether its slots do not come back, so that lending it some would be giving them away.
    pub(super) fn is_retaining(&self) -> bool {
        self.windows_without_return >= RETAINING_WINDOWS || self.latest.held > self.held
    }

    /// Of so many slots, those that jobs pass through.
    fn circulating(&self, slots: u32) -> u32 {
        slots.saturating_sub(self.held).max(1)
    }

    /// Take what happened since the last round in.
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
            // Nothing is learnt of a space whose size was not the model's choice.
            let learn = self.rounds > 0 && self.slots > self.min_slots;
            let innovation = self.residual.observe(error, step, learn);
            self.count_round(innovation.abs() > BAD_ERROR);
        }
        self.rounds = self.rounds.saturating_add(1);
        self.previous_slots = self.slots;
    }

    /// A round was a bad one, or not.
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

    /// What it may do about what it should have.
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

    /// Its jobs wait for slots, and so long that its objective is at risk.
    pub(super) fn is_at_risk(&self) -> bool {
        let Window {
            seconds,
            blocked,
            completion,
            ..
        } = self.latest;
        blocked > AT_RISK * seconds
            || blocked > 0.0 && completion > AT_RISK * self.objective.seconds
    }

    /// It is full, or will be before anybody looks again.
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

    /// Slots it would not miss at once. A floor is kept for who uses half of it.
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

/// A space's claim.
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
        demand.map_or(self.space.slots, |demand| demand.slots + self.space.held)
    }

    fn marginal_gain(&self, slots: u32) -> f64 {
        let objective = &self.space.objective;
        let model = self.model.as_ref();
        model.map_or(0.0, |model| {
            model.marginal_gain(objective, self.space.circulating(slots))
        })
    }
}
