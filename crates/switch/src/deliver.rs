//! Delivers frames to a port, unchanged or translated to what the receiver has negotiated.

use rustix::io::Errno;
use vhost::backend::ring_fault;
use vhost::chain::Batch;
use vhost::fault::{Fault, RingFault};

use crate::batch_entry::BatchEntry;
use crate::capture::Direction;
use crate::context::WorkerContext;
use crate::control::{Counters, DropReason};
use crate::frame::{Head, Rest};
use crate::guard::{Checked, Cost, Outgoing, Rates, Tagging, egress_tagging};
use crate::offload::Plan;
use crate::port::{Guest, Kind, Port, Vring, publish, receive_ring};
use crate::receiver::{Delivery, Receiver};
use crate::ring_state::RingState;
use crate::sender::Sender;
use crate::steering::WakeSet;
use crate::switch::Switch;
use crate::translate::{Scratch, plan_for};

/// The result for one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered,
    Dropped(DropReason),
    /// The receiver has no room. The number of segments that were delivered before.
    NoRoom(u16),
}

/// The result of an attempt to deliver a run of frames to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All frames are completed.
    Done,
    /// The guest's receive ring does not run.
    Down,
    /// The guest has no room now.
    NoRoom,
    /// The guest has had no room for longer than [`STUCK_TIMEOUT`](crate::limits::STUCK_TIMEOUT).
    Stuck,
}

impl Switch {
    /// Delivers one frame of this sender's pair; drops the frame if the port has no room.
    ///
    /// # Errors
    /// The rules do not let the port receive the frame.
    pub(crate) fn deliver_one(
        &self,
        context: &mut WorkerContext,
        number: u16,
        pair: usize,
        head: &Head,
        rest: &Rest<'_, '_>,
        checked: Checked,
    ) -> Result<(), DropReason> {
        let Some(port) = self.port(number) else {
            return Ok(());
        };
        let tagging = egress_tagging(port.guard.as_deref(), checked)?;
        let observed = (head, *rest, checked);
        let out = Outgoing::new(tagging, checked, head, rest).ok_or(DropReason::Untranslatable)?;
        let delivered = self.send_to_port(context, (number, pair), port, &out.head, &out.rest());
        if delivered && port.observed {
            self.observe(
                context,
                (number, pair),
                Direction::Received,
                std::iter::once(observed),
            );
        }
        Ok(())
    }

    /// Sends one frame, in the form in which it leaves the switch, to a port. Counts the frame if it is
    /// dropped; returns whether it was delivered.
    pub(crate) fn send_to_port(
        &self,
        context: &mut WorkerContext,
        (number, pair): (u16, usize),
        port: &Port,
        head: &Head,
        rest: &Rest<'_, '_>,
    ) -> bool {
        let rates = port.limits.receive.as_deref();
        if rates.is_some_and(|rates| rates.wait(context.now).is_some()) {
            port.count_drops(pair, DropReason::ReceiveLimit, 1);
            return false;
        }
        match &port.kind {
            Kind::Uplink(uplink) => {
                let queue = uplink.queue(pair);
                let sent = queue.send(head, rest);
                queue.flush();
                count_sent(sent, head, &mut queue.egress());
                true
            }
            Kind::Guest(guest) => {
                let delivered = deliver_if_room(guest, pair, context, head, *rest, rates);
                delivered.unwrap_or_else(|fault| {
                    context.faults.push((number, fault));
                    false
                })
            }
        }
    }
}

