//! Backpressure: frames wait when their receiver has no room. This makes the switch lossless between
//! VMs.
//!
//! The switch always returns chains in the order in which the driver made them available. So another
//! process, or another host after a migration, can resume a ring at the used index. A frame for a full
//! receiver
//! - **stays in the ring** while no frame behind it in the burst has another receiver. This needs no
//!   copy, and slows the sender to the receiver's rate;
//! - is **deferred** ([`Deferred`]) when it blocks a frame for another receiver.
//!
//! Two limits keep one slow receiver from stopping other ports:
//! - **Space.** Deferred frames are bounded in number and bytes. When a ring reaches the limit, it
//!   stalls, and the time of a stall is bounded.
//! - **Time.** A receiver that takes no frame for [`STUCK_TIMEOUT`] is stuck; frames to it are dropped until
//!   it posts buffers again. A ring that stalls for [`STUCK_TIMEOUT`] drops the frames that block others,
//!   until half of its deferred frames are delivered. So even a receiver that posts one buffer now and
//!   then slows a sender only for a moment.

use std::time::Instant;

use arrayvec::ArrayVec;

use crate::deferred::Deferred;
use crate::limits::{BURST, STUCK_TIMEOUT};

/// The receivers that had no room in a burst.
pub type Full = ArrayVec<u16, { BURST as usize }>;

/// The frames that wait in the transmit ring.
#[derive(Debug)]
pub struct InRing {
    /// The number of frames that wait.
    pub frames: u16,
    /// Since when the first frame waits.
    pub since: Instant,
    /// The receivers that had no room.
    pub full: Full,
    /// The number of chains seen, if the ring should be tried again when the driver adds a chain. `None`
    /// if a new frame would not be reached.
    pub seen: Option<u16>,
    /// If the first frame is segmented: its receiver, and the number of delivered segments.
    pub cut: Option<(u16, u16)>,
}

impl InRing {
    /// Returns the number of frames that wait; each is counted as backpressured once.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.frames)
    }
}

/// The frames of one transmit ring that wait for their receivers.
#[derive(Debug, Default)]
pub struct Backlog {
    /// The deferred frames.
    pub deferred: Deferred,
    /// The frames that wait in the ring, if any do.
    pub in_ring: Option<InRing>,
    /// Since when the ring has been stalled.
    stalled: Option<Instant>,
}

impl Backlog {
    /// Returns the receivers of deferred frames, and of frames in the ring if it runs.
    pub fn receivers(&self, runs: bool) -> impl Iterator<Item = u16> + '_ {
        let in_ring = self.in_ring.as_ref().filter(|_| runs);
        let full = in_ring.map(|in_ring| in_ring.full.iter().copied());
        self.deferred.receivers().chain(full.into_iter().flatten())
    }

    /// Records that a frame could not be deferred. Returns true when the ring has been stalled for too
    /// long: then the frame is dropped, otherwise it stays in the ring.
    pub fn stall(&mut self, now: Instant) -> bool {
        self.stalled.get_or_insert(now);
        self.is_overdue(now)
    }

    /// Returns whether the ring has been stalled for longer than [`STUCK_TIMEOUT`].
    #[must_use]
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.stalled
            .is_some_and(|since| now.duration_since(since) > STUCK_TIMEOUT)
    }

    /// Returns whether the ring is stalled; then frames behind those that wait cannot be forwarded.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Ends a stall once half of the space for deferred frames is free; called after deliveries.
    pub fn update_stall(&mut self) {
        if self.deferred.is_half_empty() {
            self.stalled = None;
        }
    }

    /// Drops the record of frames that wait in the ring, because the ring was stopped or restarted.
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
    fn a_ring_that_cannot_defer_stalls_and_then_drops() {
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
        assert_eq!(backlog.deferred.remove(2), 1);
        backlog.update_stall();
        assert!(push(&mut backlog, 1));
        assert!(backlog.stall(start + STUCK_TIMEOUT * 2));
        assert_eq!(backlog.deferred.remove(1), DEFERRED_FRAMES);
        backlog.update_stall();
        assert!(!backlog.stall(start + STUCK_TIMEOUT * 2));
    }
}
