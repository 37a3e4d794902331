//! Limits how often and how far the slow loop resizes a space: a dead band, repeated requests before a shrink, a hold time
//! after a shrink, and a limit on changes per minute. No space shrinks below the slots in use.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Consecutive requests to shrink that are required before a shrink.
const SHRINK_AGREEMENTS: u32 = 3;

/// Fraction of a space that a change must exceed.
const DEAD_BAND: f64 = 0.1;

/// Smallest fraction of a space that remains after one shrink.
const MIN_KEPT_FRACTION: f64 = 0.7;

/// Longest hold time after a shrink, in seconds.
const MAX_SHRINK_HOLD: f64 = 60.0;

/// Most changes of a space within a minute.
const MAX_CHANGES_PER_MINUTE: usize = 6;

/// Why a space was resized or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// It grew to meet its objective.
    GrowSlo,
    /// It grew because writes wait for slots now.
    GrowBlocked,
    /// It shrank because it had more slots than it needs.
    ShrinkSlack,
    /// It shrank because another space needs the slots now.
    ShrinkLent,
    /// The change is within the dead band.
    HoldDeadband,
    /// It was resized too often within the last minute.
    HoldChurn,
    /// It will shrink if the next requests agree.
    HoldAgree,
    /// The model predicts no improvement from more slots.
    HoldNoLeverage,
    /// No slots of the budget are free.
    HoldBudget,
    /// The host is short of memory, so nothing grows.
    HoldPressure,
    /// There are too few measurements for a prediction.
    HoldUnknown,
    /// The guest or the network is too slow; no number of slots meets the objective.
    NotAMemoryProblem,
    /// The model was wrong in too many rounds; only the fast loop acts.
    Degraded,
}

/// The state of the policy for one space.
#[derive(Clone, Debug)]
pub(crate) struct ResizePolicy {
    shrink_requests: u32,
    shrink_hold: f64,
    no_shrink_before: f64,
    changes: VecDeque<f64>,
}

/// A request of the slow loop to resize a space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResizeRequest {
    pub(crate) slots: u32,
    pub(crate) target: u32,
    /// Slots that cannot be reclaimed.
    pub(crate) in_use: u32,
    pub(crate) blocked: bool,
}

impl ResizePolicy {
    /// Creates the policy of a slow loop with this period in seconds.
    pub(crate) fn new(period: f64) -> Self {
        Self {
            shrink_requests: 0,
            shrink_hold: 3.0 * period,
            no_shrink_before: 0.0,
            changes: VecDeque::new(),
        }
    }

    /// Decides on a request at `now` and returns the number of slots and the reason.
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
                // The space grows within the hold time, so the last shrink was wrong: double the hold time.
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
