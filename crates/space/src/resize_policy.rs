//! How fast a space may change: not at every whim, and never below what is in use.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Wishes to shrink that must agree.
const AGREEING: u32 = 3;

/// Share of a space that a change must exceed.
const DEAD_BAND: f64 = 0.1;

/// Most of a space that is given back at once.
const LEAST_KEPT: f64 = 0.7;

/// Longest time without a shrink, in seconds.
const LONGEST_HOLD: f64 = 60.0;

/// Changes a minute.
const CHURN: usize = 6;

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
    agreeing: u32,
    hold: f64,
    hold_until: f64,
    changes: VecDeque<f64>,
}

/// What is known when a change is wished for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) slots: u32,
    pub(crate) wanted: u32,
    /// Slots that cannot be given back.
    pub(crate) used: u32,
    pub(crate) blocked: bool,
}

impl ResizePolicy {
    /// For a loop with this period.
    pub(crate) fn new(period: f64) -> Self {
        Self {
            agreeing: 0,
            hold: 3.0 * period,
            hold_until: 0.0,
            changes: VecDeque::new(),
        }
    }

    /// What a wish comes to.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a u32"
    )]
    pub(crate) fn allow(&mut self, now: f64, wish: Wish) -> (u32, Reason) {
        let Wish { slots, wanted, .. } = wish;
        let band = (f64::from(slots) * DEAD_BAND).max(1.0);
        let small = f64::from(wanted.abs_diff(slots)) <= band;
        if wanted == slots || small && !(wish.blocked && wanted > slots) {
            self.agreeing = 0;
            return (slots, Reason::HoldDeadband);
        }
        while self.changes.front().is_some_and(|at| now - at > 60.0) {
            self.changes.pop_front();
        }
        if self.changes.len() >= CHURN {
            return (slots, Reason::HoldChurn);
        }
        if wanted > slots {
            self.agreeing = 0;
            if now < self.hold_until {
                // It was wrong to shrink.
                self.hold = (self.hold * 2.0).min(LONGEST_HOLD);
                self.hold_until = now + self.hold;
            }
            self.changes.push_back(now);
            let reason = match wish.blocked {
                true => Reason::GrowBlocked,
                false => Reason::GrowSlo,
            };
            return (wanted.min(slots.saturating_mul(2)), reason);
        }
        self.agreeing += 1;
        if self.agreeing < AGREEING || now < self.hold_until {
            return (slots, Reason::HoldAgree);
        }
        let kept = (f64::from(slots) * LEAST_KEPT).ceil() as u32;
        let to = wanted.max(kept).max(wish.used);
        if to >= slots {
            return (slots, Reason::HoldDeadband);
        }
        self.agreeing = 0;
        self.hold_until = now + self.hold;
        self.changes.push_back(now);
        (to, Reason::ShrinkSlack)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wish(slots: u32, wanted: u32) -> Wish {
        Wish {
            slots,
            wanted,
            used: 0,
            blocked: false,
        }
    }

    #[test]
    fn growth_is_at_once_and_at_most_double_and_shrinking_needs_three_who_agree() {
        let mut pace = ResizePolicy::new(5.0);
        assert_eq!(pace.allow(0.0, wish(10, 50)), (20, Reason::GrowSlo));
        assert_eq!(pace.allow(5.0, wish(20, 10)), (20, Reason::HoldAgree));
        assert_eq!(pace.allow(10.0, wish(20, 10)), (20, Reason::HoldAgree));
        assert_eq!(pace.allow(15.0, wish(20, 10)), (14, Reason::ShrinkSlack));
        assert_eq!(pace.allow(20.0, wish(14, 13)), (14, Reason::HoldDeadband));
    }

    #[test]
    fn what_is_blocked_grows_by_one_too() {
        let blocked = Wish {
            blocked: true,
            ..wish(20, 21)
        };
        assert_eq!(
            ResizePolicy::new(5.0).allow(0.0, blocked),
            (21, Reason::GrowBlocked)
        );
    }

    proptest! {
        #[test]
        fn never_below_what_is_used_nor_too_often(
            steps in prop::collection::vec((1_u32..100, 0_u32..60, any::<bool>()), 1..300),
        ) {
            let mut pace = ResizePolicy::new(5.0);
            let mut slots = 60;
            let mut changes: Vec<f64> = Vec::new();
            for (step, (wanted, used, blocked)) in steps.into_iter().enumerate() {
                let now = f64::from(u32::try_from(step).unwrap()) * 5.0;
                let used = used.min(slots);
                let (to, _) = pace.allow(now, Wish { slots, wanted, used, blocked });
                prop_assert!(to >= used && to >= 1);
                if to != slots {
                    changes.push(now);
                }
                slots = to;
                let lately = changes.iter().filter(|at| now - **at <= 60.0).count();
                prop_assert!(lately <= CHURN + 1);
            }
        }
    }
}
