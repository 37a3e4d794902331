//! From a transmit ring to wherever its frames go.

use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use vhost::backend::at;
use vhost::chain::Batch;
use vhost::copy::Cursor;
use vhost::fault::{Fault, RingFault};
use vhost::features::header_size;
use vhost::memory::GuestMemory;
use vhost::ring::Ring;

use crate::control::{Counters, Loss};
use crate::deliver::{Run, count_sent, to_guest};
use crate::frame::{Head, Rest, Simple};
use crate::hold::{Held, Room, Waiting};
use crate::limits::BURST;
use crate::mac::Mac;
use crate::port::{Guest, Kind, Teacher, publish, transmit_ring};
use crate::switch::{Switch, Visit};
use crate::uplink::Uplink;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Port(u16),
    Flood,
    /// Back where it came from.
    Hairpin,
    /// It has no length a frame can have.
    Nowhere,
}

/// One frame of a burst.
#[derive(Debug)]
pub(crate) struct Job<'a, 'm> {
    pub(crate) chain: u16,
    pub(crate) head: Head,
    pub(crate) rest: Cursor<'a, 'm>,
    pub(crate) target: Target,
    /// Segments delivered in an earlier attempt.
    pub(crate) segments: u16,
}

impl<'m> Job<'_, 'm> {
    /// The frame as a simple one, if it is.
    #[inline(always)]
    pub(crate) fn simple(&self) -> Option<Simple<'m>> {
        Simple::new(&self.head, &self.rest)
    }
}

/// A sending ring and its owner's books, while the port is out of the table.
pub(crate) struct Sender<'p> {
    pub(crate) port: u16,
    pub(crate) ring: &'p mut Ring,
    pub(crate) held: &'p mut Held,
    pub(crate) counters: &'p mut Counters,
}

impl Sender<'_> {
    /// The frames are done with: hand their chains back.
    #[inline]
    pub(crate) fn finish_run(&mut self, jobs: &[Job<'_, '_>]) {
        let mut bytes = 0;
        for job in jobs {
            self.ring.put_used(job.chain, 0);
            bytes += u64::from(job.head.length);
        }
        self.counters.tx_frames += jobs.len() as u64;
        self.counters.tx_bytes += bytes;
    }

    /// The frame is done with: hand its chain back.
    #[inline]
    pub(crate) fn finish(&mut self, chain: u16, length: u32) {
        self.ring.put_used(chain, 0);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += u64::from(length);
    }

    /// The frame is lost: hand its chain back.
    #[inline]
    pub(crate) fn lose(&mut self, chain: u16, length: u32, loss: Loss) {
        self.finish(chain, length);
        self.counters.drops.count(loss);
    }
}

impl Switch {
    pub(crate) fn serve_guest(
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
            publish(vring, counters).map_err(at(number_of_ring))?;
        }
        guest.sent = guest.sent.saturating_add(visit.moved);
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
            let head = head.unwrap_or_default();
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

    /// Note that an address lives at a port, and tell the port it has moved from.
    #[inline]
    pub(crate) fn note_source(&mut self, source: Mac, at: u16, teacher: &mut Teacher) {
        if let Some(left) = teacher.note(source, at, self.seconds, &mut self.table) {
            if let Some(port) = self.port_mut(left) {
                port.teacher.forget_last();
            }
        }
    }

    /// Note a frame's source and find its destination. `last` remembers the answer for the next
    /// frame of the burst, which mostly has the same.
    #[inline]
    pub(crate) fn resolve(
        &mut self,
        head: &Head,
        from: u16,
        teacher: &mut Teacher,
        last: &mut Option<(Mac, Target)>,
    ) -> Target {
        self.note_source(head.source(), from, teacher);
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
    pub(crate) fn forward(
        &mut self,
        sender: &mut Sender<'_>,
        jobs: &mut [Job<'_, '_>],
        again: bool,
    ) -> u16 {
        let mut done = 0;
        // Receivers that had no room for a frame that was held before: it stays the first.
        let mut full: ArrayVec<u16, { BURST as usize }> = ArrayVec::new();
        while let Some(first) = jobs.get(done).map(|job| job.target) {
            let run = jobs.get_mut(done..).unwrap_or_default();
            let length = run.iter().take_while(|job| job.target == first).count();
            let run = run.get_mut(..length).unwrap_or_default();
            let held = sender.held.len();
            done += match first {
                Target::Port(to) if full.contains(&to) => {
                    hold_run(sender, run, to, self.now, again)
                }
                Target::Port(to) => self.unicast(sender, run, to, again),
                Target::Flood => self.flood_run(sender, run),
                Target::Hairpin => drop_run(sender, run, Loss::Hairpin),
                Target::Nowhere => drop_run(sender, run, Loss::BadLength),
            };
            if let (true, Target::Port(to)) = (again && sender.held.len() > held, first) {
                // A burst has no more runs than frames.
                let _ = full.try_push(to);
            }
            if sender.held.is_stalled(self.now) && !again {
                break;
            }
        }
        u16::try_from(done).unwrap_or(BURST)
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
            return drop_run(sender, run, Loss::ReceiverDown);
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
                done + drop_run(sender, left, Loss::ReceiverDown)
            }
            Ok(Run::Stuck(done)) => {
                let left = run.get(done..).unwrap_or_default();
                done + drop_run(sender, left, Loss::ReceiverStuck)
            }
            Ok(Run::NoRoom(done)) => {
                let left = run.get(done..).unwrap_or_default();
                done + hold_run(sender, left, to, now, again)
            }
            Err((done, fault)) => {
                self.faults.push((to, fault));
                let left = run.get(done..).unwrap_or_default();
                done + drop_run(sender, left, Loss::ReceiverDown)
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
}

fn drop_run(sender: &mut Sender<'_>, run: &[Job<'_, '_>], loss: Loss) -> usize {
    for job in run {
        sender.lose(job.chain, job.head.length, loss);
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
            Room::Drop => sender.lose(job.chain, job.head.length, Loss::ReceiverStuck),
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
