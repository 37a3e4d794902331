//! The loops: a slow one that knows what each VM will need, a fast one that helps who waits now.
//!
//! Every [`SLOW_PERIOD`] the estimates of all spaces are brought up to date, the model's demand for each is
//! computed, and the budget is shared ([`crate::allocation`]). In between, every window, a space
//! that is about to be full is lent what nobody uses: from what is free, then from the space with
//! the most slack. What is lent comes back when its owner fills up in turn, by the same rule. Slots
//! are given up before they are granted, so the sum is within the budget at every instant.

mod controlled_space;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::allocation::{self, Allocation};
use crate::demand::{Bottleneck, Objective};
use crate::estimator::Window;
use crate::resize_policy::Reason;
use controlled_space::{ControlledSpace, SpaceClaim};

/// Seconds between two rounds of the slow loop.
pub const SLOW_PERIOD: f64 = 5.0;

/// Share of the budget that floors may take: the rest is there for whoever needs it first.
const FLOOR_FRACTION: f64 = 0.7;

/// In-use share of a space from which it counts as about to be full.
const NEARLY_FULL: f64 = 0.9;

/// Share of its time that a job must gain for more slots to be worth having.
const MIN_IMPROVEMENT: f64 = 0.02;

/// Share of a window spent without a slot, and of the objective's time, from which a space needs
/// help before the slow loop's next round.
const AT_RISK: f64 = 0.25;

/// Prediction error (of the logarithm) above which a round was a bad one; rounds of the kind that
/// change the state.
const BAD_ERROR: f64 = 0.5;
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

/// All spaces of a host.
#[derive(Debug)]
pub struct Controller {
    budget: u32,
    /// Slots that every space has.
    min_slots: u32,
    spaces: BTreeMap<Id, ControlledSpace>,
    next_slow_round: f64,
    /// The fast loop is at work.
    fast_loop: bool,
    stretch: f64,
    price: f64,
}

impl Controller {
    /// For a host that gives this many slots, and each space at least so many of them.
    #[must_use]
    pub fn new(budget: u32, min_slots: u32) -> Self {
        Self {
            budget,
            min_slots,
            spaces: BTreeMap::new(),
            next_slow_round: SLOW_PERIOD,
            fast_loop: true,
            stretch: 1.0,
            price: 0.0,
        }
    }

    /// The same without its fast loop, to be compared with.
    #[must_use]
    pub fn without_fast_loop(budget: u32, min_slots: u32) -> Self {
        Self {
            fast_loop: false,
            ..Self::new(budget, min_slots)
        }
    }

