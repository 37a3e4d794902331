//! Into a port: the frame as it is, or made into what the receiver has negotiated.

use rustix::io::Errno;
use vhost::backend::at;
use vhost::chain::Batch;
use vhost::fault::{Fault, RingFault};

use crate::books::Books;
use crate::capture::Direction;
use crate::control::{Counters, Loss};
use crate::desk::Desk;
use crate::frame::{Head, Rest};
use crate::guard::{Checked, Cost, Outgoing, Rates, Way, passage};
use crate::job::Job;
use crate::offload::Plan;
use crate::port::{Guest, Kind, Port, Vring, publish, receive_ring};
use crate::receiver::{Delivery, Receiver};
use crate::sender::Sender;
use crate::spread::Askers;
use crate::switch::Switch;
use crate::translate::{Scratch, plan_for};

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered,
    Dropped(Loss),
    /// No room; so many segments of it went out before.
    NoRoom(u16),
}

/// How an attempt to deliver frames to a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All are done with.
    Done,
    /// Its receive ring does not run.
    Down,
    /// It has no room now.
    NoRoom,
    /// It has had no room for so long that nobody waits any more.
    Stuck,
}

impl Switch {
    /// Deliver one frame, which came by this pair, that is dropped where there is no room for it.
    ///
    /// # Errors
    /// The port may not have it.
    pub(crate) fn deliver_one(
        &self,
        desk: &mut Desk,
        number: u16,
        pair: usize,
        head: &Head,
        rest: &Rest<'_, '_>,
        checked: Checked,
    ) -> Result<(), Loss> {
        let Some(port) = self.port(number) else {
            return Ok(());
        };
        let way = passage(port.guard.as_deref(), checked)?;
        let shown = (head, *rest, checked);
        let out = Outgoing::new(way, checked, head, rest).ok_or(Loss::Untranslatable)?;
        let delivered = self.hand_out(desk, (number, pair), port, &out.head, &out.rest());
        if delivered && port.watched {
            self.show(
                desk,
                (number, pair),
                Direction::Received,
                std::iter::once(shown),
            );
        }
        Ok(())
    }

    /// Deliver one frame as it leaves the switch; where it is lost, it is counted. Whether it is not.
    pub(crate) fn hand_out(
        &self,
        desk: &mut Desk,
        (number, pair): (u16, usize),
        port: &Port,
        head: &Head,
        rest: &Rest<'_, '_>,
    ) -> bool {
        let rates = port.limits.receive.as_deref();
        if rates.is_some_and(|rates| rates.wait(desk.now).is_some()) {
            port.lose(pair, Loss::ReceiveLimit, 1);
            return false;
        }
        match &port.kind {
            Kind::Uplink(uplink) => {
                let queue = uplink.queue(pair);
                let sent = queue.send(head, rest);
                queue.flush();
                count_sent(sent, head, &mut queue.sent_out());
                true
            }
            Kind::Guest(guest) => {
                let delivered = deliver_if_room(guest, pair, desk, head, *rest, rates);
                delivered.unwrap_or_else(|fault| {
                    desk.faults.push((number, fault));
                    false
                })
            }
        }
    }
}

/// Deliver one frame of a sender's pair to a guest; count it there if it is lost. Whether it is not.
fn deliver_if_room(
    guest: &Guest,
    senders: usize,
    desk: &mut Desk,
    head: &Head,
    rest: Rest<'_, '_>,
    rates: Option<&Rates>,
) -> Result<bool, Fault> {
    let number = receive_ring(guest.receiving_pair(senders));
    let Some(mut vring) = guest.backend.vring(number) else {
        return Ok(false);
    };
    let now = desk.now;
    let Desk { scratch, wakes, .. } = desk;
    let act = |receiver: &mut Receiver<'_, '_>, features, books: &mut Books| {
        let counters = &mut books.counters;
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
        Some(Outcome::Dropped(loss)) => drops.count(loss),
        Some(Outcome::NoRoom(_)) => drops.receiver_full += 1,
        None => drops.receiver_down += 1,
    }
    Ok(outcome == Some(Outcome::Delivered))
}

