//! From a transmit ring to wherever its frames go.

use arrayvec::ArrayVec;
use vhost::backend::at;
use vhost::chain::Batch;
use vhost::copy::Cursor;
use vhost::fault::{Fault, RingFault};
use vhost::features::header_size;
use vhost::memory::GuestMemory;
use vhost::ring::Ring;

use crate::books::{Books, Teacher};
use crate::capture::Direction;
use crate::control::{Counters, Loss};
use crate::deliver::{End, count_sent, to_guest};
use crate::desk::Desk;
use crate::frame::Head;
use crate::guard::{Checked, Cost, Outgoing, Snapshot, Way, passage};
use crate::hold::{Full, Held, InRing};
use crate::job::{Job, Target};
use crate::limits::{BURST, MAX_LEARNT_PER_PORT};
use crate::multicast::Origin;
use crate::port::{Guest, Kind, Port, publish, transmit_ring};
use crate::resolve::Source;
use crate::sender::Sender;
use crate::switch::{Switch, Visit};
use crate::uplink::Uplink;

impl Switch {
    pub(crate) fn serve_guest(
        &self,
        desk: &mut Desk,
        number: u16,
        port: &Port,
        guest: &Guest,
    ) -> Result<Visit, Fault> {
        let (guard, limits) = (port.guard.as_deref(), &port.limits);
        let must_wait = limits
            .send
            .as_ref()
            .is_some_and(|rates| rates.wait(desk.now).is_some());
        let (memory, features) = (guest.backend.memory(), guest.backend.features());
        let mut visit = Visit::default();
        let pairs = guest.backend.pairs();
        for pair in self.readers.pairs(number, desk.worker, pairs) {
            let number_of_ring = transmit_ring(pair);
            let Some(mut vring) = guest.backend.vring(number_of_ring) else {
                continue;
            };
            let (ring, books) = vring.parts_mut();
            let Books {
                held,
                peers,
                counters,
                teacher,
                sampler,
                sent,
                ..
            } = books;
            let mut delivered = 0;
            if !held.aside.is_empty() {
                delivered = self.deliver_aside(desk, pair, held, counters, sampler);
                visit.moved += delivered;
            }
            let Some(ring) = ring else {
                continue;
            };
            if must_wait {
                continue;
            }
            if delivered == 0
                && self
                    .is_blocked(desk, pair, held, ring)
                    .map_err(at(number_of_ring))?
            {
                continue;
            }
            let waits_since = held.in_ring.as_ref().map(|in_ring| in_ring.since);
            let mut sender = Sender {
                port: number,
                pair,
                ring,
                held,
                peers,
                counters,
                guard,
                limits,
                watched: port.watched,
            };
            let mut room = std::mem::take(&mut desk.snapshots);
            let served = self.serve_ring(desk, &mut sender, memory, features, teacher, &mut room);
            desk.snapshots = room;
            let served = served.map_err(at(number_of_ring))?;
            visit.moved += served.moved;
            visit.more |= served.more;
            *sent = sent.saturating_add(delivered + served.moved);
            let measured = served.moved > 0 && sampler.next();
            publish(&mut vring).map_err(at(number_of_ring))?;
            if served.moved > 0 {
                let since = measured.then_some(waits_since.unwrap_or(desk.now));
                let counters = &mut vring.state.counters;
                counters.bursts.note(served.moved.into());
                counters.count_latency(since);
            }
        }
        Ok(visit)
    }

    /// Whether a ring's first frame still waits and nothing new is behind it.
    #[inline]
    fn is_blocked(
        &self,
        desk: &Desk,
        pair: usize,
        held: &Held,
        ring: &Ring,
    ) -> Result<bool, RingFault> {
        let Some(in_ring) = &held.in_ring else {
            return Ok(false);
        };
        let mut full = in_ring.full.iter();
        if held.is_overdue(desk.now) || full.any(|to| self.worth_a_try(desk, *to, pair)) {
            return Ok(false);
        }
        match in_ring.seen {
            Some(seen) => Ok(ring.available()? <= seen),
            None => Ok(true),
        }
    }

