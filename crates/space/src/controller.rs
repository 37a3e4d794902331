//! The loops: a slow one that knows what each VM will need, a fast one that helps who waits now.
//!
//! Every [`SLOW`] the estimates of all spaces are brought up to date, the model's demand for each is
//! computed, and the budget is shared ([`crate::allocation`]). In between, every window, a space
//! that is about to be full is lent what nobody uses: from what is free, then from the space with
//! the most slack. What is lent comes back when its owner fills up in turn, by the same rule. Slots
//! are given up before they are granted, so the sum is within the budget at every instant.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::allocation::{self, Claim, Shares};
use crate::demand::{Bottleneck, Model, Objective};
use crate::estimator::{Change, Estimator, Window};
use crate::pace::{Pace, Reason, Wish};
use crate::queueing::completion;
use crate::residual::Residual;

/// Seconds between two rounds of the slow loop.
pub const SLOW: f64 = 5.0;

/// Slots that every space has.
pub const LEAST: u32 = 2;

/// Share of the budget that floors may take: the rest is there for whoever needs it first.
const PROMISED: f64 = 0.7;

/// In-use share of a space from which it counts as about to be full.
const FILLING: f64 = 0.9;

/// Share of its time that a job must gain for more slots to be worth having.
const LEVERAGE: f64 = 0.02;

/// Share of a window spent without a slot, and of the objective's time, from which a space needs
/// help before the slow loop's next round.
const AT_RISK: f64 = 0.25;

/// Prediction error (of the logarithm) above which a round was a bad one; rounds of the kind that
/// change the state.
const WRONG: f64 = 0.5;
const BAD_ROUNDS: u32 = 6;
const GOOD_ROUNDS: u32 = 12;

/// A space's number.
pub type Id = u32;

/// One change, or none, and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The space.
    pub space: Id,
    /// Slots it has from now on.
    pub slots: u32,
    /// Slots it had.
    pub before: u32,
    /// Why.
    pub reason: Reason,
    /// What keeps it from its objective, if memory does not.
    pub bottleneck: Option<Bottleneck>,
    /// The mean time to a slot that is expected with these slots, if anything is.
    pub predicted: Option<f64>,
}

/// A space that cannot be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

#[derive(Debug)]
struct Space {
    objective: Objective,
    slots: u32,
    floor: u32,
    estimator: Estimator,
    residual: Residual,
    pace: Pace,
    /// Since the slow loop's last round.
    window: Window,
    /// The last one.
    latest: Window,
    /// Slots in the slow loop's last round.
    slots_before: u32,
    /// Rounds since it came, or since its jobs changed.
    rounds: u32,
    bad: u32,
    good: u32,
    degraded: bool,
}

/// All spaces of a host.
#[derive(Debug)]
pub struct Controller {
    budget: u32,
    spaces: BTreeMap<Id, Space>,
    next_slow: f64,
    /// The fast loop is at work.
    fast: bool,
    stretch: f64,
    price: f64,
}

impl Controller {
    /// For a host that gives this many slots.
    #[must_use]
    pub fn new(budget: u32) -> Self {
        Self {
            budget,
            spaces: BTreeMap::new(),
            next_slow: SLOW,
            fast: true,
            stretch: 1.0,
            price: 0.0,
        }
    }

    /// The same without its fast loop, to be compared with.
    #[must_use]
    pub fn without_help(budget: u32) -> Self {
        Self {
            fast: false,
            ..Self::new(budget)
        }
    }

    /// Slots that nobody has.
    #[must_use]
    pub fn free(&self) -> u32 {
        let taken: u32 = self.spaces.values().map(|space| space.slots).sum();
        self.budget.saturating_sub(taken)
    }

    /// Slots a space has.
    #[must_use]
    pub fn slots(&self, space: Id) -> Option<u32> {
        self.spaces.get(&space).map(|space| space.slots)
    }

    /// How many times as long objectives take for want of budget.
    #[must_use]
    pub fn stretch(&self) -> f64 {
        self.stretch
    }

    /// What one more slot of budget would bring: weighted jobs a second that would find one.
    #[must_use]
    pub fn price(&self) -> f64 {
        self.price
    }

