//! Frames set aside: copied into private memory because they stood in the way of others.
//!
//! Their chains are handed back already, so the sender need not be there any more: they are
//! delivered when their receiver has room, whatever becomes of the ring they came from. A line
//! for each receiver keeps its frames in order. The memory is bounded, taken a frame at a time
//! and given back with it.

use std::collections::VecDeque;
use std::time::Instant;

use crate::control::Loss;
use crate::frame::{ETHERNET, Head, Rest};
use crate::guard::{Checked, Guard, Outgoing, passage};
use crate::limits::{ASIDE_BYTES, ASIDE_FRAMES};

/// A frame in private memory.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) head: Head,
    /// What follows the head.
    rest: Vec<u8>,
    /// What guards know of it.
    checked: Checked,
    /// Segments delivered already, if it is being cut.
    pub(crate) segments: u16,
    /// When it was set aside.
    since: Instant,
}

impl Frame {
    /// As it is shown to whoever watches.
    pub(crate) fn shown(&self) -> (&Head, Rest<'_, 'static>, Checked) {
        (&self.head, Rest::Private(&self.rest), self.checked)
    }

    /// As it leaves the port with this guard.
    pub(crate) fn leave(&self, guard: Option<&Guard>) -> Result<Outgoing<'_, 'static>, Loss> {
        let way = passage(guard, self.checked)?;
        let rest = Rest::Private(&self.rest);
        Outgoing::new(way, self.checked, &self.head, &rest).ok_or(Loss::Untranslatable)
    }
}

/// The frames set aside for one receiver, in order.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) to: u16,
    pub(crate) frames: VecDeque<Frame>,
}

/// The frames of one transmit ring that are set aside.
#[derive(Debug, Default)]
pub struct Deferred {
    pub(crate) lines: Vec<Line>,
    frames: usize,
    bytes: usize,
}

impl Deferred {
    /// Nothing is set aside.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Frames set aside.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames
    }

    /// Whether at most half of what may be set aside is.
    #[must_use]
    pub fn is_half_empty(&self) -> bool {
        self.frames <= ASIDE_FRAMES / 2 && self.bytes <= ASIDE_BYTES / 2
    }

    /// The receivers waited for.
    pub fn receivers(&self) -> impl Iterator<Item = u16> + '_ {
        self.lines.iter().map(|line| line.to)
    }

    /// Whether a frame for this receiver is set aside: then a newer one must wait behind it.
    #[inline]
    #[must_use]
    pub fn waits_for(&self, port: u16) -> bool {
        self.receivers().any(|to| to == port)
    }

    /// Set a frame aside, of which so many segments are delivered; false when there is no room.
    #[must_use]
    pub fn push(
        &mut self,
        to: u16,
        head: &Head,
        mut rest: Rest<'_, '_>,
        checked: Checked,
        segments: u16,
        now: Instant,
    ) -> bool {
        let length = head.length.saturating_sub(ETHERNET) as usize;
        if self.frames >= ASIDE_FRAMES || self.bytes + length > ASIDE_BYTES {
            return false;
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(length).is_err() {
            return false;
        }
        bytes.resize(length, 0);
        rest.read(&mut bytes);
        self.frames += 1;
        self.bytes += length;
        let frame = Frame {
            head: *head,
            rest: bytes,
            checked,
            segments,
            since: now,
        };
        match self.lines.iter_mut().find(|line| line.to == to) {
            Some(line) => line.frames.push_back(frame),
            None => self.lines.push(Line {
                to,
                frames: VecDeque::from([frame]),
            }),
        }
        true
    }

    /// When the first of its frames was set aside.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let firsts = self.lines.iter().filter_map(|line| line.frames.front());
        firsts.map(|frame| frame.since).min()
    }

    /// Forget the frames for a receiver that is gone; how many they were.
    pub fn forget(&mut self, port: u16) -> usize {
        let before = self.frames;
        self.lines.retain(|line| line.to != port);
        self.settle();
        before - self.frames
    }

    /// After some frames have left: give back what is empty, and count anew.
    pub(crate) fn settle(&mut self) {
        self.lines.retain(|line| !line.frames.is_empty());
        let frames = || self.lines.iter().flat_map(|line| &line.frames);
        (self.frames, self.bytes) = (
            frames().count(),
            frames().map(|frame| frame.rest.len()).sum(),
        );
    }
}

#[cfg(test)]
mod tests {
    use vhost::net_header::NetHeader;

    use super::*;

    fn push(deferred: &mut Deferred, to: u16, length: usize) -> bool {
        let bytes = vec![7; length];
        let (head, rest) = Head::of_private(NetHeader::default(), &bytes).unwrap();
        deferred.push(
            to,
            &head,
            Rest::Private(rest),
            Checked::default(),
            0,
            Instant::now(),
        )
    }

    #[test]
    fn the_store_is_bounded_in_frames_and_in_bytes() {
        for length in [60, 65_000] {
            let mut deferred = Deferred::default();
            while push(&mut deferred, 1, length) {}
            let all = (ASIDE_BYTES / (length - ETHERNET as usize)).min(ASIDE_FRAMES);
            assert_eq!(deferred.len(), all);
            assert!(!deferred.is_half_empty());
        }
    }

    #[test]
    fn what_a_receiver_leaves_behind_is_forgotten() {
        let mut deferred = Deferred::default();
        for to in [1, 2, 1] {
            assert!(push(&mut deferred, to, 100));
        }
        assert!(deferred.waits_for(1));
        assert_eq!(deferred.forget(1), 2);
        assert!(!deferred.waits_for(1) && deferred.waits_for(2));
        assert_eq!((deferred.forget(2), deferred.bytes), (1, 0));
        assert!(deferred.is_empty());
    }
}
