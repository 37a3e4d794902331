//! Divides a host's budget of slots among its VMs.
//!
//! [`allocate`] works in two steps. First each claim gets a floor: the slots that its objective requires. Classes are
//! served in ascending order. If the floors of a class do not fit, all objectives of that class are multiplied by the
//! same factor, the stretch. Then the slots that remain go one by one to the claim with the largest marginal gain.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Bisection steps in the search for the smallest stretch.
const BISECTION_STEPS: u32 = 40;

/// The largest stretch that is tried.
const MAX_STRETCH: f64 = 1e4;

/// The slots that one VM claims.
pub trait Claim {
    /// Returns the slots that this claim gets in any case: those in use, and at least the configured minimum.
    fn min_slots(&self) -> u32;
    /// Returns the class. Lower classes are served first.
    fn class(&self) -> u8;
    /// Returns the slots required to meet the objective after its times are multiplied by `stretch`.
    fn required(&self, stretch: f64) -> u32;
    /// Returns the gain of one slot in addition to `slots`. It must not rise with `slots`.
    fn marginal_gain(&self, slots: u32) -> f64;
}

/// The result of [`allocate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// The floor of each claim, in the order of the claims.
    pub floors: Vec<u32>,
    /// The slots of each claim: its floor, and its part of the slots that remained.
    pub slots: Vec<u32>,
    /// The factor by which the objectives of the first class that did not fit are multiplied; 1 if all classes fit.
    pub stretch: f64,
    /// The marginal gain of one more slot of budget (the shadow price).
    pub price: f64,
}

/// Divides `budget` among `claims`. Floors take at most `floor_budget` of it, except that the minimum of each claim is
/// always granted.
#[must_use]
pub fn allocate(budget: u32, floor_budget: u32, claims: &[impl Claim]) -> Allocation {
    let (floors, stretch) = floors(floor_budget, claims);
    let remaining = budget.saturating_sub(floors.iter().sum());
    let (slots, price) = distribute(remaining, &floors, claims);
    Allocation {
        floors,
        slots,
        stretch,
        price,
    }
}

/// Returns the floors, and the stretch of the first class that does not fit. Classes behind it get their minimum.
fn floors(floor_budget: u32, claims: &[impl Claim]) -> (Vec<u32>, f64) {
    let mut floors: Vec<u32> = claims.iter().map(Claim::min_slots).collect();
    let mut remaining = floor_budget.saturating_sub(floors.iter().sum());
    let mut classes: Vec<u8> = claims.iter().map(Claim::class).collect();
    classes.sort_unstable();
    classes.dedup();
    for class in classes {
        let in_class = |claim: &&_| Claim::class(*claim) == class;
        let extra = |stretch: f64| -> u32 {
            let of_class = claims.iter().filter(in_class);
            let extra =
                of_class.map(|claim| claim.required(stretch).saturating_sub(claim.min_slots()));
            extra.fold(0, u32::saturating_add)
        };
        let stretch = smallest_stretch(remaining, &extra);
        for (floor, claim) in floors.iter_mut().zip(claims).filter(|(_, c)| in_class(c)) {
            let required = stretch.map_or(0, |stretch| claim.required(stretch));
            *floor = required.max(claim.min_slots());
        }
        match stretch {
            Some(stretch) if stretch <= 1.0 => remaining -= extra(1.0).min(remaining),
            // No slots remain for the classes behind this one.
            _ => return (floors, stretch.unwrap_or(MAX_STRETCH)),
        }
    }
    (floors, 1.0)
}

