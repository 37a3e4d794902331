//! How a host's budget of slots is shared: first what each VM needs, then what helps most.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Halvings of the range in which a stretch is sought.
const HALVINGS: u32 = 40;

/// The longest stretch.
const MOST_STRETCH: f64 = 1e4;

/// One VM's claim.
pub trait Claim {
    /// Slots that it must have whatever the others need: those in use, and the least of all.
    fn least(&self) -> u32;
    /// Its class: lower ones are served first.
    fn class(&self) -> u8;
    /// Slots for its objective, if that may take so many times as long.
    fn need(&self, stretch: f64) -> u32;
    /// What one slot more than these would bring it.
    fn gain(&self, slots: u32) -> f64;
}

/// The outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// By claim, what it is promised.
    pub floors: Vec<u32>,
    /// By claim, what it gets: its floor, and its part of what was left.
    pub slots: Vec<u32>,
    /// How many times as long everybody's objectives take, in the first class that had to wait.
    pub stretch: f64,
    /// What one more slot of budget would bring.
    pub price: f64,
}

/// Share `budget`, of which at most `promised` as floors. The claims' least are always granted.
#[must_use]
pub fn share(budget: u32, promised: u32, claims: &[impl Claim]) -> Shares {
    let (floors, stretch) = floors(promised, claims);
    let left = budget.saturating_sub(floors.iter().sum());
    let (slots, price) = fill(left, &floors, claims);
    Shares {
        floors,
        slots,
        stretch,
        price,
    }
}

/// Floors, class by class; everybody in the class that does not fit misses by the same factor.
fn floors(promised: u32, claims: &[impl Claim]) -> (Vec<u32>, f64) {
    let mut floors: Vec<u32> = claims.iter().map(Claim::least).collect();
    let mut left = promised.saturating_sub(floors.iter().sum());
    let mut classes: Vec<u8> = claims.iter().map(Claim::class).collect();
    classes.sort_unstable();
    classes.dedup();
    for class in classes {
        let member = |claim: &&_| Claim::class(*claim) == class;
        let extra = |stretch: f64| -> u32 {
            let members = claims.iter().filter(member);
            let extra = members.map(|claim| claim.need(stretch).saturating_sub(claim.least()));
            extra.fold(0, u32::saturating_add)
        };
        let stretch = fitting(left, &extra);
        for (floor, claim) in floors.iter_mut().zip(claims).filter(|(_, c)| member(c)) {
            let need = stretch.map_or(0, |stretch| claim.need(stretch));
            *floor = need.max(claim.least());
        }
        match stretch {
            Some(stretch) if stretch <= 1.0 => left -= extra(1.0).min(left),
            // Nothing is left for those behind.
            _ => return (floors, stretch.unwrap_or(MOST_STRETCH)),
        }
    }
    (floors, 1.0)
}

/// The smallest stretch with which the needs fit.
fn fitting(left: u32, extra: &impl Fn(f64) -> u32) -> Option<f64> {
    if extra(1.0) <= left {
        return Some(1.0);
    }
    let (mut low, mut high) = (1.0, MOST_STRETCH);
    if extra(high) > left {
        return None;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if extra(middle) <= left {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// An offer for one more slot.
struct Offer {
    gain: f64,
    claim: usize,
}

impl Ord for Offer {
    fn cmp(&self, other: &Self) -> Ordering {
        // Of equal gains, the first claim's: any rule will do that is one.
        let by_gain = self.gain.total_cmp(&other.gain);
        by_gain.then(other.claim.cmp(&self.claim))
    }
}

impl PartialOrd for Offer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Offer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Offer {}

/// Slot by slot to whom it helps most: optimal, as gains fall with slots. Also says what the next
/// one would bring.
fn fill(left: u32, floors: &[u32], claims: &[impl Claim]) -> (Vec<u32>, f64) {
    let mut slots = floors.to_vec();
    let offer = |claim: usize, slots: &[u32]| {
        let gain = claims.get(claim)?.gain(*slots.get(claim)?);
        (gain > 0.0).then_some(Offer { gain, claim })
    };
    let mut offers: BinaryHeap<Offer> = (0..claims.len())
        .filter_map(|claim| offer(claim, &slots))
        .collect();
    for _ in 0..left {
        let Some(best) = offers.pop() else { break };
        if let Some(slots) = slots.get_mut(best.claim) {
            *slots += 1;
        }
        offers.extend(offer(best.claim, &slots));
    }
    (slots, offers.peek().map_or(0.0, |offer| offer.gain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Needs `work / stretch` slots, and has ever less use for more.
    #[derive(Clone, Debug)]
    struct Simple {
        least: u32,
        class: u8,
        work: f64,
        weight: f64,
    }

    impl Claim for Simple {
        fn least(&self) -> u32 {
            self.least
        }
        fn class(&self) -> u8 {
            self.class
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small"
        )]
        fn need(&self, stretch: f64) -> u32 {
            (self.work / stretch).ceil() as u32
        }
        fn gain(&self, slots: u32) -> f64 {
            self.weight * 0.8_f64.powi(i32::try_from(slots).unwrap())
        }
    }

    fn claim(work: f64, class: u8) -> Simple {
        Simple {
            least: 2,
            class,
            work,
            weight: 1.0,
        }
    }

    #[test]
    fn everybody_of_a_class_misses_by_the_same_factor() {
        let shares = share(20, 20, &[claim(10.0, 0), claim(30.0, 0)]);
        assert!((shares.stretch - 2.0).abs() < 1e-3, "{}", shares.stretch);
        assert_eq!(shares.floors, [5, 15]);
    }

    #[test]
    fn who_comes_first_is_served_first() {
        let shares = share(20, 20, &[claim(30.0, 1), claim(12.0, 0)]);
        assert_eq!(shares.floors, [8, 12]);
        assert!(shares.stretch > 3.0);
    }

    fn simple() -> impl Strategy<Value = Simple> {
        (1_u32..5, 0_u8..3, 0.1_f64..60.0, 0.1_f64..10.0).prop_map(
            |(least, class, work, weight)| Simple {
                least,
                class,
                work,
                weight,
            },
        )
    }

    proptest! {
        #[test]
        fn budget_floors_and_order(
            claims in prop::collection::vec(simple(), 1..9), budget in 40_u32..200,
        ) {
            let shares = share(budget, budget, &claims);
            prop_assert!(shares.slots.iter().sum::<u32>() <= budget);
            for ((slots, floor), claim) in shares.slots.iter().zip(&shares.floors).zip(&claims) {
                prop_assert!(slots >= floor && *floor >= claim.least);
            }
            if shares.stretch <= 1.0 {
                for (floor, claim) in shares.floors.iter().zip(&claims) {
                    prop_assert!(*floor >= claim.need(1.0));
                }
            }
            // Nobody who got more than the floor values the last slot below the price.
            for ((slots, floor), claim) in shares.slots.iter().zip(&shares.floors).zip(&claims) {
                prop_assert!(slots == floor || claim.gain(slots - 1) >= shares.price - 1e-12);
            }
        }

        #[test]
        fn who_is_asked_first_does_not_matter(
            mut claims in prop::collection::vec(simple(), 1..7), budget in 40_u32..200,
        ) {
            let one = share(budget, budget, &claims);
            claims.reverse();
            let mut other = share(budget, budget, &claims);
            other.slots.reverse();
            other.floors.reverse();
            prop_assert_eq!(one.floors, other.floors);
            let off = one.slots.iter().zip(&other.slots).map(|(a, b)| a.abs_diff(*b)).max();
            prop_assert!(off <= Some(1), "equal gains aside");
        }
    }
}