    fn serve_ring(
        &self,
        desk: &mut Desk,
        sender: &mut Sender<'_>,
        memory: &GuestMemory,
        features: u64,
        teacher: &mut Teacher,
        room: &mut [Snapshot],
    ) -> Result<Visit, RingFault> {
        sender.ring.suppress_kicks();
        let mut batch = Batch::new();
        sender.ring.collect(memory, BURST, &mut batch)?;
        let mut jobs: ArrayVec<Job<'_, '_>, { BURST as usize }> = ArrayVec::new();
        let now = desk.seconds;
        teacher.begin(now, &self.table);
        let mut source = Source::new(sender.port, MAX_LEARNT_PER_PORT, teacher);
        let mut room = room.iter_mut();
        // Of many residents, a burst's are asked for together before the first is waited for.
        let ahead = self.table.is_large();
        for chain in batch.chains() {
            let mut rest = Cursor::new(batch.spans(chain));
            let head = Head::read(&mut rest, chain.bytes, header_size(features), features)?;
            let mut job = Job {
                chain: chain.head,
                head: head.unwrap_or_default(),
                rest,
                target: Target::Nowhere(Loss::BadLength),
                refused: head.is_none().then_some(Loss::BadLength),
                snapshot: None,
                segments: 0,
            };
            if let (Some(guard), None) = (sender.guard, job.refused) {
                job.refused = job.admit(guard, room.next()).err();
            }
            if ahead {
                self.table.prefetch(job.destination());
            } else {
                self.resolve_job(&mut job, now, &mut source);
            }
            jobs.push(job);
        }
        if ahead {
            for job in &mut jobs {
                self.resolve_job(job, now, &mut source);
            }
        }
        let rates = sender.limits.send.as_deref();
        if let Some(rates) = rates {
            let within = rates.within(desk.now, costs(&jobs));
            sender.counters.limited += u64::from(within < jobs.len());
            jobs.truncate(within);
        }
        let taken = self.forward(desk, sender, &mut jobs);
        if let Some(rates) = rates {
            rates.charge(desk.now, costs(&jobs).take(taken.into()));
        }
        if sender.watched {
            let taken = jobs.iter().take(taken.into()).map(Job::shown);
            self.show(desk, (sender.port, sender.pair), Direction::Sent, taken);
        }
        sender.ring.consume(taken);
        Ok(Visit {
            moved: u32::from(taken),
            more: usize::from(taken) == jobs.len() && !jobs.is_empty(),
        })
    }

    /// Find out where a frame goes, if it may go anywhere.
    #[inline(always)]
    fn resolve_job(&self, job: &mut Job<'_, '_>, now: u32, source: &mut Source<'_>) {
        job.target = match job.refused {
            None => self.resolve(&job.head, job.checked().tci.vlan(), now, source),
            Some(loss) => Target::Nowhere(loss),
        };
    }

    /// Forward jobs in order until all are done or one must wait in the ring; returns how many
    /// are done.
    fn forward(&self, desk: &mut Desk, sender: &mut Sender<'_>, jobs: &mut [Job<'_, '_>]) -> u16 {
        let mut full = Full::new();
        let before = sender.held.in_ring.take();
        if let (Some(in_ring), Some(first)) = (&before, jobs.first_mut()) {
            first.go_on(in_ring);
        }
        let mut done = 0;
        while let Some(target) = jobs.get(done).map(|job| job.target) {
            let run = jobs.get_mut(done..).unwrap_or_default();
            let length = match &sender.guard {
                None => run.iter().take_while(|job| job.target == target).count(),
                Some(_) => alike(run),
            };
            let run = run.get_mut(..length).unwrap_or_default();
            let passed = match target {
                Target::Port(to) if sender.must_wait(to, &full) => 0,
                Target::Port(to) => {
                    let (frames, bytes) = (sender.counters.tx_frames, sender.counters.tx_bytes);
                    let passed = self.unicast(desk, sender, run, to, &mut full);
                    let frames = sender.counters.tx_frames.wrapping_sub(frames);
                    let bytes = sender.counters.tx_bytes.wrapping_sub(bytes);
                    sender.peers.add(to, frames, bytes);
                    passed
                }
                Target::Flood => self.flood_run(desk, sender, run),
                Target::Nowhere(loss) => drop_run(sender, run, loss),
            };
            done += passed;
            if passed == length {
                continue;
            }
            let known = before
                .as_ref()
                .map_or(0, InRing::count)
                .saturating_sub(done);
            let left = jobs.get(done..).unwrap_or_default();
            let made_way = sender.make_way(left, &full, known, desk.now);
            if made_way == 0 {
                break;
            }
            done += made_way;
        }
        if done < jobs.len() || before.is_some() {
            sender.wait_in_ring(jobs, done, before.as_ref(), full, desk.now);
        }
        u16::try_from(done).unwrap_or(BURST)
    }