    /// Slots that nobody has.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.budget.saturating_sub(self.allocated())
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
        let equal = self.equal_share(1);
        while let Some(reclaimed) = self.reclaim_above(equal) {
            decisions.push(reclaimed);
        }
        if self.free() < self.min_slots {
            return Err(NoRoom);
        }
        let space = ControlledSpace::new(objective, equal.min(self.free()), self.min_slots);
        self.spaces.insert(id, space);
        Ok(decisions)
    }

    /// An equal share, when so many more spaces have come.
    fn equal_share(&self, coming: u32) -> u32 {
        let count = u32::try_from(self.spaces.len()).unwrap_or(u32::MAX);
        (self.budget / count.saturating_add(coming).max(1)).max(self.min_slots)
    }

    /// Have whoever has the most above an equal share give that up, as far as it is not in use.
    fn reclaim_above(&mut self, equal: u32) -> Option<Decision> {
        self.reclaim(None, equal, |space| {
            space.slots.saturating_sub(space.latest.in_use.max(equal))
        })
    }

    /// A space is gone, and its slots are free.
    pub fn detach(&mut self, id: Id) {
        self.spaces.remove(&id);
    }

    /// A space has another objective.
    pub fn set_objective(&mut self, id: Id, objective: Objective) {
        if let Some(space) = self.spaces.get_mut(&id) {
            space.objective = objective;
        }
    }

    /// The host gives another number of slots. What is too much is taken back, as far as it is not in use.
    pub fn set_budget(&mut self, budget: u32) -> Vec<Decision> {
        self.budget = budget;
        let equal = self.equal_share(0);
        let mut decisions = Vec::new();
        while self.excess() > 0 {
            let missing = self.excess();
            let spare = |space: &ControlledSpace| {
                let min_size = space.latest.in_use.max(equal);
                space.slots.saturating_sub(min_size)
            };
            match self.shrink_largest_spare(None, missing, spare) {
                Some(decision) => decisions.push(decision),
                None => break,
            }
        }
        decisions
    }

    /// A space has kept more slots than it was to have, for they were in use by then.
    pub fn kept(&mut self, id: Id, slots: u32) {
        if let Some(space) = self.spaces.get_mut(&id) {
            space.slots = slots;
        }
    }

    /// Slots that spaces have beyond the budget.
    #[must_use]
    pub fn excess(&self) -> u32 {
        self.allocated().saturating_sub(self.budget)
    }

    fn allocated(&self) -> u32 {
        self.spaces.values().map(|space| space.slots).sum()
    }

    /// A window of time is over at `now` (seconds on any clock). Under `pressure`, when the host
    /// itself is short of memory, nothing grows. Windows that were lost are simply not there.
    pub fn tick(&mut self, now: f64, windows: &[(Id, Window)], pressure: bool) -> Vec<Decision> {
        let equal = self.equal_share(0);
        for (id, window) in windows {
            if let Some(space) = self.spaces.get_mut(id) {
                space.record_window(window, equal);
            }
        }
        let mut decisions = Vec::new();
        if now >= self.next_slow_round {
            self.next_slow_round = now + SLOW_PERIOD;
            decisions = self.run_slow_loop(now, pressure);
        }
        if self.fast_loop && !pressure {
            decisions.extend(self.run_fast_loop());
        }
        decisions
    }

    /// The slow loop.
    fn run_slow_loop(&mut self, now: f64, pressure: bool) -> Vec<Decision> {
        self.spaces
            .values_mut()
            .for_each(ControlledSpace::update_model);
        let claims: Vec<SpaceClaim<'_>> =
            self.spaces.values().map(|s| s.claim(self.budget)).collect();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a u32"
        )]
        let floor_budget = match self.fast_loop {
            true => (f64::from(self.budget) * FLOOR_FRACTION) as u32,
            false => self.budget,
        };
        let Allocation {
            floors,
            slots,
            stretch,
            price,
        } = allocation::allocate(self.budget, floor_budget, &claims);
        (self.stretch, self.price) = (stretch, price);
        let mut changes: Vec<(Id, u32, Reason)> = Vec::new();
        for (((id, space), floor), target) in self.spaces.iter_mut().zip(floors).zip(slots) {
            space.floor = floor;
            let (to, reason) = space.propose(now, target, pressure);
            changes.push((*id, to, reason));
        }
        // First those that give, then those that take.
        changes.sort_by_key(|(id, to, _)| (self.slots(*id).is_some_and(|slots| *to > slots), *id));
        let decide = |(id, to, reason)| self.set(id, to, reason);
        changes.into_iter().filter_map(decide).collect()
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
    fn run_fast_loop(&mut self) -> Vec<Decision> {
        let mut waiting: Vec<(Id, f64)> = self
            .spaces
            .iter()
            .filter(|(_, space)| space.is_at_risk())
            .map(|(id, space)| (*id, space.latest.blocked))
            .collect();
        // Who stands still the longest first.
        waiting.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut decisions = Vec::new();
        for (id, _) in waiting {
            let Some(slots) = self.slots(id) else {
                continue;
            };
            let more = self.backlog(id).max(slots / 2).max(1);
            let more = more.min(self.max_extra(id, slots));
            while self.free() < more {
                match self.reclaim_slack(id, more) {
                    Some(reclaimed) => decisions.push(reclaimed),
                    None => break,
                }
            }
            if more > 0 && self.free() > 0 {
                decisions.extend(self.set(id, slots.saturating_add(more), Reason::GrowBlocked));
            }
        }
        decisions
    }

    /// Most slots that this space may be lent: none beyond an equal share, if they do not come back.
    fn max_extra(&self, id: Id, slots: u32) -> u32 {
        match self
            .spaces
            .get(&id)
            .is_some_and(ControlledSpace::is_retaining)
        {
            true => self.equal_share(0).saturating_sub(slots),
            false => u32::MAX,
        }
    }

    /// Jobs that came in the last window and did not go.
    fn backlog(&self, id: Id) -> u32 {
        let window = self
            .spaces
            .get(&id)
            .map(|space| space.latest)
            .unwrap_or_default();
        u32::try_from(window.arrived.saturating_sub(window.released)).unwrap_or(u32::MAX)
    }

    /// Free slots of the space that has the most to spare, for `id` to have at most `target` of them.
    fn reclaim_slack(&mut self, id: Id, target: u32) -> Option<Decision> {
        self.reclaim(Some(id), target, ControlledSpace::slack)
    }

    /// Have the space with the most to spare, but not `except`, give up what is missing of `target`
    /// free slots.
    fn reclaim(
        &mut self,
        except: Option<Id>,
        target: u32,
        spare: impl Fn(&ControlledSpace) -> u32,
    ) -> Option<Decision> {
        let missing = target.saturating_sub(self.free());
        self.shrink_largest_spare(except, missing, spare)
    }

    /// Have the space with the most to spare, but not `except`, give up to so many of that.
    fn shrink_largest_spare(
        &mut self,
        except: Option<Id>,
        missing: u32,
        spare: impl Fn(&ControlledSpace) -> u32,
    ) -> Option<Decision> {
        let others = self.spaces.iter().filter(|(id, _)| Some(**id) != except);
        let spares = others.map(|(id, space)| (spare(space), Reverse(*id)));
        let (spare, Reverse(donor)) = spares.max()?;
        let reclaimed = spare.min(missing);
        if reclaimed == 0 {
            return None;
        }
        let slots = self.slots(donor)?.saturating_sub(reclaimed);
        self.set(donor, slots, Reason::ShrinkLent)
    }
}

#[cfg(test)]
mod tests;
