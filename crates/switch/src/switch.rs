//! Forwarding: from a transmit ring, through the residency table, into receive rings.
//!
//! A frame takes these steps, in bursts of up to [`BURST`]:
//! 1. look at the chains of a transmit ring ([`Burst::collect`]);
//! 2. read and check each one's head, note its source, look up its destination;
//! 3. deliver runs of frames with the same destination into that port's receive ring, one copy
//!    each; hold what finds no room, flood what has no known destination;
//! 4. hand the chains back, publish both rings, call whom it concerns.
//!
//! The sending port is taken out of the table of ports meanwhile, so a frame can never come back
//! to it. A fault of the sender ends the sender, a fault of a receiver the receiver.

use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use vhost::backend::at;
use vhost::chain::Batch;
use vhost::copy::Cursor;
use vhost::fault::{Fault, RingFault};
use vhost::features::header_size;
use vhost::memory::GuestMemory;
use vhost::net_header::NetHeader;
use vhost::ring::Ring;

use crate::control::{Counters, Drops};
use crate::frame::{Head, Rest};
use crate::hold::{Held, Room, Waiting};
use crate::limits::{BURST, MAX_PORTS};
use crate::mac::Mac;
use crate::offload::Plan;
use crate::port::{Guest, Kind, Port, Teacher, publish, receive_ring, transmit_ring};
use crate::receiver::{Delivery, Receiver};
use crate::residency::Residency;
use crate::translate::{Scratch, plan_for};
use crate::uplink::{BUFFER, Uplink};

/// What one visit to a port achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Frames taken from it, delivered or dropped.
    pub moved: u32,
    /// It has more to send.
    pub more: bool,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Port(u16),
    Flood,
    /// Back where it came from.
    Hairpin,
    /// It has no length a frame can have.
    Nowhere,
}

/// One frame of a burst.
#[derive(Debug)]
struct Job<'a, 'm> {
    chain: u16,
    head: Head,
    rest: Cursor<'a, 'm>,
    target: Target,
    /// Segments delivered in an earlier attempt.
    segments: u16,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Delivered,
    Dropped(fn(&mut Drops) -> &mut u64),
    /// No room; so many segments of it went out before.
    NoRoom(u16),
}

/// A sending ring and its owner's books, while the port is out of the table.
struct Sender<'p> {
    port: u16,
    ring: &'p mut Ring,
    held: &'p mut Held,
    counters: &'p mut Counters,
}

/// A network: its ports and who lives where.
#[derive(Debug)]
pub struct Switch {
    ports: Vec<Option<Box<Port>>>,
    /// The residency table.
    pub table: Residency,
    /// Seconds since the start, for ageing.
    pub seconds: u32,
    /// The time of this round.
    pub now: Instant,
    /// Ports to be ended, and why.
    faults: Vec<(u16, Fault)>,
    scratch: Scratch,
    buffer: Box<[u8]>,
}

impl Default for Switch {
    fn default() -> Self {
        Self::new()
    }
}

