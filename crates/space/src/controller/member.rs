//! One space as the controller knows it: what it is believed to need, and what it may do about it.

use super::decision::{Decision, Id};
use super::limits::{AT_RISK, BAD_ROUNDS, FILLING, GOOD_ROUNDS, LEVERAGE, SLOW, WRONG};
use crate::allocation::Claim;
use crate::demand::{Model, Objective};
use crate::estimator::{Change, Estimator, Window};
use crate::queueing::completion;
use crate::residual::Residual;
use crate::resize_policy::{Reason, ResizePolicy, Wish};

/// Windows without a slot that came back, after which a space counts as one that only keeps.
const STILL: u32 = 5;

/// A space of the controller's.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) objective: Objective,
    pub(super) slots: u32,
    pub(super) floor: u32,
    /// Slots that it must have.
    least: u32,
    /// Slots that lie full for long ([`Window::held`]), as far as they count: up to an equal share.
    held: u32,
    /// Windows since a slot came back.
    still: u32,
    estimator: Estimator,
    residual: Residual,
    pace: ResizePolicy,
    /// Since the slow loop's last round.
    window: Window,
    /// The last one.
    pub(super) latest: Window,
    /// Slots in the slow loop's last round.
    slots_before: u32,
    /// Rounds since it came, or since its jobs changed.
    rounds: u32,
    bad: u32,
    good: u32,
    degraded: bool,
}

impl Space {
    /// One that nothing is known of yet.
    pub(super) fn new(objective: Objective, slots: u32, least: u32) -> Self {
        Self {
            objective,
            slots,
            floor: least,
            least,
            held: 0,
            // Until something comes back.
            still: STILL,
            estimator: Estimator::default(),
            residual: Residual::default(),
            pace: ResizePolicy::new(SLOW),
            window: Window::default(),
            latest: Window::default(),
            slots_before: slots,
            rounds: 0,
            bad: 0,
            good: 0,
            degraded: false,
        }
    }

    /// A window is over. What lies full for long counts up to `equal` slots, so that who fills a
    /// space and stops does not grow for it.
    pub(super) fn tell(&mut self, window: &Window, equal: u32) {
        self.window = self.window.and(window);
        self.latest = *window;
        self.held = window.held.min(equal);
        self.still = match window.released {
            0 => self.still.saturating_add(1),
            _ => 0,
        };
    }

    /// Whether its slots do not come back, so that lending it some would be giving them away.
    pub(super) fn only_keeps(&self) -> bool {
        self.still >= STILL || self.latest.held > self.held
    }

    /// Of so many slots, those that jobs pass through.
    fn passing(&self, slots: u32) -> u32 {
        slots.saturating_sub(self.held).max(1)
    }

    /// Take what happened since the last round in.
    pub(super) fn learn(&mut self) {
        let window = std::mem::take(&mut self.window);
        let change = self.estimator.take(&window);
        if change == Change::Step {
            self.residual.open();
            self.rounds = 0;
        }
        let flow = self.estimator.flow(SLOW);
        if let (Some(flow), true) = (flow, window.tells()) {
            let (now, before) = (self.passing(self.slots), self.passing(self.slots_before));
            let step = f64::from(now).ln() - f64::from(before).ln();
            let modelled = completion(&flow, now);
            let error = (window.completion.max(1e-6) / modelled).ln();
            // Nothing is learnt of a space whose size was not the model's choice.
            let learn = self.rounds > 0 && self.slots > self.least;
            let off = self.residual.observe(error, step, learn);
            self.judge(off.abs() > WRONG);
        }
        self.rounds = self.rounds.saturating_add(1);
        self.slots_before = self.slots;
    }

    /// A round was a bad one, or not.
    fn judge(&mut self, bad: bool) {
        (self.bad, self.good) = match bad {
            true => (self.bad + 1, 0),
            false => (0, self.good + 1),
        };
        match self.degraded {
            false if self.bad >= BAD_ROUNDS => self.degraded = true,
            true if self.good >= GOOD_ROUNDS => self.degraded = false,
            _ => {}
        }
    }