/// Deliver a run of frames to a guest; says how many are done with. A fault is the receiving
/// guest's.
pub(crate) fn to_guest(
    guest: &Guest,
    desk: &mut Desk,
    sender: &mut Sender<'_>,
    run: &mut [Job<'_, '_>],
    way: Way,
) -> (usize, Result<End, Fault>) {
    let (frames, pair) = (run.len(), sender.pair);
    let act = |receiver: &mut Receiver<'_, '_>,
               features,
               counters: &mut Counters,
               scratch: &mut Scratch,
               done: &mut usize| {
        if way == Way::Untagged {
            *done = receiver.deliver_simple(run.iter().map(Job::simple));
        }
        let (simple, others) = run.split_at_mut((*done).min(run.len()));
        count_delivered(simple, counters);
        sender.finish_run(simple);
        for job in others {
            let from = job.segments;
            let out;
            let (head, rest) = match way {
                Way::Untagged => (&job.head, job.rest()),
                Way::Tagged => {
                    out = Outgoing::new(way, job.checked(), &job.head, &job.rest());
                    let Some(out) = &out else {
                        sender.lose(job.chain, job.head.length, Loss::Untranslatable);
                        *done += 1;
                        continue;
                    };
                    (&out.head, out.rest())
                }
            };
            match deliver(receiver, features, counters, scratch, head, rest, from)? {
                Outcome::Delivered => sender.finish(job.chain, job.head.length),
                Outcome::Dropped(loss) => sender.lose(job.chain, job.head.length, loss),
                Outcome::NoRoom(segments) => {
                    job.segments = segments;
                    return Ok(false);
                }
            }
            *done += 1;
        }
        Ok(true)
    };
    attempt(guest, pair, desk, frames, act)
}

/// Have `act` deliver about `frames` frames of a sender's pair to a guest. It counts those done with in its last
/// argument and returns whether that is all of them, or the next has no room.
pub(crate) fn attempt(
    guest: &Guest,
    senders: usize,
    desk: &mut Desk,
    frames: usize,
    act: impl FnOnce(
        &mut Receiver<'_, '_>,
        u64,
        &mut Counters,
        &mut Scratch,
        &mut usize,
    ) -> Result<bool, RingFault>,
) -> (usize, Result<End, Fault>) {
    let number = receive_ring(guest.receiving_pair(senders));
    let Some(mut vring) = guest.backend.vring(number) else {
        return (0, Ok(End::Down));
    };
    let (now, mut done) = (desk.now, 0);
    let Desk { scratch, wakes, .. } = desk;
    let act = |receiver: &mut Receiver<'_, '_>, features, books: &mut Books| {
        let all = act(receiver, features, &mut books.counters, scratch, &mut done)?;
        Ok((!all).then(|| receiver.seen()))
    };
    let short = match with_receiver(guest, &mut vring, number, frames, wakes, act) {
        Ok(Some(short)) => short,
        Ok(None) => return (0, Ok(End::Down)),
        Err(fault) => return (done, Err(fault)),
    };
    let books = &mut vring.state;
    if done > 0 || short.is_none() {
        books.short = None;
    }
    let end = match short {
        None => End::Done,
        Some(seen) if books.note_short(seen, now).is_stuck(now) => End::Stuck,
        Some(_) => End::NoRoom,
    };
    (done, Ok(end))
}

fn count_delivered(jobs: &[Job<'_, '_>], counters: &mut Counters) {
    counters.rx_frames += jobs.len() as u64;
    counters.rx_bytes += jobs
        .iter()
        .map(|job| u64::from(job.head.length))
        .sum::<u64>();
}

/// Take a guest's receive ring in hand and do something with it, then publish what came of it.
/// `Ok(None)` when the ring does not run. Who has asked for its kick is to be woken.
fn with_receiver<T>(
    guest: &Guest,
    vring: &mut Vring,
    number: usize,
    frames: usize,
    wakes: &mut Askers,
    act: impl FnOnce(&mut Receiver<'_, '_>, u64, &mut Books) -> Result<T, RingFault>,
) -> Result<Option<T>, Fault> {
    let memory = guest.backend.memory();
    let features = guest.backend.features();
    let (Some(ring), books) = vring.parts_mut() else {
        return Ok(None);
    };
    wakes.join(std::mem::take(&mut books.askers));
    ring.suppress_kicks();
    let mut batch = Batch::new();
    let result = Receiver::new(ring, memory, features, &mut batch, frames)
        .and_then(|mut receiver| act(&mut receiver, features, books))
        .map_err(at(number))?;
    publish(vring).map_err(at(number))?;
    Ok(Some(result))
}

/// Deliver one frame the way the receiver has negotiated it, from segment `from` on.
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
        return whole(receiver, counters, head, &mut rest);
    }
    let Some((plan, offload)) = plan_for(head, &rest, features) else {
        return Ok(Outcome::Dropped(Loss::Untranslatable));
    };
    if plan == Plan::PassThrough {
        return whole(receiver, counters, head, &mut rest);
    }
    let Some(mut translated) = scratch.translate(plan, &offload, head, &mut rest) else {
        return Ok(Outcome::Dropped(Loss::Untranslatable));
    };
    let mut index = from;
    while let Some((piece, bytes)) = translated.piece(index) {
        match whole(receiver, counters, &piece, &mut Rest::Private(bytes))? {
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

/// Deliver one frame as it is.
#[inline(always)]
fn whole(
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
        Delivery::Small => Outcome::Dropped(Loss::ReceiverSmall),
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