    /// Take a space in. It gets an equal share of what is free, and what others can spare if that is
    /// too little.
    ///
    /// # Errors
    /// The others use what it would need.
    pub fn attach(&mut self, id: Id, objective: Objective) -> Result<Vec<Decision>, NoRoom> {
        let mut decisions = Vec::new();
        let count = u32::try_from(self.spaces.len()).unwrap_or(u32::MAX);
        let equal = (self.budget / count.saturating_add(1)).max(LEAST);
        while let Some(lent) = self.make_room(equal) {
            decisions.push(lent);
        }
        if self.free() < LEAST {
            return Err(NoRoom);
        }
        let slots = equal.min(self.free());
        let space = Space {
            objective,
            slots,
            floor: LEAST,
            estimator: Estimator::default(),
            residual: Residual::default(),
            pace: Pace::new(SLOW),
            window: Window::default(),
            latest: Window::default(),
            slots_before: slots,
            rounds: 0,
            bad: 0,
            good: 0,
            degraded: false,
        };
        self.spaces.insert(id, space);
        Ok(decisions)
    }

    /// Have whoever has the most above an equal share give that up, as far as it is not in use.
    fn make_room(&mut self, equal: u32) -> Option<Decision> {
        self.lend(None, equal, |space| {
            space.slots.saturating_sub(space.latest.in_use.max(equal))
        })
    }

    /// A space is gone, and its slots are free.
    pub fn detach(&mut self, id: Id) {
        self.spaces.remove(&id);
    }

    /// A window of time is over at `now` (seconds on any clock). Under `pressure`, when the host
    /// itself is short of memory, nothing grows. Windows that were lost are simply not there.
    pub fn tick(&mut self, now: f64, windows: &[(Id, Window)], pressure: bool) -> Vec<Decision> {
        for (id, window) in windows {
            if let Some(space) = self.spaces.get_mut(id) {
                space.window = space.window.and(window);
                space.latest = *window;
            }
        }
        let mut decisions = Vec::new();
        if now >= self.next_slow {
            self.next_slow = now + SLOW;
            decisions = self.plan(now, pressure);
        }
        if self.fast && !pressure {
            decisions.extend(self.help());
        }
        decisions
    }

    /// The slow loop.
    fn plan(&mut self, now: f64, pressure: bool) -> Vec<Decision> {
        self.spaces.values_mut().for_each(Space::learn);
        let needs: Vec<Need<'_>> = self.spaces.values().map(|s| s.need(self.budget)).collect();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a u32"
        )]
        let promised = match self.fast {
            true => (f64::from(self.budget) * PROMISED) as u32,
            false => self.budget,
        };
        let Shares {
            floors,
            slots,
            stretch,
            price,
        } = allocation::share(self.budget, promised, &needs);
        (self.stretch, self.price) = (stretch, price);
        let mut wishes: Vec<(Id, u32, Reason)> = Vec::new();
        for (((id, space), floor), wanted) in self.spaces.iter_mut().zip(floors).zip(slots) {
            space.floor = floor;
            let (to, reason) = space.wish(now, wanted, pressure);
            wishes.push((*id, to, reason));
        }
        // First those that give, then those that take.
        wishes.sort_by_key(|(id, to, _)| (self.slots(*id).is_some_and(|slots| *to > slots), *id));
        let decide = |(id, to, reason)| self.set(id, to, reason);
        wishes.into_iter().filter_map(decide).collect()
    }

    /// Give a space this many slots, or as many as there are.
    fn set(&mut self, id: Id, to: u32, reason: Reason) -> Option<Decision> {
        let free = self.free();
        let space = self.spaces.get_mut(&id)?;
        let before = space.slots;
        space.slots = to.min(before.saturating_add(free));
        let reason = match space.slots == before && to > before {
            true => Reason::HoldBudget,
            false => reason,
        };
        Some(space.decision(id, before, reason))
    }

    /// The fast loop.
    fn help(&mut self) -> Vec<Decision> {
        let mut needy: Vec<(Id, f64)> = self
            .spaces
            .iter()
            .filter(|(_, space)| space.suffers())
            .map(|(id, space)| (*id, space.latest.blocked))
            .collect();
        // Who stands still the longest first.
        needy.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut decisions = Vec::new();
        for (id, _) in needy {
            let Some(slots) = self.slots(id) else {
                continue;
            };
            let more = self.missing(id).max(slots / 2).max(1);
            while self.free() < more {
                match self.borrow(id, more) {
                    Some(lent) => decisions.push(lent),
                    None => break,
                }
            }
            if self.free() > 0 {
                decisions.extend(self.set(id, slots.saturating_add(more), Reason::GrowBlocked));
            }
        }
        decisions
    }

    /// Jobs that came in the last window and did not go.
    fn missing(&self, id: Id) -> u32 {
        let window = self
            .spaces
            .get(&id)
            .map(|space| space.latest)
            .unwrap_or_default();
        u32::try_from(window.arrived.saturating_sub(window.released)).unwrap_or(u32::MAX)
    }

    /// Free slots of the space that has the most to spare, for `id` to have at most `wanted` of them.
    fn borrow(&mut self, id: Id, wanted: u32) -> Option<Decision> {
        self.lend(Some(id), wanted, Space::slack)
    }

    /// Have the space with the most to spare, but not `except`, give up what is missing of `wanted`
    /// free slots.
    fn lend(
        &mut self,
        except: Option<Id>,
        wanted: u32,
        spare: impl Fn(&Space) -> u32,
    ) -> Option<Decision> {
        let missing = wanted.saturating_sub(self.free());
        let others = self.spaces.iter().filter(|(id, _)| Some(**id) != except);
        let spares = others.map(|(id, space)| (spare(space), Reverse(*id)));
        let (spare, Reverse(lender)) = spares.max()?;
        let lent = spare.min(missing);
        if lent == 0 {
            return None;
        }
        let slots = self.slots(lender)?.saturating_sub(lent);
        self.set(lender, slots, Reason::ShrinkLent)
    }
}

