//! Deferred frames: copied into private memory because they blocked frames behind them in the transmit
//! ring (head-of-line blocking, IEEE 802.1).
//!
//! Their chains are returned already, so deferred frames do not depend on the ring that they came from:
//! they are delivered when their receiver has room, even if that ring has stopped. A queue for each
//! receiver keeps its frames in order. The memory is bounded; it is allocated and freed frame by frame.

use std::collections::VecDeque;
use std::time::Instant;

use crate::control::DropReason;
use crate::frame::{ETHERNET, Head, Rest};
use crate::guard::{Checked, Guard, Outgoing, egress_tagging};
use crate::limits::{DEFERRED_BYTES, DEFERRED_FRAMES};

/// One deferred frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) head: Head,
    /// The bytes behind the head.
    pub(crate) rest: Vec<u8>,
    /// What the sender's guard has determined.
    pub(crate) checked: Checked,
    /// Segments that were delivered already, if the frame is segmented.
    pub(crate) segments: u16,
    /// When the frame was deferred.
    pub(crate) since: Instant,
}

impl Frame {
    /// Returns the frame as captures and mirrors see it.
    pub(crate) fn observed_frame(&self) -> (&Head, Rest<'_, 'static>, Checked) {
        (&self.head, Rest::Private(&self.rest), self.checked)
    }

    /// Returns the frame in the form in which it leaves a port with this guard.
    pub(crate) fn leave(&self, guard: Option<&Guard>) -> Result<Outgoing<'_, 'static>, DropReason> {
        let tagging = egress_tagging(guard, self.checked)?;
        let rest = Rest::Private(&self.rest);
        Outgoing::new(tagging, self.checked, &self.head, &rest).ok_or(DropReason::Untranslatable)
    }
}

/// The deferred frames of one receiver, in order.
#[derive(Debug)]
pub(crate) struct ReceiverQueue {
    pub(crate) to: u16,
    pub(crate) frames: VecDeque<Frame>,
}

/// The deferred frames of one transmit ring.
#[derive(Debug, Default)]
pub struct Deferred {
    pub(crate) queues: Vec<ReceiverQueue>,
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

impl Deferred {
    /// Returns whether no frame is deferred.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the number of deferred frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames
    }

    /// Returns whether both frames and bytes are at most half of their limits.
    #[must_use]
    pub fn is_half_empty(&self) -> bool {
        self.frames <= DEFERRED_FRAMES / 2 && self.bytes <= DEFERRED_BYTES / 2
    }

    /// Returns the receivers that have deferred frames.
    pub fn receivers(&self) -> impl Iterator<Item = u16> + '_ {
        self.queues.iter().map(|queue| queue.to)
    }

    /// Returns whether this receiver has deferred frames; then a newer frame must wait behind them.
    #[inline]
    #[must_use]
    pub fn waits_for(&self, port: u16) -> bool {
        self.receivers().any(|to| to == port)
    }

    /// Defers a frame, of which `segments` segments are delivered; returns false when a limit is reached.
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
        if self.frames >= DEFERRED_FRAMES || self.bytes + length > DEFERRED_BYTES {
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
        match self.queues.iter_mut().find(|queue| queue.to == to) {
            Some(queue) => queue.frames.push_back(frame),
            None => self.queues.push(ReceiverQueue {
                to,
                frames: VecDeque::from([frame]),
            }),
        }
        true
    }

    /// Returns when the oldest frame was deferred.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let firsts = self.queues.iter().filter_map(|queue| queue.frames.front());
        firsts.map(|frame| frame.since).min()
    }

    /// Removes the frames of a receiver that is gone; returns their number.
    pub fn remove(&mut self, port: u16) -> usize {
        let before = self.frames;
        self.queues.retain(|queue| queue.to != port);
        self.recount();
        before - self.frames
    }

    /// Removes empty queues and updates the counts, after frames have left.
    pub(crate) fn recount(&mut self) {
        self.queues.retain(|queue| !queue.frames.is_empty());
        let frames = || self.queues.iter().flat_map(|queue| &queue.frames);
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
    fn deferred_frames_are_bounded_in_number_and_bytes() {
        for length in [60, 65_000] {
            let mut deferred = Deferred::default();
            while push(&mut deferred, 1, length) {}
            let all = (DEFERRED_BYTES / (length - ETHERNET as usize)).min(DEFERRED_FRAMES);
            assert_eq!(deferred.len(), all);
            assert!(!deferred.is_half_empty());
        }
    }

    #[test]
    fn the_frames_of_a_receiver_that_is_gone_are_removed() {
        let mut deferred = Deferred::default();
        for to in [1, 2, 1] {
            assert!(push(&mut deferred, to, 100));
        }
        assert!(deferred.waits_for(1));
        assert_eq!(deferred.remove(1), 2);
        assert!(!deferred.waits_for(1) && deferred.waits_for(2));
        assert_eq!((deferred.remove(2), deferred.bytes), (1, 0));
        assert!(deferred.is_empty());
    }
}