impl Switch {
    /// A network without ports.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ports: std::iter::repeat_with(|| None).take(MAX_PORTS).collect(),
            table: Residency::new(),
            seconds: 0,
            now: Instant::now(),
            faults: Vec::with_capacity(MAX_PORTS),
            scratch: Scratch::default(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
        }
    }

    /// The port at a number.
    #[must_use]
    pub fn port(&self, number: u16) -> Option<&Port> {
        self.ports.get(usize::from(number))?.as_deref()
    }

    /// The port at a number.
    pub fn port_mut(&mut self, number: u16) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(number))?.as_deref_mut()
    }

    /// All ports and their numbers.
    pub fn ports(&self) -> impl Iterator<Item = (u16, &Port)> {
        (0_u16..)
            .zip(&self.ports)
            .filter_map(|(number, port)| Some((number, port.as_deref()?)))
    }

    /// Add a port; `false` when the number is taken or past the last one.
    pub fn add(&mut self, number: u16, port: Port) -> bool {
        match self.ports.get_mut(usize::from(number)) {
            Some(place @ None) => {
                *place = Some(Box::new(port));
                true
            }
            _ => false,
        }
    }

    /// Remove a port and forget who lived there.
    pub fn remove(&mut self, number: u16) -> Option<Box<Port>> {
        let port = self.ports.get_mut(usize::from(number))?.take()?;
        self.table.forget_port(number);
        Some(port)
    }

    /// Ports found at fault since the last call.
    pub fn take_fault(&mut self) -> Option<(u16, Fault)> {
        self.faults.pop()
    }

    /// Forget addresses not heard of for long, a few at a time.
    pub fn age(&mut self) {
        let ports = &mut self.ports;
        self.table.age(self.seconds, |port| {
            if let Some(Some(port)) = ports.get_mut(usize::from(port)) {
                port.teacher.lost();
            }
        });
    }

    /// Move what a port has to send, up to one burst a ring.
    pub fn serve(&mut self, number: u16) -> Visit {
        let Some(mut port) = self
            .ports
            .get_mut(usize::from(number))
            .and_then(Option::take)
        else {
            return Visit::default();
        };
        let visit = match &mut port.kind {
            Kind::Guest(guest) => {
                self.serve_guest(number, guest, &mut port.counters, &mut port.teacher)
            }
            Kind::Uplink(uplink) => {
                self.serve_uplink(number, uplink, &mut port.counters, &mut port.teacher)
            }
        };
        if let Some(place) = self.ports.get_mut(usize::from(number)) {
            *place = Some(port);
        }
        visit.unwrap_or_else(|fault| {
            self.faults.push((number, fault));
            Visit::default()
        })
    }

    fn serve_guest(
        &mut self,
        number: u16,
        guest: &mut Guest,
        counters: &mut Counters,
        teacher: &mut Teacher,
    ) -> Result<Visit, Fault> {
        let memory = Arc::clone(guest.backend.memory());
        let features = guest.backend.features();
        let mut visit = Visit::default();
        for (pair, held) in guest.held.iter_mut().enumerate() {
            let number_of_ring = transmit_ring(pair);
            let Some(vring) = guest.backend.vring_mut(number_of_ring) else {
                continue;
            };
            let Some(ring) = vring.active_mut() else {
                continue;
            };
            let mut sender = Sender {
                port: number,
                ring,
                held,
                counters,
            };
            let served = self
                .serve_ring(&mut sender, &memory, features, teacher)
                .map_err(at(number_of_ring))?;
            visit.moved += served.moved;
            visit.more |= served.more;
            publish(vring, counters).map_err(Fault::Host)?;
        }
        Ok(visit)
    }

    fn serve_ring(
        &mut self,
        sender: &mut Sender<'_>,
        memory: &GuestMemory,
        features: u64,
        teacher: &mut Teacher,
    ) -> Result<Visit, RingFault> {
        sender.ring.suppress_kicks();
        let mut visit = Visit::default();
        if !sender.held.is_empty() {
            visit.moved += self.retry_held(sender, memory, features)?;
            if sender.held.is_stalled(self.now) {
                return Ok(visit);
            }
        }
        let mut batch = Batch::new();
        sender.ring.collect(memory, BURST, &mut batch)?;
        let mut jobs: ArrayVec<Job<'_, '_>, { BURST as usize }> = ArrayVec::new();
        let mut last = None;
        for chain in batch.chains() {
            let mut rest = Cursor::new(batch.spans(chain));
            let head = Head::read(&mut rest, chain.bytes, header_size(features), features)?;
            let target = match &head {
                Some(head) => self.resolve(head, sender.port, teacher, &mut last),
                None => Target::Nowhere,
            };
            let head = head.unwrap_or(Head::NONE);
            jobs.push(Job {
                chain: chain.head,
                head,
                rest,
                target,
                segments: 0,
            });
        }
        let taken = self.forward(sender, &mut jobs, false);
        sender.ring.consume(taken);
        visit.moved += u32::from(taken);
        visit.more = usize::from(taken) == jobs.len() && !jobs.is_empty();
        Ok(visit)
    }

    /// Note a frame's source and find its destination. `last` remembers the answer for the next
    /// frame of the burst, which mostly has the same.
    #[inline]
    fn resolve(
        &mut self,
        head: &Head,
        from: u16,
        teacher: &mut Teacher,
        last: &mut Option<(Mac, Target)>,
    ) -> Target {
        if let Some(left) = teacher.note(head.source(), from, self.seconds, &mut self.table) {
            if let Some(port) = self.port_mut(left) {
                port.teacher.lost();
            }
        }
        let destination = head.destination();
        if let Some((mac, target)) = *last {
            if mac == destination {
                return target;
            }
        }
        let target = match self.table.lookup(destination, self.seconds) {
            _ if destination.is_group() => Target::Flood,
            Some(port) if port == from => Target::Hairpin,
            Some(port) => Target::Port(port),
            None => Target::Flood,
        };
        *last = Some((destination, target));
        target
    }

    /// Forward jobs in order until all are done or the ring stalls; returns how many are done.
    /// `again` says that these frames were held before.
    fn forward(&mut self, sender: &mut Sender<'_>, jobs: &mut [Job<'_, '_>], again: bool) -> u16 {
        let mut done = 0;
        while let Some(first) = jobs.get(done).map(|job| job.target) {
            let run = jobs.get_mut(done..).unwrap_or_default();
            let length = run.iter().take_while(|job| job.target == first).count();
            let run = run.get_mut(..length).unwrap_or_default();
            done += match first {
                Target::Port(to) => self.unicast(sender, run, to, again),
                Target::Flood => self.flood_run(sender, run),
                Target::Hairpin => drop_run(sender, run, |drops| &mut drops.hairpin),
                Target::Nowhere => drop_run(sender, run, |drops| &mut drops.bad_length),
            };
            if sender.held.is_stalled(self.now) && !again {
                break;
            }
        }
        // A burst is at most BURST jobs.
        done as u16
    }

    /// Deliver a run of frames to one port; returns how many are done with.
    fn unicast(
        &mut self,
        sender: &mut Sender<'_>,
        run: &mut [Job<'_, '_>],
        to: u16,
        again: bool,
    ) -> usize {
        let now = self.now;
        let Some(port) = self
            .ports
            .get_mut(usize::from(to))
            .and_then(Option::as_deref_mut)
        else {
            return drop_run(sender, run, |drops| &mut drops.receiver_down);
        };
        let guest = match &mut port.kind {
            Kind::Guest(guest) => guest,
            Kind::Uplink(uplink) => return send_out(sender, run, uplink, &mut port.counters),
        };
        if !again && !sender.held.is_empty() && sender.held.waits_for(to) {
            return hold_run(sender, run, to, now, again);
        }
        let delivered = to_guest(
            guest,
            &mut port.counters,
            &mut self.scratch,
            sender,
            run,
            now,
        );
        match delivered {
            Ok(Run::Done) => run.len(),
            Ok(Run::Down(done)) => {
                let left = run.get(done..).unwrap_or_default();
                done + drop_run(sender, left, |drops| &mut drops.receiver_down)
            }
            Ok(Run::Stuck(done)) => {
                let left = run.get(done..).unwrap_or_default();
                done + drop_run(sender, left, |drops| &mut drops.receiver_stuck)
            }
            Ok(Run::NoRoom(done)) => {
                let left = run.get(done..).unwrap_or_default();
                done + hold_run(sender, left, to, now, again)
            }
            Err((done, fault)) => {
                self.faults.push((to, fault));
                let left = run.get(done..).unwrap_or_default();
                done + drop_run(sender, left, |drops| &mut drops.receiver_down)
            }
        }
    }

    /// Deliver frames to every port but the one they came from. Nobody is waited for.
    fn flood_run(&mut self, sender: &mut Sender<'_>, run: &mut [Job<'_, '_>]) -> usize {
        for job in run.iter() {
            self.flood(&job.head, &Rest::Guest(job.rest));
            sender.finish(job.chain, job.head.length);
        }
        run.len()
    }

    /// Deliver one frame to every port in the table.
    fn flood(&mut self, head: &Head, rest: &Rest<'_, '_>) {
        for number in 0..self.ports.len() {
            self.deliver_one(number, head, rest);
        }
    }

    /// Deliver one frame that is dropped where there is no room for it.
    fn deliver_one(&mut self, number: usize, head: &Head, rest: &Rest<'_, '_>) {
        let Some(port) = self.ports.get_mut(number).and_then(Option::as_deref_mut) else {
            return;
        };
        let counters = &mut port.counters;
        match &mut port.kind {
            Kind::Uplink(uplink) => count_sent(uplink.send(head, rest), head, counters),
            Kind::Guest(guest) => {
                let scratch = &mut self.scratch;
                match with_receiver(guest, counters, 1, |receiver, features, counters| {
                    deliver(receiver, features, counters, scratch, head, *rest, 0)
                }) {
                    Ok(Some(Outcome::Delivered)) => {}
                    Ok(Some(Outcome::Dropped(reason))) => *reason(&mut counters.drops) += 1,
                    Ok(Some(Outcome::NoRoom(_))) => counters.drops.receiver_full += 1,
                    Ok(None) => counters.drops.receiver_down += 1,
                    // The table has at most MAX_PORTS entries.
                    Err(fault) => self.faults.push((number as u16, fault)),
                }
            }
        }
    }

    /// Try again what is held, as far as its receivers may have room; returns how many frames
    /// are done with.
    ///
    /// Goes round the queue once. Order towards a receiver is kept: once one of its frames found
    /// no room, all later ones go back to the queue untried.
    fn retry_held(
        &mut self,
        sender: &mut Sender<'_>,
        memory: &GuestMemory,
        features: u64,
    ) -> Result<u32, RingFault> {
        let before = sender.held.len();
        let mut left = before;
        let mut full: ArrayVec<u16, { BURST as usize }> = ArrayVec::new();
        while left > 0 {
            let mut batch = Batch::new();
            let mut waiting: ArrayVec<Waiting, { BURST as usize }> = ArrayVec::new();
            while left > 0 && !waiting.is_full() {
                let Some(next) = sender.held.pop() else { break };
                if full.is_full() || full.contains(&next.to) || !self.worth_a_try(next.to) {
                    sender.held.push(next);
                } else if sender.ring.look_at(memory, next.chain, &mut batch)? {
                    waiting.push(next);
                } else {
                    sender.held.unpop(next);
                    break;
                }
                left -= 1;
            }
            self.retry(sender, &batch, &waiting, features)?;
            for port in waiting.iter().map(|waiting| waiting.to) {
                if self.is_short(port) && !full.contains(&port) && !full.is_full() {
                    full.push(port);
                }
            }
        }
        sender.held.settle(sender.ring.size());
        Ok(u32::try_from(before.saturating_sub(sender.held.len())).unwrap_or(u32::MAX))
    }

    fn is_short(&self, to: u16) -> bool {
        matches!(self.port(to).map(|port| &port.kind), Some(Kind::Guest(guest)) if guest.short.is_some())
    }

    fn worth_a_try(&self, to: u16) -> bool {
        match self.port(to).map(|port| &port.kind) {
            Some(Kind::Guest(guest)) => guest.worth_a_try(self.now),
            _ => true,
        }
    }

    fn retry(
        &mut self,
        sender: &mut Sender<'_>,
        batch: &Batch<'_>,
        waiting: &[Waiting],
        features: u64,
    ) -> Result<(), RingFault> {
        let mut jobs: ArrayVec<Job<'_, '_>, { BURST as usize }> = ArrayVec::new();
        for (chain, waiting) in batch.chains().iter().zip(waiting) {
            let mut rest = Cursor::new(batch.spans(chain));
            let head = Head::read(&mut rest, chain.bytes, header_size(features), features)?;
            let target = head
                .as_ref()
                .map_or(Target::Nowhere, |_| Target::Port(waiting.to));
            let head = head.unwrap_or(Head::NONE);
            let segments = waiting.segments;
            jobs.push(Job {
                chain: chain.head,
                head,
                rest,
                target,
                segments,
            });
        }
        self.forward(sender, &mut jobs, true);
        Ok(())
    }

    /// Give up what a port's transmit ring holds, before the ring stops.
    pub fn release_held(&mut self, number: u16, ring: usize) {
        let Some(port) = self.port_mut(number) else {
            return;
        };
        let Kind::Guest(guest) = &mut port.kind else {
            return;
        };
        let Some(held) = guest.held.get_mut(ring / 2).filter(|_| ring % 2 == 1) else {
            return;
        };
        let Some(vring) = guest.backend.vring_mut(ring) else {
            return;
        };
        while let Some(waiting) = held.pop() {
            port.counters.drops.receiver_stuck += 1;
            if let Some(ring) = vring.active_mut() {
                ring.put_used(waiting.chain, 0);
            }
        }
        // The ring stops with the next message: whether the call got through matters to nobody.
        let _ = publish(vring, &mut port.counters);
    }

    /// Announce a VM on its behalf, after a migration (vhost-user, `SEND_RARP`).
    pub fn announce(&mut self, number: u16, mac: Mac) {
        let Some(mut port) = self
            .ports
            .get_mut(usize::from(number))
            .and_then(Option::take)
        else {
            return;
        };
        let left = port
            .teacher
            .note(mac, number, self.seconds, &mut self.table);
        if let Some(port) = left.and_then(|left| self.port_mut(left)) {
            port.teacher.lost();
        }
        let frame = crate::rarp::frame(mac);
        if let Some((head, rest)) = Head::of_private(NetHeader::default(), &frame) {
            self.flood(&head, &Rest::Private(rest));
        }
        if let Some(place) = self.ports.get_mut(usize::from(number)) {
            *place = Some(port);
        }
    }

    fn serve_uplink(
        &mut self,
        number: u16,
        uplink: &Uplink,
        counters: &mut Counters,
        teacher: &mut Teacher,
    ) -> Result<Visit, Fault> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut visit = Visit {
            moved: 0,
            more: true,
        };
        let mut last = None;
        while visit.moved < u32::from(BURST) {
            match uplink.receive(&mut buffer) {
                Ok(Some((header, frame))) => {
                    visit.moved += 1;
                    self.from_uplink(number, header, frame, counters, teacher, &mut last);
                }
                Ok(None) => {
                    visit.more = false;
                    break;
                }
                Err(error) => {
                    self.buffer = buffer;
                    return Err(Fault::Host(error));
                }
            }
        }
        self.buffer = buffer;
        Ok(visit)
    }

    fn from_uplink(
        &mut self,
        number: u16,
        header: NetHeader,
        frame: &[u8],
        counters: &mut Counters,
        teacher: &mut Teacher,
        last: &mut Option<(Mac, Target)>,
    ) {
        let Some((mut head, rest)) = Head::of_private(header, frame) else {
            counters.drops.bad_length += 1;
            return;
        };
        counters.tx_frames += 1;
        counters.tx_bytes += u64::from(head.length);
        // The kernel offers what was asked of it; anything else is a frame nobody negotiated.
        let Ok(checked) = header.checked(head.length, u64::MAX) else {
            counters.drops.untranslatable += 1;
            return;
        };
        head.header = checked;
        let rest = Rest::Private(rest);
        match self.resolve(&head, number, teacher, last) {
            Target::Port(to) => self.deliver_one(usize::from(to), &head, &rest),
            Target::Flood => self.flood(&head, &rest),
            Target::Hairpin => counters.drops.hairpin += 1,
            Target::Nowhere => counters.drops.bad_length += 1,
        }
    }
}

