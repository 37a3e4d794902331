//! What queueing theory says of a space: a station that computes, a bounded buffer, and a station
//! that transmits.
//!
//! A job waits for the first station, is served there, and takes a slot; it gives the slot back
//! when the second station is done with it. Without a free slot it stays where it is, and the
//! first station stands still: blocking after service. Times are in seconds, rates per second.

/// Closer to one than this, the formula for equal rates is the better one.
const EQUAL: f64 = 1e-9;

/// Share of a station's rate up to which the formulas mean something in a window of seconds: closer
/// to saturation a queue takes longer to settle than anybody looks.
pub const MOST_LOAD: f64 = 0.97;

/// What one VM's jobs do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Jobs that arrive.
    pub arrivals: f64,
    /// Jobs that the first station can do.
    pub compute: f64,
    /// Jobs that the second station can do.
    pub transmit: f64,
    /// Squared coefficient of variation of the times between arrivals; 1 for a Poisson process.
    pub arrival_scv: f64,
    /// The same of the first station's service times; 1 for an exponential one.
    pub compute_scv: f64,
}

impl Flow {
    /// Poisson arrivals and exponential service.
    #[must_use]
    pub fn exponential(arrivals: f64, compute: f64, transmit: f64) -> Self {
        Self {
            arrivals,
            compute,
            transmit,
            arrival_scv: 1.0,
            compute_scv: 1.0,
        }
    }
}

/// The share of arrivals that find a queue with `places` places, the one in service included, full
/// (M/M/1/K), at `load` = arrivals / service.
#[must_use]
pub fn full(load: f64, places: u32) -> f64 {
    let places = f64::from(places);
    if load <= 0.0 {
        return 0.0;
    }
    if (load - 1.0).abs() < EQUAL {
        return 1.0 / (places + 1.0);
    }
    if load < 1.0 {
        let power = load.powf(places);
        return (1.0 - load) * power / (1.0 - power * load);
    }
    // The same, divided by load^places, which would overflow.
    let inverse = 1.0 / load;
    (1.0 - inverse) / (1.0 - inverse.powf(places + 1.0))
}

/// The rate that a space with so many slots can carry however many jobs arrive.
#[must_use]
pub fn saturation(flow: &Flow, slots: u32) -> f64 {
    flow.compute * (1.0 - full(flow.compute / flow.transmit, slots.saturating_add(1)))
}

/// The fewest slots, at most `most`, with which arrivals stay below what the space can carry by a
/// twentieth. `None` when memory cannot achieve that: a station is too slow.
#[must_use]
pub fn stable_slots(flow: &Flow, most: u32) -> Option<u32> {
    fewest(most, |slots| saturation(flow, slots) > flow.arrivals / 0.95)
}