impl Space {
    /// Take what happened since the last round in.
    fn learn(&mut self) {
        let window = std::mem::take(&mut self.window);
        let change = self.estimator.take(&window);
        if change == Change::Step {
            self.residual.open();
            self.rounds = 0;
        }
        let flow = self.estimator.flow(SLOW);
        if let (Some(flow), true) = (flow, window.tells()) {
            let step = f64::from(self.slots).ln() - f64::from(self.slots_before).ln();
            let modelled = completion(&flow, self.slots);
            let error = (window.completion.max(1e-6) / modelled).ln();
            // Nothing is learnt of a space whose size was not the model's choice.
            let learn = self.rounds > 0 && self.slots > LEAST;
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
            self.slots,
        ))
    }

    fn need(&self, most: u32) -> Need<'_> {
        Need {
            space: self,
            model: self.model(),
            most,
        }
    }

    /// What it may do about what it should have.
    fn wish(&mut self, now: f64, wanted: u32, pressure: bool) -> (u32, Reason) {
        if self.degraded {
            return (self.slots, Reason::Degraded);
        }
        let Some(model) = self.model() else {
            return (self.slots, Reason::HoldUnknown);
        };
        let asked = model.demand(&self.objective, wanted.max(LEAST));
        let (now_takes, would_take) = (model.predicted(self.slots), model.predicted(wanted));
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
                .max(LEAST),
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
    fn suffers(&self) -> bool {
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
    fn slack(&self) -> u32 {
        if self.is_filling() {
            return 0;
        }
        let high = self.latest.high_water.max(self.latest.in_use);
        let used = high.saturating_add(high / 4).saturating_add(1);
        let kept = match high >= self.floor / 2 {
            true => self.floor.max(used),
            false => used,
        };
        self.slots.saturating_sub(kept.max(LEAST))
    }

    fn decision(&self, space: Id, before: u32, reason: Reason) -> Decision {
        let model = self.model();
        let asked = model
            .as_ref()
            .map(|m| m.demand(&self.objective, self.slots.max(LEAST)));
        let predicted = model.as_ref().map(|model| model.predicted(self.slots));
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
struct Need<'a> {
    space: &'a Space,
    model: Option<Model<'a>>,
    most: u32,
}

impl Claim for Need<'_> {
    fn least(&self) -> u32 {
        self.space.latest.in_use.max(LEAST)
    }

    fn class(&self) -> u8 {
        self.space.objective.class
    }

    fn need(&self, stretch: f64) -> u32 {
        let objective = self.space.objective.stretched(stretch);
        let model = self.model.as_ref();
        let asked = model.map(|model| model.demand(&objective, self.most));
        asked.map_or(self.space.slots, |demand| demand.slots)
    }

    fn gain(&self, slots: u32) -> f64 {
        let objective = &self.space.objective;
        let model = self.model.as_ref();
        model.map_or(0.0, |model| model.gain(objective, slots))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn objective() -> Objective {
        Objective {
            seconds: 1.5,
            share: Some(0.95),
            blocked: 0.2,
            weight: 1.0,
            class: 0,
        }
    }

    /// A second in which so many jobs came and went.
    fn window(jobs: u64, blocked: f64, in_use: u32) -> Window {
        #[allow(clippy::cast_precision_loss, reason = "small")]
        let count = jobs as f64;
        Window {
            seconds: 1.0,
            arrived: jobs,
            gaps: 1.0,
            gaps_squared: 2.0 / count.max(1.0),
            computed: jobs,
            computing: count * 0.05,
            computing_squared: count * 0.005,
            blocked,
            released: jobs,
            transmitting: count * 0.1,
            completion: 0.1 + blocked,
            high_water: in_use,
            in_use,
        }
    }

    #[test]
    fn who_waits_is_lent_what_nobody_uses_and_gives_it_back() {
        let mut controller = Controller::new(20);
        for id in [1, 2] {
            assert!(controller.attach(id, objective()).is_ok());
        }
        assert_eq!(
            (controller.slots(1), controller.slots(2)),
            (Some(10), Some(10))
        );
        let (idle, full) = (window(1, 0.0, 1), window(9, 0.6, 10));
        let decisions = controller.tick(1.0, &[(1, full), (2, idle)], false);
        let reasons: Vec<Reason> = decisions.iter().map(|decision| decision.reason).collect();
        assert_eq!(reasons, [Reason::ShrinkLent, Reason::GrowBlocked]);
        assert_eq!(
            (controller.slots(1), controller.slots(2)),
            (Some(15), Some(5))
        );
        controller.tick(2.0, &[(1, idle), (2, window(9, 0.6, 5))], false);
        assert!(controller.slots(2) > Some(5), "{:?}", controller.slots(2));
    }

    #[test]
    fn nothing_grows_while_the_host_is_short_of_memory() {
        let mut controller = Controller::new(20);
        assert!(controller.attach(1, objective()).is_ok());
        controller.detach(1);
        for id in [1, 2] {
            assert!(controller.attach(id, objective()).is_ok());
        }
        for second in 1..60 {
            let windows = [(1, window(9, 0.6, 10)), (2, window(1, 0.0, 1))];
            let decisions = controller.tick(f64::from(second), &windows, true);
            assert!(decisions.iter().all(|made| made.slots <= made.before));
        }
    }

    #[test]
    fn a_newcomer_has_its_share_of_what_is_not_in_use() {
        let mut controller = Controller::new(12);
        assert!(controller.attach(1, objective()).is_ok());
        assert_eq!(controller.slots(1), Some(12));
        controller.tick(1.0, &[(1, window(5, 0.0, 3))], false);
        assert!(controller.attach(2, objective()).is_ok());
        assert_eq!(
            (controller.slots(1), controller.slots(2)),
            (Some(6), Some(6))
        );
        controller.tick(
            2.0,
            &[(1, window(5, 0.0, 6)), (2, window(5, 0.0, 6))],
            false,
        );
        assert_eq!(controller.attach(3, objective()), Err(NoRoom));
        assert_eq!(controller.slots(3), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Attach(Id),
        Detach(Id),
        Tick(Vec<(u64, f64, u32)>, bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        let windows = prop::collection::vec((0_u64..60, 0.0_f64..1.0, 0_u32..40), 6);
        prop_oneof![
            1 => (0_u32..6).prop_map(Step::Attach),
            1 => (0_u32..6).prop_map(Step::Detach),
            8 => (windows, prop::bool::weighted(0.1)).prop_map(|(w, p)| Step::Tick(w, p)),
        ]
    }

    proptest! {
        #[test]
        fn the_sum_stays_within_the_budget_and_what_is_in_use_stays(
            budget in 4_u32..120, steps in prop::collection::vec(step(), 1..150),
        ) {
            let mut controller = Controller::new(budget);
            let mut now = 0.0;
            for step in steps {
                match step {
                    Step::Attach(id) => if controller.slots(id).is_none() {
                        // A host can be full.
                        let _full = controller.attach(id, objective());
                    },
                    Step::Detach(id) => controller.detach(id),
                    Step::Tick(figures, pressure) => {
                        now += 1.0;
                        let mut windows = Vec::new();
                        for (id, (jobs, blocked, in_use)) in (0..).zip(figures) {
                            if let Some(slots) = controller.slots(id) {
                                windows.push((id, window(jobs, blocked, in_use.min(slots))));
                            }
                        }
                        controller.tick(now, &windows, pressure);
                        for (id, window) in &windows {
                            prop_assert!(controller.slots(*id) >= Some(window.in_use.max(LEAST)));
                        }
                    }
                }
                let all: u32 = (0..6).filter_map(|id| controller.slots(id)).sum();
                prop_assert!(all <= budget);
            }
        }
    }
}
