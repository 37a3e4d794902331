//! Frames held back because their receiver has no room: the lossless part of the switch.
//!
//! Chains go back to the driver in the order it made them available, always: so whoever goes on
//! with a ring after us, be it another process or another host, can go on behind the used index.
//! A frame for a full receiver
//! - **stays in the ring** while nothing at hand behind it goes elsewhere: no copy, and the
//!   sender feels the receiver's pace;
//! - is **set aside** ([`Deferred`]) when something does.
//!
//! What keeps one slow receiver from stopping everybody:
//! - **share**: what is set aside is bounded; past that the ring stalls, and a stall is bounded;
//! - **time**: a receiver that takes nothing for [`STUCK_TIMEOUT`] is stuck; frames to it are dropped until
//!   it takes buffers again. A ring that stalls for [`STUCK_TIMEOUT`] drops what is in the way instead,
//!   until half of what is set aside has gone: so even a receiver that takes one buffer now and
//!   then slows a sender for a moment only.

use std::time::Instant;

use arrayvec::ArrayVec;

use crate::deferred::Deferred;
use crate::limits::{BURST, STUCK_TIMEOUT};

/// The receivers that had no room in a burst.
pub type Full = ArrayVec<u16, { BURST as usize }>;

/// Frames that wait in the ring.
#[derive(Debug)]
pub struct InRing {
    /// How many were looked at.
    pub frames: u16,
    /// Since when the first one waits.
    pub since: Instant,
    /// Receivers that had no room.
    pub full: Full,
    /// Chains seen, if a frame behind them could go elsewhere; else none is worth a look.
    pub seen: Option<u16>,
    /// The first one is being cut: its receiver, and how many segments that has.
    pub cut: Option<(u16, u16)>,
}

impl InRing {
    /// How many frames are known to wait: each of them counts as held once.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.frames)
    }
}

/// What one transmit ring holds back.
#[derive(Debug, Default)]
pub struct Backlog {
    /// Frames set aside.
    pub deferred: Deferred,
    /// Frames that wait in the ring, if any do.
    pub in_ring: Option<InRing>,
    stalled: Option<Instant>,
}

impl Backlog {
    /// The receivers waited for: those of frames set aside, and of frames in the ring if it runs.
    pub fn receivers(&self, runs: bool) -> impl Iterator<Item = u16> + '_ {
        let in_ring = self.in_ring.as_ref().filter(|_| runs);
        let full = in_ring.map(|in_ring| in_ring.full.iter().copied());
        self.deferred.receivers().chain(full.into_iter().flatten())
    }

    /// A frame finds no room to be set aside in. Whether it has been so for too long: then it is
    /// dropped, else it stays in the ring.
    pub fn stall(&mut self, now: Instant) -> bool {
        self.stalled.get_or_insert(now);
        self.is_overdue(now)
    }

    /// The ring has stalled for too long.
    #[must_use]
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.stalled
            .is_some_and(|since| now.duration_since(since) > STUCK_TIMEOUT)
    }

    /// The ring has stalled: a look behind what waits in it is no use.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// After frames set aside have gone: a stall ends once there is room for half as many again.
    pub fn update_stall(&mut self) {
        if self.deferred.is_half_empty() {
            self.stalled = None;
        }
    }

    /// The ring was stopped or started anew: what waited in it is another's business.
    pub fn forget_ring(&mut self) {
        self.in_ring = None;
    }
}

#[cfg(test)]
mod tests {
    use vhost::net_header::NetHeader;

    use super::*;
    use crate::frame::{Head, Rest};
    use crate::guard::Checked;
    use crate::limits::DEFERRED_FRAMES;

    fn push(backlog: &mut Backlog, to: u16) -> bool {
        let (head, rest) = Head::of_private(NetHeader::default(), &[0; 60]).unwrap();
        backlog.deferred.push(
            to,
            &head,
            Rest::Private(rest),
            Checked::default(),
            0,
            Instant::now(),
        )
    }

    #[test]
    fn a_full_store_stalls_the_ring_then_drops() {
        let (mut backlog, start) = (Backlog::default(), Instant::now());
        while push(&mut backlog, 1) {}
        assert!(!backlog.stall(start));
        assert!(!backlog.stall(start + STUCK_TIMEOUT));
        assert!(backlog.stall(start + STUCK_TIMEOUT * 2));
    }

    #[test]
    fn a_trickle_does_not_end_a_stall() {
        let (mut backlog, start) = (Backlog::default(), Instant::now());
        assert!(push(&mut backlog, 2));
        while push(&mut backlog, 1) {}
        assert!(!backlog.stall(start));
        assert_eq!(backlog.deferred.forget(2), 1);
        backlog.update_stall();
        assert!(push(&mut backlog, 1));
        assert!(backlog.stall(start + STUCK_TIMEOUT * 2));
        assert_eq!(backlog.deferred.forget(1), DEFERRED_FRAMES);
        backlog.update_stall();
        assert!(!backlog.stall(start + STUCK_TIMEOUT * 2));
    }
}
