//! The queueing model of a space: a tandem of a station that computes and a station that transmits, with a bounded buffer
//! between them.
//!
//! ```text
//!  arrivals   +---------+     +----------------+     +----------+
//! ----------> | compute | --> | slots (buffer) | --> | transmit | --> slot becomes free
//!   (queue)   +---------+     +----------------+     +----------+
//! ```
//!
//! A job queues for the first station, is served there, and takes a slot. The slot becomes free when the second station
//! has served the job. If no slot is free, the job stays in the first station and blocks it (blocking after service).
//! Times are in seconds, rates per second.

/// If the load differs from 1 by less than this, the formula for equal rates is more accurate.
const EQUAL_RATES_TOLERANCE: f64 = 1e-9;

/// The largest utilisation of a station for which the formulas hold within a window of seconds. Closer to saturation, a
/// queue takes longer than a window to reach its stationary distribution.
pub const MAX_LOAD: f64 = 0.97;

/// Rates and variations of one VM's jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Jobs that arrive per second.
    pub arrival_rate: f64,
    /// Jobs per second that the first station can serve.
    pub compute_rate: f64,
    /// Jobs per second that the second station can serve.
    pub transmit_rate: f64,
    /// Squared coefficient of variation of the times between arrivals; 1 for a Poisson process.
    pub arrival_scv: f64,
    /// Squared coefficient of variation of the first station's service times; 1 for exponential times.
    pub compute_scv: f64,
}

impl Flow {
    /// Returns a flow with Poisson arrivals and exponential service times.
    #[must_use]
    pub fn exponential(arrival_rate: f64, compute_rate: f64, transmit_rate: f64) -> Self {
        Self {
            arrival_rate,
            compute_rate,
            transmit_rate,
            arrival_scv: 1.0,
            compute_scv: 1.0,
        }
    }
}

/// Returns the fraction of arrivals that an M/M/1/K queue blocks: those that find all K = `capacity` positions, the one in
/// service included, occupied. `load` is arrival rate / service rate.
#[must_use]
pub fn blocking_probability(load: f64, capacity: u32) -> f64 {
    let capacity = f64::from(capacity);
    if load <= 0.0 {
        return 0.0;
    }
    if (load - 1.0).abs() < EQUAL_RATES_TOLERANCE {
        return 1.0 / (capacity + 1.0);
    }
    if load < 1.0 {
        let power = load.powf(capacity);
        return (1.0 - load) * power / (1.0 - power * load);
    }
    // The same formula divided by load^capacity, which would overflow.
    let inverse = 1.0 / load;
    (1.0 - inverse) / (1.0 - inverse.powf(capacity + 1.0))
}

/// Returns the throughput of a space with this many slots if jobs always wait for the first station.
#[must_use]
pub fn saturation_rate(flow: &Flow, slots: u32) -> f64 {
    flow.compute_rate
        * (1.0
            - blocking_probability(
                flow.compute_rate / flow.transmit_rate,
                slots.saturating_add(1),
            ))
}

/// Returns the fewest slots, at most `max_slots`, with which the arrival rate is below 95 % of the saturation throughput.
/// Returns `None` if no number of slots achieves that because a station is too slow.
#[must_use]
pub fn stable_slots(flow: &Flow, max_slots: u32) -> Option<u32> {
    smallest(max_slots, |slots| {
        saturation_rate(flow, slots) > flow.arrival_rate / 0.95
    })
}

