//! The controller of all spaces of a host: a slow loop that follows the model and a fast loop that reacts to waiting
//! writes.
//!
//! Every [`SLOW_PERIOD`] seconds the slow loop updates the estimates of all spaces, computes each demand from the model and
//! divides the budget ([`crate::allocation`]). In every window, the fast loop gives slots to spaces whose writes wait:
//! first free slots, then slots of the space with the most slack. That space gets slots in the same way when its own writes
//! wait. The controller reclaims slots before it grants them, so the sum is within the budget at every instant.

mod controlled_space;
mod decision;
mod limits;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::allocation::{self, Allocation};
use crate::demand::Objective;
use crate::estimator::Window;
use crate::resize_policy::Reason;
use controlled_space::{ControlledSpace, SpaceClaim};

pub use decision::{Decision, Id};
pub use limits::SLOW_PERIOD;

/// Fraction of the budget that floors may take. The rest is for the fast loop and for marginal gains.
const FLOOR_FRACTION: f64 = 0.7;

/// The error of [`Controller::attach`]: the slots of the other spaces are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetInUse;

/// Divides a host's budget of slots among its spaces.
#[derive(Debug)]
pub struct Controller {
    budget: u32,
    /// Fewest slots of each space.
    min_slots: u32,
    spaces: BTreeMap<Id, ControlledSpace>,
    next_slow_round: f64,
    /// Whether the fast loop runs.
    fast_loop: bool,
    stretch: f64,
    price: f64,
}

impl Controller {
    /// Creates the controller of a host with a budget of `budget` slots, of which each space gets at least `min_slots`.
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

    /// Creates a controller without the fast loop, for comparison.
    #[must_use]
    pub fn without_fast_loop(budget: u32, min_slots: u32) -> Self {
        Self {
            fast_loop: false,
            ..Self::new(budget, min_slots)
        }
    }

    /// Returns the slots of the budget that no space has.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.budget.saturating_sub(self.allocated())
    }

    /// Returns the slots of a space.
    #[must_use]
    pub fn slots(&self, space: Id) -> Option<u32> {
        self.spaces.get(&space).map(|space| space.slots)
    }

    /// Returns the factor by which objectives are stretched because the budget is too small; 1 if all are met.
    #[must_use]
    pub fn stretch(&self) -> f64 {
        self.stretch
    }

    /// Returns the gain of one more slot of budget: the weighted number of jobs per second that would find a slot.
    #[must_use]
    pub fn price(&self) -> f64 {
        self.price
    }

    /// Adds a space. It gets an equal share of the budget; spaces with more than an equal share lose slots that are not in
    /// use. Returns the decisions about those spaces.
    ///
    /// # Errors
    /// Returns [`BudgetInUse`] if fewer than `min_slots` slots become free because the other spaces use them.
    pub fn attach(&mut self, id: Id, objective: Objective) -> Result<Vec<Decision>, BudgetInUse> {
        let mut decisions = Vec::new();
        let equal = self.equal_share(1);
        while let Some(reclaimed) = self.reclaim_above(equal) {
            decisions.push(reclaimed);
        }
        if self.free() < self.min_slots {
            return Err(BudgetInUse);
        }
        let space = ControlledSpace::new(objective, equal.min(self.free()), self.min_slots);
        self.spaces.insert(id, space);
        Ok(decisions)
    }

    /// Returns an equal share of the budget after `coming` more spaces are added.
    fn equal_share(&self, coming: u32) -> u32 {
        let count = u32::try_from(self.spaces.len()).unwrap_or(u32::MAX);
        (self.budget / count.saturating_add(coming).max(1)).max(self.min_slots)
    }

    /// Reclaims slots above an equal share that are not in use, from the space with the most of them.
    fn reclaim_above(&mut self, equal: u32) -> Option<Decision> {
        self.reclaim(None, equal, |space| {
            space.slots.saturating_sub(space.latest.in_use.max(equal))
        })
    }

    /// Removes a space. Its slots become free.
    pub fn detach(&mut self, id: Id) {
        self.spaces.remove(&id);
    }

    /// Replaces the objective of a space.
    pub fn set_objective(&mut self, id: Id, objective: Objective) {
        if let Some(space) = self.spaces.get_mut(&id) {
            space.objective = objective;
        }
    }

    /// Changes the budget. If the spaces have more slots than the new budget, reclaims those that are not in use and above
    /// an equal share. Returns the decisions.
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

    /// Records the size that a space reported. It may exceed the decision because slots came into use meanwhile.
    pub fn set_reported_size(&mut self, id: Id, slots: u32) {
        if let Some(space) = self.spaces.get_mut(&id) {
            space.slots = slots;
        }
    }

    /// Returns the slots that spaces have beyond the budget.
    #[must_use]
    pub fn excess(&self) -> u32 {
        self.allocated().saturating_sub(self.budget)
    }

    fn allocated(&self) -> u32 {
        self.spaces.values().map(|space| space.slots).sum()
    }

    /// Processes the windows of the spaces that end at `now` (seconds on any monotonic clock) and returns the decisions.
    /// Under `pressure`, when the host itself is short of memory, no space grows. `windows` omits spaces whose window was
    /// lost.
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

    /// Runs one round of the slow loop.
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
        // Shrink first, then grow.
        changes.sort_by_key(|(id, to, _)| (self.slots(*id).is_some_and(|slots| *to > slots), *id));
        let decide = |(id, to, reason)| self.set(id, to, reason);
        changes.into_iter().filter_map(decide).collect()
    }

    /// Gives a space `to` slots, or as many as the free slots allow.
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

    /// Runs one round of the fast loop.
    fn run_fast_loop(&mut self) -> Vec<Decision> {
        let mut waiting: Vec<(Id, f64)> = self
            .spaces
            .iter()
            .filter(|(_, space)| space.is_at_risk())
            .map(|(id, space)| (*id, space.latest.blocked))
            .collect();
        // The space whose writes waited longest comes first.
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

    /// Returns how many slots the fast loop may add to a space. A space that returns no slots gets none beyond an equal
    /// share.
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

    /// Returns the jobs that arrived in the last window minus those that left.
    fn backlog(&self, id: Id) -> u32 {
        let window = self
            .spaces
            .get(&id)
            .map(|space| space.latest)
            .unwrap_or_default();
        u32::try_from(window.arrived.saturating_sub(window.released)).unwrap_or(u32::MAX)
    }

    /// Shrinks the space with the most slack, other than `id`, until `target` slots are free or it has no slack left.
    fn reclaim_slack(&mut self, id: Id, target: u32) -> Option<Decision> {
        self.reclaim(Some(id), target, ControlledSpace::slack)
    }

    /// Shrinks the space with the most spare slots (other than `except`) by what is missing to `target` free slots.
    fn reclaim(
        &mut self,
        except: Option<Id>,
        target: u32,
        spare: impl Fn(&ControlledSpace) -> u32,
    ) -> Option<Decision> {
        let missing = target.saturating_sub(self.free());
        self.shrink_largest_spare(except, missing, spare)
    }

    /// Shrinks the space with the most spare slots (other than `except`) by at most `missing` of them.
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