impl Sender<'_> {
    /// The frame is on its way: hand its chain back.
    #[inline]
    fn finish(&mut self, chain: u16, length: u32) {
        self.ring.put_used(chain, 0);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += u64::from(length);
    }

    /// The frame is lost: hand its chain back.
    #[inline]
    fn lose(&mut self, chain: u16, reason: fn(&mut Drops) -> &mut u64) {
        self.ring.put_used(chain, 0);
        *reason(&mut self.counters.drops) += 1;
    }
}

fn drop_run(
    sender: &mut Sender<'_>,
    run: &[Job<'_, '_>],
    reason: fn(&mut Drops) -> &mut u64,
) -> usize {
    for job in run {
        sender.lose(job.chain, reason);
    }
    run.len()
}

/// Hold frames, in order, until they are done with or the ring stalls; returns how many are.
/// Frames that were held before have their place already.
fn hold_run(
    sender: &mut Sender<'_>,
    run: &[Job<'_, '_>],
    to: u16,
    now: Instant,
    again: bool,
) -> usize {
    for (index, job) in run.iter().enumerate() {
        let room = if again {
            Room::Hold
        } else {
            sender.held.room(sender.ring.size(), now)
        };
        match room {
            Room::Hold => {
                sender.held.push(Waiting {
                    chain: job.chain,
                    to,
                    segments: job.segments,
                });
                sender.counters.held += u64::from(!again);
            }
            Room::Stall => return index,
            Room::Drop => sender.lose(job.chain, |drops| &mut drops.receiver_stuck),
        }
    }
    run.len()
}