/// Delivers one frame of a sender's pair to a guest. Counts the frame at the guest if it is dropped;
/// returns whether it was delivered.
fn deliver_if_room(
    guest: &Guest,
    sender_pair: usize,
    context: &mut WorkerContext,
    head: &Head,
    rest: Rest<'_, '_>,
    rates: Option<&Rates>,
) -> Result<bool, Fault> {
    let number = receive_ring(guest.receiving_pair(sender_pair));
    let Some(mut vring) = guest.backend.vring(number) else {
        return Ok(false);
    };
    let now = context.now;
    let WorkerContext { scratch, wakes, .. } = context;
    let act = |receiver: &mut Receiver<'_, '_>, features, ring_state: &mut RingState| {
        let counters = &mut ring_state.counters;
        deliver(receiver, features, counters, scratch, head, rest, 0)
    };
    let outcome = with_receiver(guest, &mut vring, number, 1, wakes, act)?;
    let drops = &mut vring.state.counters.drops;
    match outcome {
        Some(Outcome::Delivered) => {
            if let Some(rates) = rates {
                rates.charge(now, std::iter::once(Cost::of(head)));
            }
        }
        Some(Outcome::Dropped(reason)) => drops.count(reason),
        Some(Outcome::NoRoom(_)) => drops.receiver_full += 1,
        None => drops.receiver_down += 1,
    }
    Ok(outcome == Some(Outcome::Delivered))
}

/// Delivers a run of frames to a guest; returns the number of completed frames. A fault belongs to the
/// receiving guest.
pub(crate) fn to_guest(
    guest: &Guest,
    context: &mut WorkerContext,
    sender: &mut Sender<'_>,
    run: &mut [BatchEntry<'_, '_>],
    tagging: Tagging,
) -> (usize, Result<End, Fault>) {
    let (frames, pair) = (run.len(), sender.pair);
    let act = |receiver: &mut Receiver<'_, '_>,
               features,
               counters: &mut Counters,
               scratch: &mut Scratch,
               done: &mut usize| {
        if tagging == Tagging::Untagged {
            *done = receiver.deliver_simple(run.iter().map(BatchEntry::simple));
        }
        let (simple, others) = run.split_at_mut((*done).min(run.len()));
        count_delivered(simple, counters);
        sender.finish_run(simple);
        for entry in others {
            let from = entry.segments;
            let out;
            let (head, rest) = match tagging {
                Tagging::Untagged => (&entry.head, entry.rest()),
                Tagging::Tagged => {
                    out = Outgoing::new(tagging, entry.checked(), &entry.head, &entry.rest());
                    let Some(out) = &out else {
                        sender.drop_frame(
                            entry.chain,
                            entry.head.length,
                            DropReason::Untranslatable,
                        );
                        *done += 1;
                        continue;
                    };
                    (&out.head, out.rest())
                }
            };
            match deliver(receiver, features, counters, scratch, head, rest, from)? {
                Outcome::Delivered => sender.finish(entry.chain, entry.head.length),
                Outcome::Dropped(reason) => {
                    sender.drop_frame(entry.chain, entry.head.length, reason);
                }
                Outcome::NoRoom(segments) => {
                    entry.segments = segments;
                    return Ok(false);
                }
            }
            *done += 1;
        }
        Ok(true)
    };
    attempt(guest, pair, context, frames, act)
}

/// Calls `act` to deliver about `frames` frames of a sender's pair to a guest. `act` counts completed frames
/// in its last argument, and returns whether it has completed all or the next one has no room.
pub(crate) fn attempt(
    guest: &Guest,
    sender_pair: usize,
    context: &mut WorkerContext,
    frames: usize,
    act: impl FnOnce(
        &mut Receiver<'_, '_>,
        u64,
        &mut Counters,
        &mut Scratch,
        &mut usize,
    ) -> Result<bool, RingFault>,
) -> (usize, Result<End, Fault>) {
    let number = receive_ring(guest.receiving_pair(sender_pair));
    let Some(mut vring) = guest.backend.vring(number) else {
        return (0, Ok(End::Down));
    };
    let (now, mut done) = (context.now, 0);
    let WorkerContext { scratch, wakes, .. } = context;
    let act = |receiver: &mut Receiver<'_, '_>, features, ring_state: &mut RingState| {
        let all = act(
            receiver,
            features,
            &mut ring_state.counters,
            scratch,
            &mut done,
        )?;
        Ok((!all).then(|| receiver.seen()))
    };
    let shortage = match with_receiver(guest, &mut vring, number, frames, wakes, act) {
        Ok(Some(shortage)) => shortage,
        Ok(None) => return (0, Ok(End::Down)),
        Err(fault) => return (done, Err(fault)),
    };
    let ring_state = &mut vring.state;
    if done > 0 || shortage.is_none() {
        ring_state.shortage = None;
    }
    let end = match shortage {
        None => End::Done,
        Some(seen) if ring_state.note_shortage(seen, now).is_stuck(now) => End::Stuck,
        Some(_) => End::NoRoom,
    };
    (done, Ok(end))
}

