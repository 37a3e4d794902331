//! Storm control: limits the flooded frames of a port, which are broadcast and multicast frames and frames
//! with an unknown destination.
//!
//! Each flooded frame costs the worker one copy for each port, and each VM an interrupt. A frame above the
//! limit is dropped and counted. A port that exceeds a limit in [`STORM_SECONDS`] consecutive seconds is in a
//! storm, which is reported until the port has stayed within its limits for [`STORM_CLEAR_SECONDS`] seconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::meter::Meter;
use super::rates::segments;
use super::rules::FloodRules;
use crate::clock;
use crate::control::DropReason;
use crate::frame::Head;
use crate::limits::{STORM_CLEAR_SECONDS, STORM_SECONDS};
use crate::mac::Mac;

/// Why a frame is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloodKind {
    /// The destination is the broadcast address.
    Broadcast,
    /// The destination is a multicast group.
    Multicast,
    /// The FDB has no entry for the destination.
    Unknown,
}

impl FloodKind {
    /// Returns why frames for this address are flooded.
    pub(super) fn of(destination: Mac) -> Self {
        match destination {
            Mac::BROADCAST => Self::Broadcast,
            group if group.is_group() => Self::Multicast,
            _ => Self::Unknown,
        }
    }

    fn reason(self) -> DropReason {
        match self {
            Self::Broadcast => DropReason::BroadcastLimit,
            Self::Multicast => DropReason::MulticastLimit,
            Self::Unknown => DropReason::UnknownLimit,
        }
    }
}

/// Enforces the [`FloodRules`] of a port.
#[derive(Debug)]
pub struct Floods {
    broadcast: Option<Meter>,
    multicast: Option<Meter>,
    unknown: Option<Meter>,
    start: Instant,
    /// The seconds in which the present excess began (upper half) and was last seen (lower half).
    excess: AtomicU64,
}

impl Default for Floods {
    fn default() -> Self {
        Self::new(&FloodRules::default())
    }
}

impl Floods {
    /// Creates the limits of a port with these rules.
    #[must_use]
    pub fn new(rules: &FloodRules) -> Self {
        let second = Duration::from_secs(1);
        let meter = |rate: Option<u64>| rate.map(|rate| Meter::new(rate, second));
        Self {
            broadcast: meter(rules.broadcast),
            multicast: meter(rules.multicast),
            unknown: meter(rules.unknown),
            start: clock::now(),
            excess: AtomicU64::new(u64::MAX),
        }
    }

    /// Checks whether a frame may be flooded now, and charges it. `seconds` is the time for the detection of
    /// storms.
    ///
    /// # Errors
    /// The frame exceeds a limit.
    pub fn admit(&self, head: &Head, now: Instant, seconds: u32) -> Result<(), DropReason> {
        let why = FloodKind::of(head.destination());
        let meter = match why {
            FloodKind::Broadcast => &self.broadcast,
            FloodKind::Multicast => &self.multicast,
            FloodKind::Unknown => &self.unknown,
        };
        let Some(meter) = meter else { return Ok(()) };
        let time = now.saturating_duration_since(self.start).as_nanos();
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        if meter.take(time, segments(head)) {
            return Ok(());
        }
        self.note_excess(seconds);
        Err(why.reason())
    }

    fn excess(&self) -> (u32, u32) {
        let both = self.excess.load(Ordering::Relaxed);
        // The upper and the lower half of the word.
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        (half(both >> 32), half(both))
    }

    fn note_excess(&self, now: u32) {
        let (begin, last) = self.excess();
        // A second without excess begins a new excess.
        let begin = if now.wrapping_sub(last) > 1 {
            now
        } else {
            begin
        };
        let both = u64::from(begin) << 32 | u64::from(now);
        self.excess.store(both, Ordering::Relaxed);
    }

    /// Returns whether the port is in a storm.
    #[must_use]
    pub fn is_storm(&self, now: u32) -> bool {
        let (begin, last) = self.excess();
        last.wrapping_sub(begin) >= STORM_SECONDS && now.wrapping_sub(last) <= STORM_CLEAR_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use vhost::net_header::{GSO_TCPV4, NEEDS_CSUM, NetHeader};

    use super::*;

    fn head(destination: [u8; 6]) -> Head {
        let bytes = [&destination[..], &[2, 0, 0, 0, 0, 1, 8, 0], &[0; 50]].concat();
        Head::of_private(NetHeader::NONE, &bytes).unwrap().0
    }

    const TO: [[u8; 6]; 3] = [[0xff; 6], [1, 0, 0x5e, 1, 2, 3], [2, 0, 0, 0, 0, 9]];

    #[test]
    fn each_kind_has_its_own_limit() {
        let rules = FloodRules {
            broadcast: Some(5),
            multicast: Some(8),
            unknown: None,
        };
        let floods = Floods::new(&rules);
        let now = floods.start;
        for (to, most, reason) in [
            (TO[0], 6, Some(DropReason::BroadcastLimit)),
            (TO[1], 9, Some(DropReason::MulticastLimit)),
            (TO[2], 100, None),
        ] {
            let outcomes: Vec<_> = (0..100).map(|_| floods.admit(&head(to), now, 0)).collect();
            assert_eq!(outcomes.iter().filter(|done| done.is_ok()).count(), most);
            assert_eq!(outcomes[99].err(), reason);
        }
        let unknown = FloodRules {
            unknown: Some(1),
            ..FloodRules::default()
        };
        let floods = Floods::new(&unknown);
        let outcomes = [(); 3].map(|()| floods.admit(&head(TO[2]), now, 0));
        assert_eq!(outcomes, [Ok(()), Ok(()), Err(DropReason::UnknownLimit)]);
    }

    #[test]
    fn a_gso_frame_counts_as_its_segments() {
        let header = NetHeader {
            flags: NEEDS_CSUM,
            gso_type: GSO_TCPV4,
            gso_size: 1000,
            ..NetHeader::NONE
        };
        let mut bytes = vec![0; 10_000];
        bytes[..6].fill(0xff);
        let (head, _) = Head::of_private(header, &bytes).unwrap();
        let floods = Floods::new(&FloodRules {
            broadcast: Some(20),
            ..FloodRules::default()
        });
        let now = floods.start;
        let passed = (0..10).filter(|_| floods.admit(&head, now, 0).is_ok());
        assert_eq!(passed.count(), 3);
    }

    #[test]
    fn an_excess_that_lasts_is_a_storm_until_it_has_ended_for_some_time() {
        let floods = Floods::default();
        assert!(!floods.is_storm(0));
        let begin = 100;
        for second in begin..begin + STORM_SECONDS {
            floods.note_excess(second);
            assert!(!floods.is_storm(second), "{second}");
        }
        let last = begin + STORM_SECONDS;
        floods.note_excess(last);
        assert!(floods.is_storm(last));
        assert!(floods.is_storm(last + STORM_CLEAR_SECONDS));
        assert!(!floods.is_storm(last + STORM_CLEAR_SECONDS + 1));
        // An excess in every second second is no storm.
        for second in 0..60 {
            floods.note_excess(1000 + 2 * second);
            assert!(!floods.is_storm(1000 + 2 * second));
        }
    }

    #[test]
    fn there_is_no_storm_at_the_start() {
        for begin in [0, 1, 2] {
            let floods = Floods::default();
            floods.note_excess(begin);
            assert!(!floods.is_storm(begin));
        }
    }
}