    fn model(&self) -> Option<Model<'_>> {
        Some(Model::new(
            self.estimator.flow(SLOW)?,
            &self.residual,
            self.passing(self.slots),
        ))
    }

    pub(super) fn need(&self, most: u32) -> Need<'_> {
        Need {
            space: self,
            model: self.model(),
            most,
        }
    }

    /// What it may do about what it should have.
    pub(super) fn wish(&mut self, now: f64, wanted: u32, pressure: bool) -> (u32, Reason) {
        if self.degraded {
            return (self.slots, Reason::Degraded);
        }
        let Some(model) = self.model() else {
            return (self.slots, Reason::HoldUnknown);
        };
        let asked = model.demand(&self.objective, self.passing(wanted.max(self.least)));
        let predicted = |slots| model.predicted(self.passing(slots));
        let (now_takes, would_take) = (predicted(self.slots), predicted(wanted));
        let blocked = self.latest.blocked > 0.0;
        if wanted > self.slots && !blocked && now_takes < would_take * (1.0 + LEVERAGE) {
            return (self.slots, Reason::HoldNoLeverage);
        }
        if pressure && wanted > self.slots {
            return (self.slots, Reason::HoldPressure);
        }
        let wish = Wish {
            slots: self.slots,
            wanted,
            used: self
                .estimator
                .high_water()
                .max(self.latest.in_use)
                .max(self.least),
            blocked,
        };
        match self.pace.allow(now, wish) {
            (slots, _) if slots == self.slots && asked.bottleneck.is_some() => {
                (slots, Reason::NotAMemoryProblem)
            }
            allowed => allowed,
        }
    }

    /// Its jobs wait for slots, and so long that its objective is at risk.
    pub(super) fn suffers(&self) -> bool {
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
    fn is_filling(&self) -> bool {
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
                || f64::from(in_use) >= FILLING * f64::from(self.slots)
                || soon > f64::from(self.slots) && in_use * 2 > self.slots)
    }

    /// Slots it would not miss at once. A floor is kept for who uses half of it.
    pub(super) fn slack(&self) -> u32 {
        if self.is_filling() {
            return 0;
        }
        let high = self.latest.high_water.max(self.latest.in_use);
        let used = high.saturating_add(high / 4).saturating_add(1);
        let kept = match high >= self.floor / 2 {
            true => self.floor.max(used),
            false => used,
        };
        self.slots.saturating_sub(kept.max(self.least))
    }

    pub(super) fn decision(&self, space: Id, before: u32, reason: Reason) -> Decision {
        let model = self.model();
        let asked = model
            .as_ref()
            .map(|m| m.demand(&self.objective, self.passing(self.slots.max(self.least))));
        let passing = self.passing(self.slots);
        let predicted = model.as_ref().map(|model| model.predicted(passing));
        let bottleneck = asked.and_then(|demand| demand.bottleneck);
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
pub(super) struct Need<'a> {
    space: &'a Space,
    model: Option<Model<'a>>,
    most: u32,
}

impl Claim for Need<'_> {
    fn least(&self) -> u32 {
        self.space.latest.in_use.max(self.space.least)
    }

    fn class(&self) -> u8 {
        self.space.objective.class
    }

    fn need(&self, stretch: f64) -> u32 {
        let objective = self.space.objective.stretched(stretch);
        let model = self.model.as_ref();
        let most = self.space.passing(self.most);
        let asked = model.map(|model| model.demand(&objective, most));
        asked.map_or(self.space.slots, |demand| demand.slots + self.space.held)
    }

    fn gain(&self, slots: u32) -> f64 {
        let objective = &self.space.objective;
        let model = self.model.as_ref();
        model.map_or(0.0, |model| {
            model.gain(objective, self.space.passing(slots))
        })
    }
}
