//! How fast a space may change: not at every whim, and never below what is in use.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Wishes to shrink that must agree.
const SHRINK_AGREEMENTS: u32 = 3;

/// Share of a space that a change must exceed.
const DEAD_BAND: f64 = 0.1;

/// Most of a space that is given back at once.
const MIN_KEPT_FRACTION: f64 = 0.7;

/// Longest time without a shrink, in seconds.
const MAX_SHRINK_HOLD: f64 = 60.0;

/// Changes a minute.
const MAX_CHANGES_PER_MINUTE: usize = 6;

/// Why a space changed, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// To meet the objective.
    GrowSlo,
    /// Jobs wait for slots now.
    GrowBlocked,
    /// More than it needs.
    ShrinkSlack,
    /// Lent to a space that needs them now.
    ShrinkLent,
    /// The change is too small to be worth it.
    HoldDeadband,
    /// It has changed enough lately.
    HoldChurn,
    /// It should shrink, if that is still so in a while.
    HoldAgree,
    /// More slots would not help, as far as is known.
    HoldNoLeverage,
    /// There are no more.
    HoldBudget,
    /// The host is short of memory.
    HoldPressure,
    /// Too little has happened to know anything.
    HoldUnknown,
    /// The guest or the network is too slow, and no number of slots would help.
    NotAMemoryProblem,
    /// The model is wrong too often: only the fast loop acts.
    Degraded,
}

/// What one space may do in the slow loop.
#[derive(Clone, Debug)]
pub(crate) struct ResizePolicy {
    shrink_requests: u32,
    shrink_hold: f64,
    no_shrink_before: f64,
    changes: VecDeque<f64>,
}

/// What is known when a change is wished for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResizeRequest {
    pub(crate) slots: u32,
    pub(crate) target: u32,
    /// Slots that cannot be given back.
    pub(crate) in_use: u32,
    pub(crate) blocked: bool,
}

impl ResizePolicy {
    /// For a loop with this period.
    pub(crate) fn new(period: f64) -> Self {
        Self {
            shrink_requests: 0,
            shrink_hold: 3.0 * period,
            no_shrink_before: 0.0,
            changes: VecDeque::new(),
        }
    }

    /// What a wish comes to.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a u32"
    )]
    pub(crate) fn decide(&mut self, now: f64, request: ResizeRequest) -> (u32, Reason) {
        let ResizeRequest { slots, target, .. } = request;
        let band = (f64::from(slots) * DEAD_BAND).max(1.0);
        let small = f64::from(target.abs_diff(slots)) <= band;
        if target == slots || small && !(request.blocked && target > slots) {
            self.shrink_requests = 0;
            return (slots, Reason::HoldDeadband);
        }
        while self.changes.front().is_some_and(|at| now - at > 60.0) {
            self.changes.pop_front();
        }
        if self.changes.len() >= MAX_CHANGES_PER_MINUTE {
            return (slots, Reason::HoldChurn);
        }
        if target > slots {
            self.shrink_requests = 0;
            if now < self.no_shrink_before {
                // It was wrong to shrink.
                self.shrink_hold = (self.shrink_hold * 2.0).min(MAX_SHRINK_HOLD);
                self.no_shrink_before = now + self.shrink_hold;
            }
            self.changes.push_back(now);
            let reason = match request.blocked {
                true => Reason::GrowBlocked,
                false => Reason::GrowSlo,
            };
            return (target.min(slots.saturating_mul(2)), reason);
        }
        self.shrink_requests += 1;
        if self.shrink_requests < SHRINK_AGREEMENTS || now < self.no_shrink_before {
            return (slots, Reason::HoldAgree);
        }
        let min_size = (f64::from(slots) * MIN_KEPT_FRACTION).ceil() as u32;
        let to = target.max(min_size).max(request.in_use);
        if to >= slots {
            return (slots, Reason::HoldDeadband);
        }
        self.shrink_requests = 0;
        self.no_shrink_before = now + self.shrink_hold;
        self.changes.push_back(now);
        (to, Reason::ShrinkSlack)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(slots: u32, target: u32) -> ResizeRequest {
        ResizeRequest {
            slots,
            target,
            in_use: 0,
            blocked: false,
        }
    }

    #[test]
    fn growth_is_immediate_and_at_most_doubles_and_shrinking_needs_three_agreeing_requests() {
        let mut policy = ResizePolicy::new(5.0);
        assert_eq!(policy.decide(0.0, request(10, 50)), (20, Reason::GrowSlo));
        assert_eq!(policy.decide(5.0, request(20, 10)), (20, Reason::HoldAgree));
        assert_eq!(
            policy.decide(10.0, request(20, 10)),
            (20, Reason::HoldAgree)
        );
        assert_eq!(
            policy.decide(15.0, request(20, 10)),
            (14, Reason::ShrinkSlack)
        );
        assert_eq!(
            policy.decide(20.0, request(14, 13)),
            (14, Reason::HoldDeadband)
        );
    }

    #[test]
    fn a_blocked_space_grows_even_by_one_slot() {
        let blocked = ResizeRequest {
            blocked: true,
            ..request(20, 21)
        };
        assert_eq!(
            ResizePolicy::new(5.0).decide(0.0, blocked),
            (21, Reason::GrowBlocked)
        );
    }

    proptest! {
        #[test]
        fn the_size_never_falls_below_the_slots_in_use_and_changes_are_limited(
            steps in prop::collection::vec((1_u32..100, 0_u32..60, any::<bool>()), 1..300),
        ) {
            let mut policy = ResizePolicy::new(5.0);
            let mut slots = 60;
            let mut changes: Vec<f64> = Vec::new();
            for (step, (target, in_use, blocked)) in steps.into_iter().enumerate() {
                let now = f64::from(u32::try_from(step).unwrap()) * 5.0;
                let in_use = in_use.min(slots);
                let (to, _) = policy.decide(now, ResizeRequest { slots, target, in_use, blocked });
                prop_assert!(to >= in_use && to >= 1);
                if to != slots {
                    changes.push(now);
                }
                slots = to;
                let lately = changes.iter().filter(|at| now - **at <= 60.0).count();
                prop_assert!(lately <= MAX_CHANGES_PER_MINUTE + 1);
            }
        }
    }
}