/// Returns the smallest stretch with which the `extra` slots fit into `remaining`, or `None` if none up to
/// [`MAX_STRETCH`] does.
fn smallest_stretch(remaining: u32, extra: &impl Fn(f64) -> u32) -> Option<f64> {
    if extra(1.0) <= remaining {
        return Some(1.0);
    }
    let (mut low, mut high) = (1.0, MAX_STRETCH);
    if extra(high) > remaining {
        return None;
    }
    for _ in 0..BISECTION_STEPS {
        let middle = f64::midpoint(low, high);
        if extra(middle) <= remaining {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// A claim's bid for one more slot.
struct Bid {
    gain: f64,
    claim: usize,
}

impl Ord for Bid {
    fn cmp(&self, other: &Self) -> Ordering {
        // Of equal gains the first claim wins. Any rule would do, but the order must be total.
        let by_gain = self.gain.total_cmp(&other.gain);
        by_gain.then(other.claim.cmp(&self.claim))
    }
}

impl PartialOrd for Bid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bid {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Bid {}

/// Gives the remaining slots one by one to the claim with the largest marginal gain. This greedy order is optimal because
/// marginal gains fall with slots. Also returns the gain of the next slot.
fn distribute(remaining: u32, floors: &[u32], claims: &[impl Claim]) -> (Vec<u32>, f64) {
    let mut slots = floors.to_vec();
    let bid = |claim: usize, slots: &[u32]| {
        let gain = claims.get(claim)?.marginal_gain(*slots.get(claim)?);
        (gain > 0.0).then_some(Bid { gain, claim })
    };
    let mut bids: BinaryHeap<Bid> = (0..claims.len())
        .filter_map(|claim| bid(claim, &slots))
        .collect();
    for _ in 0..remaining {
        let Some(best) = bids.pop() else { break };
        if let Some(slots) = slots.get_mut(best.claim) {
            *slots += 1;
        }
        bids.extend(bid(best.claim, &slots));
    }
    (slots, bids.peek().map_or(0.0, |bid| bid.gain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Requires `work / stretch` slots. Its marginal gain falls with each slot.
    #[derive(Clone, Debug)]
    struct TestClaim {
        min_slots: u32,
        class: u8,
        work: f64,
        weight: f64,
    }

    impl Claim for TestClaim {
        fn min_slots(&self) -> u32 {
            self.min_slots
        }
        fn class(&self) -> u8 {
            self.class
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small"
        )]
        fn required(&self, stretch: f64) -> u32 {
            (self.work / stretch).ceil() as u32
        }
        fn marginal_gain(&self, slots: u32) -> f64 {
            self.weight * 0.8_f64.powi(i32::try_from(slots).unwrap())
        }
    }

    fn claim(work: f64, class: u8) -> TestClaim {
        TestClaim {
            min_slots: 2,
            class,
            work,
            weight: 1.0,
        }
    }

    #[test]
    fn all_claims_of_a_class_are_stretched_by_the_same_factor() {
        let allocation = allocate(20, 20, &[claim(10.0, 0), claim(30.0, 0)]);
        assert!(
            (allocation.stretch - 2.0).abs() < 1e-3,
            "{}",
            allocation.stretch
        );
        assert_eq!(allocation.floors, [5, 15]);
    }

    #[test]
    fn the_lower_class_is_served_first() {
        let allocation = allocate(20, 20, &[claim(30.0, 1), claim(12.0, 0)]);
        assert_eq!(allocation.floors, [8, 12]);
        assert!(allocation.stretch > 3.0);
    }

    fn test_claim() -> impl Strategy<Value = TestClaim> {
        (1_u32..5, 0_u8..3, 0.1_f64..60.0, 0.1_f64..10.0).prop_map(
            |(min_slots, class, work, weight)| TestClaim {
                min_slots,
                class,
                work,
                weight,
            },
        )
    }

    proptest! {
        #[test]
        fn the_budget_the_floors_and_the_marginal_gains_are_respected(
            claims in prop::collection::vec(test_claim(), 1..9), budget in 40_u32..200,
        ) {
            let allocation = allocate(budget, budget, &claims);
            prop_assert!(allocation.slots.iter().sum::<u32>() <= budget);
            for ((slots, floor), claim) in allocation.slots.iter().zip(&allocation.floors).zip(&claims) {
                prop_assert!(slots >= floor && *floor >= claim.min_slots);
            }
            if allocation.stretch <= 1.0 {
                for (floor, claim) in allocation.floors.iter().zip(&claims) {
                    prop_assert!(*floor >= claim.required(1.0));
                }
            }
            // For each claim above its floor, the last slot gained at least the price.
            for ((slots, floor), claim) in allocation.slots.iter().zip(&allocation.floors).zip(&claims) {
                prop_assert!(slots == floor || claim.marginal_gain(slots - 1) >= allocation.price - 1e-12);
            }
        }

        #[test]
        fn the_order_of_the_claims_does_not_matter(
            mut claims in prop::collection::vec(test_claim(), 1..7), budget in 40_u32..200,
        ) {
            let forward = allocate(budget, budget, &claims);
            claims.reverse();
            let mut reversed = allocate(budget, budget, &claims);
            reversed.slots.reverse();
            reversed.floors.reverse();
            prop_assert_eq!(forward.floors, reversed.floors);
            let difference = forward.slots.iter().zip(&reversed.slots).map(|(a, b)| a.abs_diff(*b)).max();
            prop_assert!(difference <= Some(1), "more than one slot apart, which equal gains do not explain");
        }
    }
}