/// The fewest slots from 1 to `most` for which something holds that holds for more slots too.
pub(crate) fn fewest(most: u32, holds: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (1, most);
    if most == 0 || !holds(most) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

/// The share of accepted jobs that find no slot when the first station is done with them.
#[must_use]
pub fn blocked(flow: &Flow, slots: u32) -> f64 {
    let load = offered(flow.arrivals / flow.transmit, slots.saturating_add(1));
    let accepted = 1.0 - full(load, slots.saturating_add(1));
    // The state with one place fewer in use than all: the next job takes the last.
    let last = full(load, slots.saturating_add(1)) / load.max(f64::MIN_POSITIVE);
    (last / accepted).clamp(0.0, 1.0)
}

/// The load that must be offered to a queue so that it accepts this one, which is below 1.
fn offered(accepted: f64, places: u32) -> f64 {
    let accepted = accepted.clamp(0.0, MOST_LOAD);
    let (mut low, mut high) = (accepted, 1.0);
    let carries = |load: f64| load * (1.0 - full(load, places)) >= accepted;
    while !carries(high) && high < 1e6 {
        high *= 2.0;
    }
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if carries(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// The mean time from a job's arrival until it has a slot, by decomposition: the first station is
/// an M/G/1 queue (Allen and Cunneen's for other arrivals) whose service is now and then prolonged
/// by the wait for a slot. Optimistic, by up to a fifth at moderate load and by half near saturation:
/// what is measured corrects it ([`crate::residual`]). Infinite when the queue grows for ever.
#[must_use]
pub fn completion(flow: &Flow, slots: u32) -> f64 {
    let Flow {
        arrivals,
        compute,
        transmit,
        ..
    } = *flow;
    let wait = blocked(flow, slots);
    let mean = 1.0 / compute + wait / transmit;
    let variance =
        flow.compute_scv / compute.powi(2) + (2.0 * wait - wait * wait) / transmit.powi(2);
    let load = arrivals * mean;
    if load >= 1.0 || arrivals >= saturation(flow, slots) {
        return f64::INFINITY;
    }
    let load = load.min(MOST_LOAD);
    let scv = variance / mean.powi(2);
    mean + load / (1.0 - load) * f64::midpoint(flow.arrival_scv, scv) * mean
}

/// The time that a share of jobs does not exceed, of a mean: exact for exponential times.
#[must_use]
pub fn quantile(mean: f64, share: f64) -> f64 {
    -(1.0 - share).ln() * mean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By counting: the stationary distribution of a birth-death chain.
    fn counted(load: f64, places: u32) -> f64 {
        let weights: Vec<f64> = (0..=places).map(|n| load.powf(f64::from(n))).collect();
        weights.last().unwrap() / weights.iter().sum::<f64>()
    }

    #[test]
    fn known_values() {
        assert!((full(1.0, 4) - 0.2).abs() < 1e-12);
        assert!((full(0.5, 1) - 1.0 / 3.0).abs() < 1e-12);
        // Heavy load: what is not served is lost.
        assert!((full(10.0, 50) - 0.9).abs() < 1e-12);
        let flow = Flow::exponential(0.7, 2.0, 0.9);
        // Many slots: the slower station is the bound.
        assert!((saturation(&flow, 200) - 0.9).abs() < 1e-6);
        assert_eq!(stable_slots(&Flow::exponential(1.0, 2.0, 0.9), 256), None);
        // Unlimited space: two M/M/1 queues, the first of which is left.
        let roomy = completion(&Flow::exponential(0.7, 2.0, 0.9), 4096);
        assert!((roomy - 1.0 / 1.3).abs() < 1e-3, "{roomy}");
        assert!((quantile(1.0, 0.95) - 2.9957).abs() < 1e-3);
    }

    #[test]
    fn decomposition_is_somewhat_below_the_exact_solution() {
        // 1.475 by the exact solution of the tandem.
        let time = completion(&Flow::exponential(0.7, 2.0, 0.9), 8);
        assert!((1.475 * 0.45..1.475).contains(&time), "{time}");
    }

    proptest! {
        #[test]
        fn full_agrees_with_counting(load in 0.01_f64..20.0, places in 1_u32..60) {
            prop_assert!((full(load, places) - counted(load, places)).abs() < 1e-9);
        }

        #[test]
        fn more_slots_never_hurt(
            arrivals in 0.1_f64..20.0, compute in 0.1_f64..20.0, transmit in 0.1_f64..20.0,
            slots in 1_u32..255,
        ) {
            let flow = Flow::exponential(arrivals, compute, transmit);
            prop_assert!(saturation(&flow, slots + 1) >= saturation(&flow, slots) - 1e-12);
            prop_assert!(full(arrivals / transmit, slots + 1) <= full(arrivals / transmit, slots));
            prop_assert!(blocked(&flow, slots + 1) <= blocked(&flow, slots) + 1e-9);
            let (fewer, more) = (completion(&flow, slots), completion(&flow, slots + 1));
            prop_assert!(more <= fewer * (1.0 + 1e-9), "{more} {fewer}");
        }

        #[test]
        fn time_has_no_unit(
            arrivals in 0.1_f64..0.9, compute in 1.0_f64..4.0, slots in 1_u32..64,
            scale in 0.01_f64..100.0,
        ) {
            let flow = Flow::exponential(arrivals, compute, 1.0);
            let scaled = Flow::exponential(arrivals * scale, compute * scale, scale);
            let (one, other) = (completion(&flow, slots), completion(&scaled, slots) * scale);
            prop_assert!(one == other || (one - other).abs() < 1e-6 * one, "{one} {other}");
        }

        #[test]
        fn fewest_is_the_first(threshold in 1_u32..300, most in 1_u32..300) {
            let found = fewest(most, |slots| slots >= threshold);
            prop_assert_eq!(found, (threshold <= most).then_some(threshold));
        }
    }
}
