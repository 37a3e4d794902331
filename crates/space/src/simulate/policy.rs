//! The policies of the simulation: the controller and its competitors.

use std::collections::BTreeMap;

use crate::controller::{Controller, Id};
use crate::demand::Objective;
use crate::estimator::Window;

/// Fewest slots of each VM.
const MIN_SLOTS: u32 = 2;

/// How the slots of the VMs are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each VM has an equal share, which never changes.
    Static,
    /// Every 5 s, spaces that were full or blocked grow by half, and all others shrink by a fifth.
    Reactive5,
    /// As [`Reactive5`](Self::Reactive5), every second.
    Reactive1,
    /// Every second, spaces that are nearly full grow by half, and those that are half empty shrink by a fifth.
    Pool,
    /// The controller without its fast loop.
    Model,
    /// The controller with both loops.
    Hybrid,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 6] = [
        Self::Static,
        Self::Reactive5,
        Self::Reactive1,
        Self::Pool,
        Self::Model,
        Self::Hybrid,
    ];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Reactive5 => "reactive 5 s",
            Self::Reactive1 => "reactive 1 s",
            Self::Pool => "pool 1 s",
            Self::Model => "model 5 s",
            Self::Hybrid => "hybrid",
        }
    }
}

/// A policy with its state.
#[derive(Debug)]
pub(super) enum RunningPolicy {
    Static { share: u32 },
    Reactive(Reactive),
    Controller(Box<Controller>),
}

impl RunningPolicy {
    pub(super) fn new(policy: Policy, budget: u32, vms: usize) -> Self {
        let share = budget / u32::try_from(vms).unwrap_or(1);
        let reactive = |period, rule| Self::Reactive(Reactive::new(budget, period, rule));
        let controller = |controller| Self::Controller(Box::new(controller));
        match policy {
            Policy::Static => Self::Static { share },
            Policy::Reactive5 => reactive(5, GrowthRule::Full),
            Policy::Reactive1 => reactive(1, GrowthRule::Full),
            Policy::Pool => reactive(1, GrowthRule::NearlyFull),
            Policy::Model => controller(Controller::without_fast_loop(budget, MIN_SLOTS)),
            Policy::Hybrid => controller(Controller::new(budget, MIN_SLOTS)),
        }
    }

    /// Adds a VM.
    pub(super) fn attach(&mut self, id: Id, objective: Objective) {
        match self {
            Self::Static { .. } => {}
            Self::Reactive(reactive) => reactive.attach(id),
            // The simulated VMs always fit, so an error cannot occur.
            Self::Controller(controller) => drop(controller.attach(id, objective)),
        }
    }

    pub(super) fn detach(&mut self, id: Id) {
        match self {
            Self::Static { .. } => {}
            Self::Reactive(reactive) => drop(reactive.spaces.remove(&id)),
            Self::Controller(controller) => controller.detach(id),
        }
    }

    pub(super) fn tick(&mut self, now: f64, windows: &[(Id, Window)]) {
        match self {
            Self::Static { .. } => {}
            Self::Reactive(reactive) => reactive.tick(windows),
            Self::Controller(controller) => drop(controller.tick(now, windows, false)),
        }
    }

    pub(super) fn slots(&self, id: Id) -> u32 {
        match self {
            Self::Static { share } => *share,
            Self::Reactive(reactive) => reactive.spaces.get(&id).map_or(0, |space| space.slots),
            Self::Controller(controller) => controller.slots(id).unwrap_or(0),
        }
    }
}

/// When a reactive policy grows and shrinks a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrowthRule {
    /// Grows a space that was full or blocked; shrinks all others.
    Full,
    /// Grows a space that is nearly full; shrinks one that was half empty.
    NearlyFull,
}

impl GrowthRule {
    fn grows(self, slots: u32, window: &Window) -> bool {
        let inflow = window.arrived.saturating_sub(window.released);
        let soon = u64::from(window.in_use) + 2 * inflow >= u64::from(slots);
        match self {
            Self::Full => window.blocked > 0.0 || window.high_water >= slots,
            Self::NearlyFull => 10 * window.in_use >= 9 * slots || inflow > 0 && soon,
        }
    }

    fn shrinks(self, slots: u32, window: &Window) -> bool {
        match self {
            Self::Full => !self.grows(slots, window),
            Self::NearlyFull => 2 * window.high_water < slots,
        }
    }
}

/// A policy that resizes spaces by their last windows, without a model.
#[derive(Debug)]
pub(super) struct Reactive {
    budget: u32,
    period: u32,
    rule: GrowthRule,
    ticks: u32,
    spaces: BTreeMap<Id, ReactiveSpace>,
}

#[derive(Debug, Default)]
struct ReactiveSpace {
    slots: u32,
    window: Window,
}

impl Reactive {
    fn new(budget: u32, period: u32, rule: GrowthRule) -> Self {
        Self {
            budget,
            period,
            rule,
            ticks: 0,
            spaces: BTreeMap::new(),
        }
    }

    fn free(&self) -> u32 {
        let allocated: u32 = self.spaces.values().map(|space| space.slots).sum();
        self.budget.saturating_sub(allocated)
    }

    fn attach(&mut self, id: Id) {
        let count = u32::try_from(self.spaces.len()).unwrap_or(0);
        let equal_share = self.budget / (count + 1);
        for space in self.spaces.values_mut() {
            space.slots = space.slots.min(equal_share.max(MIN_SLOTS));
        }
        let space = ReactiveSpace {
            slots: equal_share.min(self.free()),
            ..ReactiveSpace::default()
        };
        self.spaces.insert(id, space);
    }

    fn tick(&mut self, windows: &[(Id, Window)]) {
        for (id, window) in windows {
            if let Some(space) = self.spaces.get_mut(id) {
                space.window = space.window.merge(window);
            }
        }
        self.ticks += 1;
        if self.ticks % self.period != 0 {
            return;
        }
        let mut growing = Vec::new();
        for (id, space) in &mut self.spaces {
            let window = std::mem::take(&mut space.window);
            if self.rule.grows(space.slots, &window) {
                growing.push(*id);
            } else if self.rule.shrinks(space.slots, &window) {
                let smaller = space.slots - (space.slots / 5).max(1);
                space.slots = smaller.max(window.in_use).max(MIN_SLOTS).min(space.slots);
            }
        }
        for id in growing {
            let free = self.free();
            if let Some(space) = self.spaces.get_mut(&id) {
                space.slots += (space.slots / 2).max(1).min(free);
            }
        }
    }
}
