//! What a port may send and receive in a second, in bytes and in frames.
//!
//! **Sending** over the limit holds the frames back in the VM's ring: nothing is lost, and the VM
//! sees a slow link. All of the port's rings wait together, so that none starves another.
//!
//! **Receiving** over the limit loses frames. Holding them back would be holding back their
//! senders, with whatever they have for others: one slow port would slow its neighbours.

use std::time::{Duration, Instant};

use vhost::net_header::GSO_NONE;

use super::meter::Meter;
use super::rules::RateRules;
use crate::frame::Head;

/// What a frame counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    bytes: u64,
    frames: u64,
}

impl Cost {
    /// Of this frame.
    #[inline]
    #[must_use]
    pub fn of(head: &Head) -> Self {
        Self {
            bytes: head.length.into(),
            frames: segments(head),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            frames: self.frames + other.frames,
        }
    }
}

/// About how many frames this one is cut into: their headers, which each of them has again, are
/// counted as if they were there once.
#[inline]
pub(super) fn segments(head: &Head) -> u64 {
    let header = head.header();
    match header.gso_type {
        GSO_NONE => 1,
        _ => u64::from(
            head.length
                .div_ceil(u32::from(header.gso_size).max(1))
                .max(1),
        ),
    }
}

/// The rates of a port in one direction, at work.
#[derive(Debug)]
pub struct Rates {
    bytes: Option<Meter>,
    frames: Option<Meter>,
    /// From when on time is counted.
    start: Instant,
}

impl Rates {
    /// For these rules; `None` when they ask for nothing.
    #[must_use]
    pub fn new(rules: &RateRules) -> Option<Box<Self>> {
        let burst = Duration::from_millis(rules.burst_ms.into());
        let meter = |rate: Option<u64>| rate.map(|rate| Meter::new(rate, burst));
        let (bytes, frames) = (meter(rules.bytes), meter(rules.frames));
        let start = Instant::now();
        (bytes.is_some() || frames.is_some()).then(|| {
            Box::new(Self {
                bytes,
                frames,
                start,
            })
        })
    }

    fn clock(&self, now: Instant) -> u64 {
        let time = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// How long nothing may pass; `None` when something may now.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let wait = self.wait_after(self.clock(now), Cost::default());
        (wait > 0).then(|| Duration::from_nanos(wait))
    }

    fn wait_after(&self, now: u64, cost: Cost) -> u64 {
        let bytes = self.bytes.as_ref();
        let frames = self.frames.as_ref();
        let bytes = bytes.map_or(0, |meter| meter.wait_after(now, cost.bytes));
        let frames = frames.map_or(0, |meter| meter.wait_after(now, cost.frames));
        bytes.max(frames)
    }

    /// How many of these frames may pass now, one after another.
    pub fn within(&self, now: Instant, frames: impl Iterator<Item = Cost>) -> usize {
        let now = self.clock(now);
        let mut sum = Cost::default();
        let mut may_pass = |cost: &Cost| {
            let open = self.wait_after(now, sum) == 0;
            sum = sum.plus(*cost);
            open
        };
        frames.take_while(|cost| may_pass(cost)).count()
    }

    /// These frames have passed.
    pub fn charge(&self, now: Instant, frames: impl Iterator<Item = Cost>) {
        let now = self.clock(now);
        let sum = frames.fold(Cost::default(), Cost::plus);
        for (meter, units) in [(&self.bytes, sum.bytes), (&self.frames, sum.frames)] {
            if let Some(meter) = meter {
                meter.charge(now, units);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vhost::net_header::{GSO_TCPV4, NEEDS_CSUM, NetHeader};

    use super::*;

    fn rates(bytes: Option<u64>, frames: Option<u64>) -> Box<Rates> {
        let rules = RateRules {
            bytes,
            frames,
            burst_ms: 10,
        };
        Rates::new(&rules).unwrap()
    }

    fn costs(bytes: u64) -> impl Iterator<Item = Cost> {
        std::iter::repeat_n(Cost { bytes, frames: 1 }, 1000)
    }

    #[test]
    fn the_stricter_of_both_rates_counts() {
        // In 10 ms: 10,000 bytes, or 20 frames.
        for (rates, expected) in [
            (rates(Some(1_000_000), None), 11),
            (rates(None, Some(2000)), 21),
            (rates(Some(1_000_000), Some(2000)), 11),
            (rates(Some(1_000_000), Some(500)), 6),
        ] {
            let now = rates.start;
            assert_eq!(rates.wait(now), None);
            assert_eq!(rates.within(now, costs(1000)), expected);
            rates.charge(now, costs(1000).take(expected));
            assert_eq!(rates.within(now, costs(1000)), 0);
            let wait = rates.wait(now).unwrap();
            assert_eq!(rates.wait(now + wait), None);
            assert_eq!(rates.within(now + wait, costs(1000)), 1);
        }
    }

    #[test]
    fn what_is_asked_about_costs_nothing() {
        let rates = rates(Some(1_000_000), None);
        for _ in 0..10 {
            assert_eq!(rates.within(rates.start, costs(1000)), 11);
        }
    }

    #[test]
    fn a_frame_to_be_cut_counts_as_its_parts() {
        let head = |length: usize, gso_type, gso_size| {
            let header = NetHeader {
                flags: NEEDS_CSUM,
                gso_type,
                gso_size,
                ..NetHeader::NONE
            };
            Cost::of(&Head::of_private(header, &vec![0; length]).unwrap().0)
        };
        let cost = |bytes, frames| Cost { bytes, frames };
        assert_eq!(head(64_000, GSO_TCPV4, 1448), cost(64_000, 45));
        assert_eq!(head(64_000, GSO_TCPV4, 1), cost(64_000, 64_000));
        assert_eq!(head(64_000, GSO_TCPV4, 0), cost(64_000, 64_000));
        assert_eq!(head(1500, GSO_NONE, 1448), cost(1500, 1));
    }

    #[test]
    fn rules_that_ask_for_nothing_cost_nothing() {
        assert!(Rates::new(&RateRules::default()).is_none());
    }
}
