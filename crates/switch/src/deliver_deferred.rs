//! Delivers deferred frames when their receivers have room.

use crate::backpressure::Backlog;
use crate::capture::Direction;
use crate::context::WorkerContext;
use crate::control::{Counters, DropReason};
use crate::deferred::{Frame, ReceiverQueue};
use crate::deliver::{End, Outcome, attempt, deliver};
use crate::guard::Cost;
use crate::port::Kind;
use crate::receiver::Receiver;
use crate::ring_state::Sampler;
use crate::switch::Switch;
use crate::translate::Scratch;

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
            return drop_frames(queue, counters, DropReason::ReceiverDown);
        };
        let Kind::Guest(guest) = &port.kind else {
            return drop_frames(queue, counters, DropReason::ReceiverDown);
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
                // The receiver's rate applies here, and not when the frame was deferred: the frames of
                // several rings may have been deferred since, more than the rate's burst together.
                if rates.is_some_and(|rates| rates.wait(now).is_some()) {
                    ring_state.drops.count(DropReason::ReceiveLimit);
                    queue.frames.pop_front();
                    *done += 1;
                    continue;
                }
                let outcome = match frame.leave(guard) {
                    Ok(out) => {
                        let (head, rest, from) = (&out.head, out.rest(), frame.segments);
                        deliver(receiver, features, ring_state, scratch, head, rest, from)?
                    }
                    Err(reason) => Outcome::Dropped(reason),
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
                    Outcome::Dropped(reason) => counters.drops.count(reason),
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
            Ok(End::Stuck) => drop_frames(queue, counters, DropReason::ReceiverStuck),
            Ok(End::Down) => drop_frames(queue, counters, DropReason::ReceiverDown),
            Err(fault) => {
                context.faults.push((queue.to, fault));
                drop_frames(queue, counters, DropReason::ReceiverDown);
            }
        }
    }
}

fn drop_frames(queue: &mut ReceiverQueue, counters: &mut Counters, reason: DropReason) {
    for _ in queue.frames.drain(..) {
        counters.drops.count(reason);
    }
}
