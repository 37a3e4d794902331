//! Deferred frames: copied into private memory because they blocked frames behind them in the transmit
//! ring (head-of-line blocking, IEEE 802.1).
//!
//! Their chains are returned already, so deferred frames do not depend on the ring that they came from:
//! they are delivered when their receiver has room, even if that ring has stopped. A queue for each
//! receiver keeps its frames in order. The memory is bounded; it is allocated and freed frame by frame.

use std::collections::VecDeque;
use std::time::Instant;

use crate::backpressure::Backlog;
use crate::capture::Direction;
use crate::context::WorkerContext;
use crate::control::{Counters, Loss};
use crate::deliver::{End, Outcome, attempt, deliver};
use crate::frame::{ETHERNET, Head, Rest};
use crate::guard::{Checked, Cost, Guard, Outgoing, passage};
use crate::limits::{DEFERRED_BYTES, DEFERRED_FRAMES};
use crate::port::Kind;
use crate::receiver::Receiver;
use crate::ring_state::Sampler;
use crate::switch::Switch;
use crate::translate::Scratch;

/// One deferred frame.
#[derive(Debug)]
struct Frame {
    head: Head,
    /// The bytes behind the head.
    rest: Vec<u8>,
    /// What the sender's guard has determined.
    checked: Checked,
    /// Segments that were delivered already, if the frame is segmented.
    segments: u16,
    /// When the frame was deferred.
    since: Instant,
}

impl Frame {
    /// Returns the frame as captures and mirrors see it.
    fn observed_frame(&self) -> (&Head, Rest<'_, 'static>, Checked) {
        (&self.head, Rest::Private(&self.rest), self.checked)
    }

    /// Returns the frame in the form in which it leaves a port with this guard.
    fn leave(&self, guard: Option<&Guard>) -> Result<Outgoing<'_, 'static>, Loss> {
        let tagging = passage(guard, self.checked)?;
        let rest = Rest::Private(&self.rest);
        Outgoing::new(tagging, self.checked, &self.head, &rest).ok_or(Loss::Untranslatable)
    }
}

/// The deferred frames of one receiver, in order.
#[derive(Debug)]
struct ReceiverQueue {
    to: u16,
    frames: VecDeque<Frame>,
}

/// The deferred frames of one transmit ring.
#[derive(Debug, Default)]
pub struct Deferred {
    queues: Vec<ReceiverQueue>,
    frames: usize,
    bytes: usize,
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
    fn oldest(&self) -> Option<Instant> {
        let firsts = self.queues.iter().filter_map(|queue| queue.frames.front());
        firsts.map(|frame| frame.since).min()
    }

    /// Removes the frames of a receiver that is gone; returns their number.
    pub fn forget(&mut self, port: u16) -> usize {
        let before = self.frames;
        self.queues.retain(|queue| queue.to != port);
        self.recount();
        before - self.frames
    }

    /// Removes empty queues and updates the counts, after frames have left.
    fn recount(&mut self) {
        self.queues.retain(|queue| !queue.frames.is_empty());
        let frames = || self.queues.iter().flat_map(|queue| &queue.frames);
        (self.frames, self.bytes) = (
            frames().count(),
            frames().map(|frame| frame.rest.len()).sum(),
        );
    }
}

impl Switch {
    /// Delivers the deferred frames of a pair, as far as their receivers have room; returns the number
    /// of completed frames.
    pub(crate) fn deliver_deferred(
        &self,
        context: &mut WorkerContext,
        pair: usize,
        backlog: &mut Backlog,
        counters: &mut Counters,
        sampler: &mut Sampler,
    ) -> u32 {
        let before = backlog.deferred.len();
        let oldest = backlog.deferred.oldest();
        for queue in &mut backlog.deferred.queues {
            if self.should_retry(context, queue.to, pair) {
                self.deliver_queue(context, pair, queue, counters);
            }
        }
        backlog.deferred.recount();
        backlog.update_stall();
        let gone = u32::try_from(before - backlog.deferred.len()).unwrap_or(u32::MAX);
        if gone > 0 {
            counters.count_latency(oldest.filter(|_| sampler.next()));
        }
        gone
    }

    /// Returns whether a delivery to a port that had no room should be retried: the port may have room
    /// now, is stuck, or is gone.
    pub(crate) fn should_retry(&self, context: &WorkerContext, to: u16, pair: usize) -> bool {
        match self.port(to).map(|port| &port.kind) {
            Some(Kind::Guest(guest)) => guest.should_retry(pair, context.now),
            _ => true,
        }
    }

    fn deliver_queue(
        &self,
        context: &mut WorkerContext,
        pair: usize,
        queue: &mut ReceiverQueue,
        counters: &mut Counters,
    ) {
        let Some(port) = self.port(queue.to) else {
            return lose(queue, counters, Loss::ReceiverDown);
        };
        let Kind::Guest(guest) = &port.kind else {
            return lose(queue, counters, Loss::ReceiverDown);
        };
        let guard = port.guard.as_deref();
        let (rates, now) = (port.limits.receive.as_deref(), context.now);
        let (number, frames) = (queue.to, queue.frames.len());
        let mut observed = Vec::new();
        let act = |receiver: &mut Receiver<'_, '_>,
                   features,
                   ring_state: &mut Counters,
                   scratch: &mut Scratch,
                   done: &mut usize| {
            while let Some(frame) = queue.frames.front_mut() {
                let outcome = match frame.leave(guard) {
                    Ok(out) => {
                        let (head, rest, from) = (&out.head, out.rest(), frame.segments);
                        deliver(receiver, features, ring_state, scratch, head, rest, from)?
                    }
                    Err(loss) => Outcome::Dropped(loss),
                };
                match outcome {
                    // A deferred frame is charged to the receiver's rate when it is delivered.
                    Outcome::Delivered => {
                        if let Some(rates) = rates {
                            rates.charge(now, std::iter::once(Cost::of(&frame.head)));
                        }
                        let frame = queue.frames.pop_front();
                        observed.extend(frame.filter(|_| port.observed));
                        *done += 1;
                        continue;
                    }
                    Outcome::Dropped(loss) => counters.drops.count(loss),
                    Outcome::NoRoom(segments) => {
                        frame.segments = segments;
                        return Ok(false);
                    }
                }
                queue.frames.pop_front();
                *done += 1;
            }
            Ok(true)
        };
        let end = attempt(guest, pair, context, frames, act).1;
        if !observed.is_empty() {
            let observed = observed.iter().map(Frame::observed_frame);
            self.observe(context, (number, pair), Direction::Received, observed);
        }
        match end {
            Ok(End::Done | End::NoRoom) => {}
            Ok(End::Stuck) => lose(queue, counters, Loss::ReceiverStuck),
            Ok(End::Down) => lose(queue, counters, Loss::ReceiverDown),
            Err(fault) => {
                context.faults.push((queue.to, fault));
                lose(queue, counters, Loss::ReceiverDown);
            }
        }
    }
}

fn lose(queue: &mut ReceiverQueue, counters: &mut Counters, loss: Loss) {
    for _ in queue.frames.drain(..) {
        counters.drops.count(loss);
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
        assert_eq!(deferred.forget(1), 2);
        assert!(!deferred.waits_for(1) && deferred.waits_for(2));
        assert_eq!((deferred.forget(2), deferred.bytes), (1, 0));
        assert!(deferred.is_empty());
    }
}