fn send_out(
    sender: &mut Sender<'_>,
    run: &[Job<'_, '_>],
    uplink: &Uplink,
    counters: &mut Counters,
) -> usize {
    for job in run {
        count_sent(
            uplink.send(&job.head, &Rest::Guest(job.rest)),
            &job.head,
            counters,
        );
        sender.finish(job.chain, job.head.length);
    }
    run.len()
}

fn count_sent(sent: Result<(), Errno>, head: &Head, counters: &mut Counters) {
    match sent {
        Ok(()) => {
            counters.rx_frames += 1;
            counters.rx_bytes += u64::from(head.length);
        }
        Err(_) => counters.drops.uplink += 1,
    }
}

/// How a run of frames to one guest ended; the number is how many frames were done with before.
enum Run {
    Done,
    /// Its receive ring does not run.
    Down(usize),
    /// It has no room now.
    NoRoom(usize),
    /// It has had no room for so long that nobody waits any more.
    Stuck(usize),
}

/// Deliver a run of frames to a guest. A fault is the receiving guest's.
fn to_guest(
    guest: &mut Guest,
    counters: &mut Counters,
    scratch: &mut Scratch,
    sender: &mut Sender<'_>,
    run: &mut [Job<'_, '_>],
    now: Instant,
) -> Result<Run, (usize, Fault)> {
    let mut done = 0;
    let delivered = with_receiver(
        guest,
        counters,
        run.len(),
        |receiver, features, counters| {
            for job in run.iter_mut() {
                let rest = Rest::Guest(job.rest);
                match deliver(
                    receiver,
                    features,
                    counters,
                    scratch,
                    &job.head,
                    rest,
                    job.segments,
                )? {
                    Outcome::Delivered => sender.finish(job.chain, job.head.length),
                    Outcome::Dropped(reason) => sender.lose(job.chain, reason),
                    Outcome::NoRoom(segments) => {
                        job.segments = segments;
                        return receiver.available().map(Some);
                    }
                }
                done += 1;
            }
            Ok(None)
        },
    );
    let short = match delivered {
        Ok(Some(short)) => short,
        Ok(None) => return Ok(Run::Down(0)),
        Err(fault) => return Err((done, fault)),
    };
    if done > 0 || short.is_none() {
        guest.short = None;
    }
    let Some(seen) = short else {
        return Ok(Run::Done);
    };
    let stuck = guest.note_short(seen, now).is_stuck(now);
    Ok(if stuck {
        Run::Stuck(done)
    } else {
        Run::NoRoom(done)
    })
}