/// Returns the smallest number from 1 to `max_slots` that satisfies `predicate`, by bisection. The predicate must be
/// monotonic: if it holds for a number, it holds for all larger ones.
pub(crate) fn smallest(max_slots: u32, predicate: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (1, max_slots);
    if max_slots == 0 || !predicate(max_slots) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if predicate(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

/// Returns the fraction of the accepted jobs that find no free slot when the first station has served them.
#[must_use]
pub fn blocked_fraction(flow: &Flow, slots: u32) -> f64 {
    let load = offered_load(
        flow.arrival_rate / flow.transmit_rate,
        slots.saturating_add(1),
    );
    let accepted = 1.0 - blocking_probability(load, slots.saturating_add(1));
    // The probability that all but one of the queue's positions are in use: the next job takes the last position.
    let last = blocking_probability(load, slots.saturating_add(1)) / load.max(f64::MIN_POSITIVE);
    (last / accepted).clamp(0.0, 1.0)
}

/// Returns the load to offer to a queue of this capacity so that it accepts the load `accepted`, which is below 1.
fn offered_load(accepted: f64, capacity: u32) -> f64 {
    let accepted = accepted.clamp(0.0, MAX_LOAD);
    let (mut low, mut high) = (accepted, 1.0);
    let carries = |load: f64| load * (1.0 - blocking_probability(load, capacity)) >= accepted;
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

/// Returns the mean time from a job's arrival until it has a slot.
///
/// The tandem is decomposed: the first station is an M/G/1 queue (for other arrivals, Allen and Cunneen's approximation)
/// whose service time sometimes includes the wait for a slot. The result is too low, by up to a fifth at moderate load and
/// by up to half near saturation; the measured residual corrects it ([`crate::residual`]). It is infinite if the queue
/// grows without bound.
#[must_use]
pub fn mean_time_to_slot(flow: &Flow, slots: u32) -> f64 {
    let Flow {
        arrival_rate,
        compute_rate,
        transmit_rate,
        ..
    } = *flow;
    let wait = blocked_fraction(flow, slots);
    let mean = 1.0 / compute_rate + wait / transmit_rate;
    let variance = flow.compute_scv / compute_rate.powi(2)
        + (2.0 * wait - wait * wait) / transmit_rate.powi(2);
    let load = arrival_rate * mean;
    if load >= 1.0 || arrival_rate >= saturation_rate(flow, slots) {
        return f64::INFINITY;
    }
    let load = load.min(MAX_LOAD);
    let scv = variance / mean.powi(2);
    mean + load / (1.0 - load) * f64::midpoint(flow.arrival_scv, scv) * mean
}

/// Returns the quantile `share` of a time with this mean. It is exact for exponentially distributed times.
#[must_use]
pub fn quantile(mean: f64, share: f64) -> f64 {
    -(1.0 - share).ln() * mean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computes the same probability from the stationary distribution of the birth-death chain.
    fn by_stationary_distribution(load: f64, capacity: u32) -> f64 {
        let weights: Vec<f64> = (0..=capacity).map(|n| load.powf(f64::from(n))).collect();
        weights.last().unwrap() / weights.iter().sum::<f64>()
    }

    #[test]
    fn known_values() {
        assert!((blocking_probability(1.0, 4) - 0.2).abs() < 1e-12);
        assert!((blocking_probability(0.5, 1) - 1.0 / 3.0).abs() < 1e-12);
        // Under heavy load, the jobs that are not served are lost.
        assert!((blocking_probability(10.0, 50) - 0.9).abs() < 1e-12);
        let flow = Flow::exponential(0.7, 2.0, 0.9);
        // With many slots, the slower station bounds the throughput.
        assert!((saturation_rate(&flow, 200) - 0.9).abs() < 1e-6);
        assert_eq!(stable_slots(&Flow::exponential(1.0, 2.0, 0.9), 256), None);
        // With unlimited slots the first station is an M/M/1 queue of its own.
        let unlimited = mean_time_to_slot(&Flow::exponential(0.7, 2.0, 0.9), 4096);
        assert!((unlimited - 1.0 / 1.3).abs() < 1e-3, "{unlimited}");
        assert!((quantile(1.0, 0.95) - 2.9957).abs() < 1e-3);
    }

    #[test]
    fn decomposition_is_somewhat_below_the_exact_solution() {
        // The exact solution of the tandem is 1.475 s.
        let time = mean_time_to_slot(&Flow::exponential(0.7, 2.0, 0.9), 8);
        assert!((1.475 * 0.45..1.475).contains(&time), "{time}");
    }

    proptest! {
        #[test]
        fn blocking_probability_matches_the_stationary_distribution(load in 0.01_f64..20.0, capacity in 1_u32..60) {
            prop_assert!((blocking_probability(load, capacity) - by_stationary_distribution(load, capacity)).abs() < 1e-9);
        }

        #[test]
        fn more_slots_never_hurt(
            arrival_rate in 0.1_f64..20.0, compute_rate in 0.1_f64..20.0, transmit_rate in 0.1_f64..20.0,
            slots in 1_u32..255,
        ) {
            let flow = Flow::exponential(arrival_rate, compute_rate, transmit_rate);
            prop_assert!(saturation_rate(&flow, slots + 1) >= saturation_rate(&flow, slots) - 1e-12);
            prop_assert!(blocking_probability(arrival_rate / transmit_rate, slots + 1) <= blocking_probability(arrival_rate / transmit_rate, slots));
            prop_assert!(blocked_fraction(&flow, slots + 1) <= blocked_fraction(&flow, slots) + 1e-9);
            let (fewer, more) = (mean_time_to_slot(&flow, slots), mean_time_to_slot(&flow, slots + 1));
            prop_assert!(more <= fewer * (1.0 + 1e-9), "{more} {fewer}");
        }

        #[test]
        fn time_has_no_unit(
            arrival_rate in 0.1_f64..0.9, compute_rate in 1.0_f64..4.0, slots in 1_u32..64,
            scale in 0.01_f64..100.0,
        ) {
            let flow = Flow::exponential(arrival_rate, compute_rate, 1.0);
            let scaled = Flow::exponential(arrival_rate * scale, compute_rate * scale, scale);
            let (one, other) = (mean_time_to_slot(&flow, slots), mean_time_to_slot(&scaled, slots) * scale);
            prop_assert!(one == other || (one - other).abs() < 1e-6 * one, "{one} {other}");
        }

        #[test]
        fn fewest_is_the_first(threshold in 1_u32..300, max_slots in 1_u32..300) {
            let found = smallest(max_slots, |slots| slots >= threshold);
            prop_assert_eq!(found, (threshold <= max_slots).then_some(threshold));
        }
    }
}