    /// Deliver a run of frames to one port; returns how many are done with. The next one has no
    /// room, and the port is added to `full`.
    #[inline]
    fn unicast(
        &self,
        desk: &mut Desk,
        sender: &mut Sender<'_>,
        run: &mut [Job<'_, '_>],
        to: u16,
        full: &mut Full,
    ) -> usize {
        let Some(port) = self.port(to) else {
            return self.send_away(desk, sender, run);
        };
        let way = match (sender.guard, &port.guard) {
            (None, None) => Way::Untagged,
            (_, guard) => {
                let checked = run.first().map_or_else(Checked::default, Job::checked);
                match passage(guard.as_deref(), checked) {
                    Ok(way) => way,
                    Err(loss) => return drop_run(sender, run, loss),
                }
            }
        };
        let guest = match &port.kind {
            Kind::Guest(guest) => guest,
            Kind::Uplink(uplink) => {
                if port.watched {
                    let shown = run.iter().map(Job::shown);
                    self.show(desk, (to, sender.pair), Direction::Received, shown);
                }
                return send_out(sender, run, way, uplink);
            }
        };
        let rates = port.limits.receive.as_deref();
        let within = rates.map_or(run.len(), |rates| rates.within(desk.now, costs(run)));
        let (run, beyond) = run.split_at_mut(within.min(run.len()));
        if run.is_empty() {
            return drop_beyond(sender, beyond, port);
        }
        let (done, end) = to_guest(guest, desk, sender, run, way);
        if let Some(rates) = rates {
            rates.charge(desk.now, costs(run).take(done));
        }
        if port.watched {
            let shown = run.iter().take(done).map(Job::shown);
            self.show(desk, (to, sender.pair), Direction::Received, shown);
        }
        let left = run.get(done..).unwrap_or_default();
        match end {
            Ok(End::Done) => {}
            Ok(End::NoRoom) => {
                full.push(to);
                return done;
            }
            Ok(End::Down) => _ = drop_run(sender, left, Loss::ReceiverDown),
            Ok(End::Stuck) => _ = drop_run(sender, left, Loss::ReceiverStuck),
            Err(fault) => {
                desk.faults.push((to, fault));
                drop_run(sender, left, Loss::ReceiverDown);
            }
        }
        run.len() + drop_beyond(sender, beyond, port)
    }

    /// Deliver frames that are not for one port. Nobody is waited for.
    fn flood_run(
        &self,
        desk: &mut Desk,
        sender: &mut Sender<'_>,
        run: &mut [Job<'_, '_>],
    ) -> usize {
        for job in run.iter() {
            let origin = Origin {
                port: sender.port,
                pair: sender.pair,
                aside: &sender.held.aside,
                limits: sender.limits,
                checked: job.checked(),
            };
            match self.spread(desk, origin, &job.head, &job.rest()) {
                Ok(heard) => {
                    sender.finish(job.chain, job.head.length);
                    sender.counters.unheard += u64::from(!heard);
                }
                Err(loss) => sender.lose(job.chain, job.head.length, loss),
            }
        }
        run.len()
    }
}

/// How many of the first jobs have the same target in the same VLAN.
fn alike(run: &[Job<'_, '_>]) -> usize {
    let of = |job: &Job<'_, '_>| (job.target, job.checked());
    let first = run.first().map(of);
    run.iter().take_while(|job| Some(of(job)) == first).count()
}

fn drop_run(sender: &mut Sender<'_>, run: &[Job<'_, '_>], loss: Loss) -> usize {
    for job in run {
        sender.lose(job.chain, job.head.length, loss);
    }
    run.len()
}

/// Frames that are over what the receiver may receive.
#[inline]
fn drop_beyond(sender: &mut Sender<'_>, run: &[Job<'_, '_>], receiver: &Port) -> usize {
    if !run.is_empty() {
        for job in run {
            sender.finish(job.chain, job.head.length);
        }
        receiver.lose(sender.pair, Loss::ReceiveLimit, run.len());
    }
    run.len()
}

/// What each frame counts for.
fn costs(run: &[Job<'_, '_>]) -> impl Iterator<Item = Cost> {
    run.iter().map(|job| Cost::of(&job.head))
}

fn send_out(sender: &mut Sender<'_>, run: &[Job<'_, '_>], way: Way, uplink: &Uplink) -> usize {
    // Nobody waits for the kernel with a lock in hand.
    let mut counters = Counters::default();
    let queue = uplink.queue(sender.pair);
    for job in run {
        match Outgoing::new(way, job.checked(), &job.head, &job.rest()) {
            Some(out) => {
                let sent = queue.send(&out.head, &out.rest());
                count_sent(sent, &out.head, &mut counters);
            }
            None => counters.drops.count(Loss::Untranslatable),
        }
        sender.finish(job.chain, job.head.length);
    }
    queue.flush();
    let mut sum = queue.sent_out();
    *sum = sum.plus(&counters);
    run.len()
}