/// Do something with a guest's receive ring, then publish what came of it. `Ok(None)` when the
/// ring does not run.
fn with_receiver<T>(
    guest: &mut Guest,
    counters: &mut Counters,
    frames: usize,
    act: impl FnOnce(&mut Receiver<'_, '_>, u64, &mut Counters) -> Result<T, RingFault>,
) -> Result<Option<T>, Fault> {
    let ring_number = receive_ring(0);
    let memory = Arc::clone(guest.backend.memory());
    let features = guest.backend.features();
    let Some(vring) = guest.backend.vring_mut(ring_number) else {
        return Ok(None);
    };
    let Some(ring) = vring.active_mut() else {
        return Ok(None);
    };
    ring.suppress_kicks();
    let mut batch = Batch::new();
    let result = Receiver::new(ring, &memory, features, &mut batch, frames)
        .and_then(|mut receiver| act(&mut receiver, features, counters))
        .map_err(at(ring_number))?;
    publish(vring, counters).map_err(Fault::Host)?;
    Ok(Some(result))
}

/// Deliver one frame the way the receiver has negotiated it, from segment `from` on.
#[inline]
fn deliver(
    receiver: &mut Receiver<'_, '_>,
    features: u64,
    counters: &mut Counters,
    scratch: &mut Scratch,
    head: &Head,
    mut rest: Rest<'_, '_>,
    from: u16,
) -> Result<Outcome, RingFault> {
    if head.header.is_plain() {
        return whole(receiver, counters, head, &mut rest);
    }
    let Some((plan, offload)) = plan_for(head, &rest, features) else {
        return Ok(Outcome::Dropped(|drops| &mut drops.untranslatable));
    };
    if plan == Plan::PassThrough {
        return whole(receiver, counters, head, &mut rest);
    }
    let Some(mut translated) = scratch.translate(plan, &offload, head, &mut rest) else {
        return Ok(Outcome::Dropped(|drops| &mut drops.untranslatable));
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
#[inline]
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
        Delivery::Small => Outcome::Dropped(|drops| &mut drops.receiver_small),
    })
}