fn count_delivered(entries: &[BatchEntry<'_, '_>], counters: &mut Counters) {
    counters.rx_frames += entries.len() as u64;
    counters.rx_bytes += entries
        .iter()
        .map(|entry| u64::from(entry.head.length))
        .sum::<u64>();
}

/// Calls `act` with a guest's receive ring and then publishes the used chains. Returns `Ok(None)` when the
/// ring does not run. Disables kicks, so it adds the workers that had enabled them to `wakes`.
fn with_receiver<T>(
    guest: &Guest,
    vring: &mut Vring,
    number: usize,
    frames: usize,
    wakes: &mut WakeSet,
    act: impl FnOnce(&mut Receiver<'_, '_>, u64, &mut RingState) -> Result<T, RingFault>,
) -> Result<Option<T>, Fault> {
    let memory = guest.backend.memory();
    let features = guest.backend.features();
    let (Some(ring), ring_state) = vring.parts_mut() else {
        return Ok(None);
    };
    wakes.join(std::mem::take(&mut ring_state.wake_set));
    ring.disable_kicks();
    let mut batch = Batch::new();
    let result = Receiver::new(ring, memory, features, &mut batch, frames)
        .and_then(|mut receiver| act(&mut receiver, features, ring_state))
        .map_err(ring_fault(number))?;
    publish(vring).map_err(ring_fault(number))?;
    Ok(Some(result))
}

/// Delivers one frame in a form that the receiver has negotiated, from segment `from` on.
#[inline(always)]
pub(crate) fn deliver(
    receiver: &mut Receiver<'_, '_>,
    features: u64,
    counters: &mut Counters,
    scratch: &mut Scratch,
    head: &Head,
    mut rest: Rest<'_, '_>,
    from: u16,
) -> Result<Outcome, RingFault> {
    if head.start.is_plain() {
        return deliver_untranslated(receiver, counters, head, &mut rest);
    }
    let Some((plan, offload)) = plan_for(head, &rest, features) else {
        return Ok(Outcome::Dropped(DropReason::Untranslatable));
    };
    if plan == Plan::PassThrough {
        return deliver_untranslated(receiver, counters, head, &mut rest);
    }
    let Some(mut translated) = scratch.translate(plan, &offload, head, &mut rest) else {
        return Ok(Outcome::Dropped(DropReason::Untranslatable));
    };
    let mut index = from;
    while let Some((piece, bytes)) = translated.piece(index) {
        match deliver_untranslated(receiver, counters, &piece, &mut Rest::Private(bytes))? {
            Outcome::Delivered => index += 1,
            Outcome::NoRoom(_) => return Ok(Outcome::NoRoom(index)),
            dropped => return Ok(dropped),
        }
    }
    match plan {
        Plan::Checksum => counters.checksummed += 1,
        _ => counters.segmented += 1,
    }
    Ok(Outcome::Delivered)
}

/// Delivers one frame without translation.
#[inline(always)]
fn deliver_untranslated(
    receiver: &mut Receiver<'_, '_>,
    counters: &mut Counters,
    head: &Head,
    rest: &mut Rest<'_, '_>,
) -> Result<Outcome, RingFault> {
    Ok(match receiver.deliver(head, rest)? {
        Delivery::Done => {
            counters.rx_frames += 1;
            counters.rx_bytes += u64::from(head.length);
            Outcome::Delivered
        }
        Delivery::Full => Outcome::NoRoom(0),
        Delivery::Small => Outcome::Dropped(DropReason::ReceiverSmall),
    })
}

pub(crate) fn count_sent(sent: Result<(), Errno>, head: &Head, counters: &mut Counters) {
    match sent {
        Ok(()) => {
            counters.rx_frames += 1;
            counters.rx_bytes += u64::from(head.length);
        }
        Err(_) => counters.drops.uplink += 1,
    }
}
