//! Frames held back because their receiver has no room: the lossless part of the switch.
//!
//! A transmit ring hands its chains back in any order, so a frame for a full receiver can wait
//! in the sender's ring, by its head alone, while frames behind it go to others. What keeps one
//! slow receiver from stopping everybody:
//! - **share**: at most half of a sender's ring is held; past that the ring stalls, and a stall
//!   is bounded;
//! - **time**: a receiver that takes nothing for [`HOLD`] is stuck; frames to it are dropped until
//!   it takes buffers again. A ring that stalls for [`HOLD`] drops instead, until half of what it
//!   holds has drained: so even a receiver that takes one buffer now and then slows a sender for
//!   a moment only.

use std::collections::VecDeque;
use std::time::Instant;

use crate::limits::{HOLD, HOLD_SHARE};

/// A frame that waits: the head of its chain, its receiver, and how many of its segments were
/// delivered already, if it is being cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The chain, in the sender's ring.
    pub chain: u16,
    /// The receiver's port.
    pub to: u16,
    /// Segments already delivered.
    pub segments: u16,
}

/// What to do with one more frame for a full receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It can be held.
    Hold,
    /// Nothing more can be held now: leave it, and all behind it, in the ring.
    Stall,
    /// The ring has stalled for too long: drop it.
    Drop,
}

/// What one transmit ring holds.
#[derive(Debug, Default)]
pub struct Held {
    waiting: VecDeque<Waiting>,
    stalled: Option<Instant>,
}

impl Held {
    /// Make room for a ring of this size, so that holding allocates nothing.
    pub fn reserve(&mut self, ring_size: u32) {
        self.waiting.reserve(share(ring_size));
    }

    /// Nothing is held.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Frames held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The receivers waited for.
    pub fn receivers(&self) -> impl Iterator<Item = u16> + '_ {
        self.waiting.iter().map(|waiting| waiting.to)
    }

    /// Whether a frame for this receiver is held: then a newer one must wait behind it.
    #[inline]
    #[must_use]
    pub fn waits_for(&self, port: u16) -> bool {
        self.waiting.iter().any(|waiting| waiting.to == port)
    }

    /// Whether the ring cannot be read further for now.
    #[must_use]
    pub fn is_stalled(&self, now: Instant) -> bool {
        self.stalled
            .is_some_and(|since| now.duration_since(since) <= HOLD)
    }

    /// What to do with one more frame.
    #[must_use]
    pub fn room(&mut self, ring_size: u32, now: Instant) -> Room {
        if self.waiting.len() < share(ring_size) {
            return Room::Hold;
        }
        let since = *self.stalled.get_or_insert(now);
        if now.duration_since(since) <= HOLD {
            Room::Stall
        } else {
            Room::Drop
        }
    }

    /// Hold a frame.
    pub fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Put the frame taken last back to where it was.
    pub fn unpop(&mut self, waiting: Waiting) {
        self.waiting.push_front(waiting);
    }

    /// Take the frame that has waited longest.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// After some frames went out: a stall ends once half of the share is free.
    pub fn settle(&mut self, ring_size: u32) {
        if self.waiting.len() <= share(ring_size) / 2 {
            self.stalled = None;
        }
    }
}

fn share(ring_size: u32) -> usize {
    (ring_size / HOLD_SHARE).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(to: u16) -> Waiting {
        Waiting {
            chain: 0,
            to,
            segments: 0,
        }
    }

    #[test]
    fn half_of_the_ring_is_held_then_it_stalls_then_it_drops() {
        let (mut held, start) = (Held::default(), Instant::now());
        for _ in 0..4 {
            assert_eq!(held.room(8, start), Room::Hold);
            held.push(waiting(1));
        }
        assert_eq!(held.room(8, start), Room::Stall);
        assert!(held.is_stalled(start + HOLD));
        assert_eq!(held.room(8, start + HOLD * 2), Room::Drop);
        assert!(!held.is_stalled(start + HOLD * 2));
    }

    #[test]
    fn a_trickle_does_not_end_a_stall() {
        let (mut held, start) = (Held::default(), Instant::now());
        for _ in 0..4 {
            held.push(waiting(1));
        }
        assert_eq!(held.room(8, start), Room::Stall);
        held.pop();
        held.settle(8);
        held.push(waiting(1));
        assert_eq!(held.room(8, start + HOLD * 2), Room::Drop);
        held.pop();
        held.pop();
        held.settle(8);
        held.push(waiting(1));
        held.push(waiting(1));
        assert_eq!(held.room(8, start + HOLD * 2), Room::Stall);
    }

    #[test]
    fn a_one_descriptor_ring_can_hold_one() {
        let mut held = Held::default();
        assert_eq!(held.room(1, Instant::now()), Room::Hold);
    }
}
