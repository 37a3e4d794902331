//! The loops: a slow one that knows what each VM will need, a fast one that helps who waits now.
//!
//! Every [`SLOW`] the estimates of all spaces are brought up to date, the model's demand for each is
//! computed, and the budget is shared ([`crate::allocation`]). In between, every window, a space
//! that is about to be full is lent what nobody uses: from what is free, then from the space with
//! the most slack. What is lent comes back when its owner fills up in turn, by the same rule. Slots
//! are given up before they are granted, so the sum is within the budget at every instant.

mod decision;
mod limits;
mod member;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::allocation::{self, Shares};
use crate::demand::Objective;
use crate::estimator::Window;
use crate::resize_policy::Reason;
use member::{Need, Space};

pub use decision::{Decision, Id};
pub use limits::SLOW;

/// Share of the budget that floors may take: the rest is there for whoever needs it first.
const PROMISED: f64 = 0.7;

/// A space that cannot be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// All spaces of a host.
#[derive(Debug)]
pub struct Controller {
    budget: u32,
    /// Slots that every space has.
    least: u32,
    spaces: BTreeMap<Id, Space>,
    next_slow: f64,
    /// The fast loop is at work.
    fast: bool,
    stretch: f64,
    price: f64,
}

impl Controller {
    /// For a host that gives this many slots, and each space at least so many of them.
    #[must_use]
    pub fn new(budget: u32, least: u32) -> Self {
        Self {
            budget,
            least,
            spaces: BTreeMap::new(),
            next_slow: SLOW,
            fast: true,
            stretch: 1.0,
            price: 0.0,
        }
    }

    /// The same without its fast loop, to be compared with.
    #[must_use]
    pub fn without_help(budget: u32, least: u32) -> Self {
        Self {
            fast: false,
            ..Self::new(budget, least)
        }
    }

    /// Slots that nobody has.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.budget.saturating_sub(self.taken())
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
        let equal = self.equal(1);
        while let Some(lent) = self.make_room(equal) {
            decisions.push(lent);
        }
        if self.free() < self.least {
            return Err(NoRoom);
        }
        let space = Space::new(objective, equal.min(self.free()), self.least);
        self.spaces.insert(id, space);
        Ok(decisions)
    }

    /// An equal share, when so many more spaces have come.
    fn equal(&self, coming: u32) -> u32 {
        let count = u32::try_from(self.spaces.len()).unwrap_or(u32::MAX);
        (self.budget / count.saturating_add(coming).max(1)).max(self.least)
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

    /// A space has another objective.
    pub fn set_objective(&mut self, id: Id, objective: Objective) {
        if let Some(space) = self.spaces.get_mut(&id) {
            space.objective = objective;
        }
    }

    /// The host gives another number of slots. What is too much is taken back, as far as it is not in use.
    pub fn set_budget(&mut self, budget: u32) -> Vec<Decision> {
        self.budget = budget;
        let equal = self.equal(0);
        let mut decisions = Vec::new();
        while self.excess() > 0 {
            let missing = self.excess();
            let spare = |space: &Space| {
                let kept = space.latest.in_use.max(equal);
                space.slots.saturating_sub(kept)
            };
            match self.give_up(None, missing, spare) {
                Some(less) => decisions.push(less),
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
        self.taken().saturating_sub(self.budget)
    }

    fn taken(&self) -> u32 {
        self.spaces.values().map(|space| space.slots).sum()
    }

    /// A window of time is over at `now` (seconds on any clock). Under `pressure`, when the host
    /// itself is short of memory, nothing grows. Windows that were lost are simply not there.
    pub fn tick(&mut self, now: f64, windows: &[(Id, Window)], pressure: bool) -> Vec<Decision> {
        let equal = self.equal(0);
        for (id, window) in windows {
            if let Some(space) = self.spaces.get_mut(id) {
                space.tell(window, equal);
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
            let more = more.min(self.most_lent(id, slots));
            while self.free() < more {
                match self.borrow(id, more) {
                    Some(lent) => decisions.push(lent),
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
    fn most_lent(&self, id: Id, slots: u32) -> u32 {
        match self.spaces.get(&id).is_some_and(Space::only_keeps) {
            true => self.equal(0).saturating_sub(slots),
            false => u32::MAX,
        }
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
        self.give_up(except, missing, spare)
    }

    /// Have the space with the most to spare, but not `except`, give up to so many of that.
    fn give_up(
        &mut self,
        except: Option<Id>,
        missing: u32,
        spare: impl Fn(&Space) -> u32,
    ) -> Option<Decision> {
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

#[cfg(test)]
mod tests;
