//! Delivers deferred frames when their receivers have room.

use crate::backpressure::Held;
use crate::capture::Direction;
use crate::context::WorkerContext;
use crate::control::{Counters, Loss};
use crate::deferred::{Frame, Line};
use crate::deliver::{End, Outcome, attempt, deliver};
use crate::guard::Cost;
use crate::port::Kind;
use crate::receiver::Receiver;
use crate::ring_state::Sampler;
use crate::switch::Switch;
use crate::translate::Scratch;

impl Switch {
    /// Deliver what is set aside of a pair, as far as its receivers have room; returns how many
    /// frames are done with.
    pub(crate) fn deliver_aside(
        &self,
        context: &mut WorkerContext,
        pair: usize,
        held: &mut Held,
        counters: &mut Counters,
        sampler: &mut Sampler,
    ) -> u32 {
        let before = held.deferred.len();
        let oldest = held.deferred.oldest();
        for line in &mut held.deferred.lines {
            if self.worth_a_try(context, line.to, pair) {
                self.deliver_line(context, pair, line, counters);
            }
        }
        held.deferred.settle();
        held.settle();
        let gone = u32::try_from(before - held.deferred.len()).unwrap_or(u32::MAX);
        if gone > 0 {
            counters.count_latency(oldest.filter(|_| sampler.next()));
        }
        gone
    }

    /// Whether a port that had no room for a pair's frames may have some now, or is not to be
    /// waited for any more.
    pub(crate) fn worth_a_try(&self, context: &WorkerContext, to: u16, pair: usize) -> bool {
        match self.port(to).map(|port| &port.kind) {
            Some(Kind::Guest(guest)) => guest.worth_a_try(pair, context.now),
            _ => true,
        }
    }

    fn deliver_line(
        &self,
        context: &mut WorkerContext,
        pair: usize,
        line: &mut Line,
        counters: &mut Counters,
    ) {
        let Some(port) = self.port(line.to) else {
            return lose(line, counters, Loss::ReceiverDown);
        };
        let Kind::Guest(guest) = &port.kind else {
            return lose(line, counters, Loss::ReceiverDown);
        };
        let guard = port.guard.as_deref();
        let (rates, now) = (port.limits.receive.as_deref(), context.now);
        let (number, frames) = (line.to, line.frames.len());
        let mut shown = Vec::new();
        let act = |receiver: &mut Receiver<'_, '_>,
                   features,
                   ring_state: &mut Counters,
                   scratch: &mut Scratch,
                   done: &mut usize| {
            while let Some(frame) = line.frames.front_mut() {
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
                        let frame = line.frames.pop_front();
                        shown.extend(frame.filter(|_| port.watched));
                        *done += 1;
                        continue;
                    }
                    Outcome::Dropped(loss) => counters.drops.count(loss),
                    Outcome::NoRoom(segments) => {
                        frame.segments = segments;
                        return Ok(false);
                    }
                }
                line.frames.pop_front();
                *done += 1;
            }
            Ok(true)
        };
        let end = attempt(guest, pair, context, frames, act).1;
        if !shown.is_empty() {
            let shown = shown.iter().map(Frame::shown);
            self.show(context, (number, pair), Direction::Received, shown);
        }
        match end {
            Ok(End::Done | End::NoRoom) => {}
            Ok(End::Stuck) => lose(line, counters, Loss::ReceiverStuck),
            Ok(End::Down) => lose(line, counters, Loss::ReceiverDown),
            Err(fault) => {
                context.faults.push((line.to, fault));
                lose(line, counters, Loss::ReceiverDown);
            }
        }
    }
}

fn lose(line: &mut Line, counters: &mut Counters, loss: Loss) {
    for _ in line.frames.drain(..) {
        counters.drops.count(loss);
    }
}
