//! Frames set aside: copied into private memory because they stood in the way of others.
//!
//! Their chains are handed back already, so the sender need not be there any more: they are
//! delivered when their receiver has room, whatever becomes of the ring they came from. A line
//! for each receiver keeps its frames in order. The memory is bounded, taken a frame at a time
//! and given back with it.

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

/// A frame in private memory.
#[derive(Debug)]
struct Frame {
    head: Head,
    /// What follows the head.
    rest: Vec<u8>,
    /// What guards know of it.
    checked: Checked,
    /// Segments delivered already, if it is being cut.
    segments: u16,
    /// When it was set aside.
    since: Instant,
}

impl Frame {
    /// As it is shown to whoever watches.
    fn observed_frame(&self) -> (&Head, Rest<'_, 'static>, Checked) {
        (&self.head, Rest::Private(&self.rest), self.checked)
    }

    /// As it leaves the port with this guard.
    fn leave(&self, guard: Option<&Guard>) -> Result<Outgoing<'_, 'static>, Loss> {
        let tagging = passage(guard, self.checked)?;
        let rest = Rest::Private(&self.rest);
        Outgoing::new(tagging, self.checked, &self.head, &rest).ok_or(Loss::Untranslatable)
    }
}

/// The frames set aside for one receiver, in order.
#[derive(Debug)]
struct ReceiverQueue {
    to: u16,
    frames: VecDeque<Frame>,
}

/// The frames of one transmit ring that are set aside.
#[derive(Debug, Default)]
pub struct Deferred {
    queues: Vec<ReceiverQueue>,
    frames: usize,
    bytes: usize,
}

impl Deferred {
    /// Nothing is set aside.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Frames set aside.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames
    }

    /// Whether at most half of what may be set aside is.
    #[must_use]
    pub fn is_half_empty(&self) -> bool {
        self.frames <= DEFERRED_FRAMES / 2 && self.bytes <= DEFERRED_BYTES / 2
    }

    /// The receivers waited for.
    pub fn receivers(&self) -> impl Iterator<Item = u16> + '_ {
        self.queues.iter().map(|queue| queue.to)
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

    /// When the first of its frames was set aside.
    fn oldest(&self) -> Option<Instant> {
        let firsts = self.queues.iter().filter_map(|queue| queue.frames.front());
        firsts.map(|frame| frame.since).min()
    }

    /// Forget the frames for a receiver that is gone; how many they were.
    pub fn forget(&mut self, port: u16) -> usize {
        let before = self.frames;
        self.queues.retain(|queue| queue.to != port);
        self.recount();
        before - self.frames
    }

    /// After some frames have left: give back what is empty, and count anew.
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
    /// Deliver what is set aside of a pair, as far as its receivers have room; returns how many
    /// frames are done with.
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

    /// Whether a port that had no room for a pair's frames may have some now, or is not to be
    /// waited for any more.
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
                    // Set aside within the receiver's limit, and paid for now.
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
    fn the_store_is_bounded_in_frames_and_in_bytes() {
        for length in [60, 65_000] {
            let mut deferred = Deferred::default();
            while push(&mut deferred, 1, length) {}
            let all = (DEFERRED_BYTES / (length - ETHERNET as usize)).min(DEFERRED_FRAMES);
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
