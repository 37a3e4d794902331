//! Send and receive rates of a port, in bytes and in frames.
//!
//! **Send rate.** Frames above the rate stay in the VM's ring: none is dropped, and the VM sees a slow
//! link. All rings of the port wait together, so that none starves another.
//!
//! **Receive rate.** Frames above the rate are dropped. Holding them back would hold back their senders,
//! and with them frames for other ports: one slow port would slow the others.

use std::time::{Duration, Instant};

use vhost::net_header::GSO_NONE;

use super::meter::Meter;
use super::rules::RateRules;
use crate::clock;
use crate::frame::Head;

/// The cost of a frame or of several frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    bytes: u64,
    frames: u64,
}

impl Cost {
    /// Returns the cost of this frame.
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

/// Returns the approximate number of segments of a frame: headers, which every segment repeats, are counted
/// once.
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

/// Enforces the rates of a port in one direction.
#[derive(Debug)]
pub struct Rates {
    bytes: Option<Meter>,
    frames: Option<Meter>,
    /// The origin of the meters' clock.
    start: Instant,
}

impl Rates {
    /// Creates the rates of these rules; returns `None` when they restrict nothing.
    #[must_use]
    pub fn new(rules: &RateRules) -> Option<Box<Self>> {
        let burst = Duration::from_millis(rules.burst_ms.into());
        let meter = |rate: Option<u64>| rate.map(|rate| Meter::new(rate, burst));
        let (bytes, frames) = (meter(rules.bytes), meter(rules.frames));
        let start = clock::now();
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

    /// Returns how long no frame may pass; `None` when a frame may pass now.
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

    /// Returns how many of these frames may pass now, in order. Charges nothing.
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

    /// Charges frames that have passed.
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
    fn within_charges_nothing() {
        let rates = rates(Some(1_000_000), None);
        for _ in 0..10 {
            assert_eq!(rates.within(rates.start, costs(1000)), 11);
        }
    }

    #[test]
    fn a_gso_frame_counts_as_its_segments() {
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
    fn rules_without_rates_need_no_meter() {
        assert!(Rates::new(&RateRules::default()).is_none());
    }
}
