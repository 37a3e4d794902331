//! Serves a guest's transmit rings: reads a burst of frames and forwards each to its destination.

mod run;

use arrayvec::ArrayVec;
use vhost::backend::ring_fault;
use vhost::chain::Batch;
use vhost::copy::Cursor;
use vhost::fault::{Fault, RingFault};
use vhost::features::header_size;
use vhost::memory::GuestMemory;
use vhost::ring::Ring;

use crate::backpressure::{Backlog, Full, InRing};
use crate::batch_entry::{BatchEntry, Target};
use crate::capture::Direction;
use crate::context::WorkerContext;
use crate::control::DropReason;
use crate::deliver::{End, to_guest};
use crate::frame::Head;
use crate::guard::{Checked, Snapshot, Tagging, egress_tagging};
use crate::limits::{BURST, MAX_LEARNT_PER_PORT};
use crate::multicast::FloodSource;
use crate::port::{Guest, Kind, Port, publish, transmit_ring};
use crate::resolve::Source;
use crate::ring_state::{LearnCache, RingState};
use crate::sender::Sender;
use crate::switch::{Served, Switch};
use run::{costs, drop_beyond, drop_run, same_destination, send_out};

impl Switch {
    pub(crate) fn serve_guest(
        &self,
        context: &mut WorkerContext,
        number: u16,
        port: &Port,
        guest: &Guest,
    ) -> Result<Served, Fault> {
        let (guard, limits) = (port.guard.as_deref(), &port.limits);
        let must_wait = limits
            .send
            .as_ref()
            .is_some_and(|rates| rates.wait(context.now).is_some());
        let (memory, features) = (guest.backend.memory(), guest.backend.features());
        let mut total = Served::default();
        let pairs = guest.backend.pairs();
        for pair in self.steering.pairs(number, context.worker, pairs) {
            let number_of_ring = transmit_ring(pair);
            let Some(mut vring) = guest.backend.vring(number_of_ring) else {
                continue;
            };
            let (ring, ring_state) = vring.parts_mut();
            let RingState {
                backlog,
                peers,
                remote_peers,
                counters,
                learn_cache,
                sampler,
                sent,
                ..
            } = ring_state;
            let mut delivered = 0;
            if !backlog.deferred.is_empty() {
                delivered = self.deliver_deferred(context, pair, backlog, counters, sampler);
                total.moved += delivered;
            }
            let Some(ring) = ring else {
                continue;
            };
            if must_wait {
                continue;
            }
            if delivered == 0
                && self
                    .is_blocked(context, pair, backlog, ring)
                    .map_err(ring_fault(number_of_ring))?
            {
                continue;
            }
            let waits_since = backlog.in_ring.as_ref().map(|in_ring| in_ring.since);
            let mut sender = Sender {
                port: number,
                pair,
                ring,
                backlog,
                peers,
                remote_peers,
                counters,
                guard,
                limits,
                observed: port.observed,
            };
            let mut room = std::mem::take(&mut context.snapshots);
            let served = self.serve_ring(
                context,
                &mut sender,
                memory,
                features,
                learn_cache,
                &mut room,
            );
            context.snapshots = room;
            let served = served.map_err(ring_fault(number_of_ring))?;
            total.moved += served.moved;
            total.more |= served.more;
            *sent = sent.saturating_add(delivered + served.moved);
            let measured = served.moved > 0 && sampler.next();
            publish(&mut vring).map_err(ring_fault(number_of_ring))?;
            if served.moved > 0 {
                let since = measured.then_some(waits_since.unwrap_or(context.now));
                let counters = &mut vring.state.counters;
                counters.bursts.note(served.moved.into());
                counters.count_latency(since);
            }
        }
        Ok(total)
    }

    /// Returns whether the ring's first frame still waits for its receiver and no frame behind it can
    /// be forwarded.
    #[inline]
    fn is_blocked(
        &self,
        context: &WorkerContext,
        pair: usize,
        backlog: &Backlog,
        ring: &Ring,
    ) -> Result<bool, RingFault> {
        let Some(in_ring) = &backlog.in_ring else {
            return Ok(false);
        };
        let mut full = in_ring.full.iter();
        if backlog.is_overdue(context.now) || full.any(|to| self.should_retry(context, *to, pair)) {
            return Ok(false);
        }
        match in_ring.seen {
            Some(seen) => Ok(ring.available()? <= seen),
            None => Ok(true),
        }
    }

    fn serve_ring(
        &self,
        context: &mut WorkerContext,
        sender: &mut Sender<'_>,
        memory: &GuestMemory,
        features: u64,
        learn_cache: &mut LearnCache,
        room: &mut [Snapshot],
    ) -> Result<Served, RingFault> {
        sender.ring.disable_kicks();
        let mut batch = Batch::new();
        sender.ring.collect(memory, BURST, &mut batch)?;
        let mut entries: ArrayVec<BatchEntry<'_, '_>, { BURST as usize }> = ArrayVec::new();
        let now = context.seconds;
        learn_cache.begin(now, &self.table);
        let mut source = Source::new(sender.port, MAX_LEARNT_PER_PORT, learn_cache);
        let mut room = room.iter_mut();
        // In a large FDB, prefetch the entries of all frames before the first look-up, so that the
        // cache misses overlap.
        let ahead = self.table.is_large();
        for chain in batch.chains() {
            let mut rest = Cursor::new(batch.spans(chain));
            let head = Head::read(&mut rest, chain.bytes, header_size(features), features)?;
            let mut entry = BatchEntry {
                chain: chain.head,
                head: head.unwrap_or_default(),
                rest,
                target: Target::Nowhere(DropReason::BadLength),
                refused: head.is_none().then_some(DropReason::BadLength),
                snapshot: None,
                segments: 0,
            };
            if let (Some(guard), None) = (sender.guard, entry.refused) {
                entry.refused = entry.admit(guard, room.next()).err();
            }
            if ahead {
                self.table.prefetch(entry.destination());
            } else {
                self.resolve_entry(&mut entry, now, &mut source);
            }
            entries.push(entry);
        }
        if ahead {
            for entry in &mut entries {
                self.resolve_entry(entry, now, &mut source);
            }
        }
        let rates = sender.limits.send.as_deref();
        if let Some(rates) = rates {
            let within = rates.within(context.now, costs(&entries));
            sender.counters.limited += u64::from(within < entries.len());
            entries.truncate(within);
        }
        let taken = self.forward(context, sender, &mut entries);
        if let Some(rates) = rates {
            rates.charge(context.now, costs(&entries).take(taken.into()));
        }
        if sender.observed {
            let taken = entries
                .iter()
                .take(taken.into())
                .map(BatchEntry::observed_frame);
            self.observe(context, (sender.port, sender.pair), Direction::Sent, taken);
        }
        sender.ring.consume(taken);
        Ok(Served {
            moved: u32::from(taken),
            more: usize::from(taken) == entries.len() && !entries.is_empty(),
        })
    }

    /// Sets the target of a frame: from the FDB, or none if its guard refused it.
    #[inline(always)]
    fn resolve_entry(&self, entry: &mut BatchEntry<'_, '_>, now: u32, source: &mut Source<'_>) {
        entry.target = match entry.refused {
            None => self.resolve(&entry.head, entry.checked().tci.vlan(), now, source),
            Some(reason) => Target::Nowhere(reason),
        };
    }

    /// Forwards entries in order until all are completed or one must wait in the ring; returns the
    /// number of completed entries.
    fn forward(
        &self,
        context: &mut WorkerContext,
        sender: &mut Sender<'_>,
        entries: &mut [BatchEntry<'_, '_>],
    ) -> u16 {
        let mut full = Full::new();
        let before = sender.backlog.in_ring.take();
        if let (Some(in_ring), Some(first)) = (&before, entries.first_mut()) {
            first.resume_segmentation(in_ring);
        }
        let mut done = 0;
        while let Some(target) = entries.get(done).map(|entry| entry.target) {
            let run = entries.get_mut(done..).unwrap_or_default();
            let length = match &sender.guard {
                None => run
                    .iter()
                    .take_while(|entry| entry.target == target)
                    .count(),
                Some(_) => same_destination(run),
            };
            let run = run.get_mut(..length).unwrap_or_default();
            let passed = match target {
                Target::Port(to) if sender.must_wait(to, &full) => 0,
                Target::Port(to) => {
                    let (frames, bytes) = (sender.counters.tx_frames, sender.counters.tx_bytes);
                    let passed = self.unicast(context, sender, run, to, &mut full);
                    let frames = sender.counters.tx_frames.wrapping_sub(frames);
                    let bytes = sender.counters.tx_bytes.wrapping_sub(bytes);
                    sender.peers.add(to, frames, bytes);
                    passed
                }
                Target::Flood => self.flood_run(context, sender, run),
                Target::Nowhere(reason) => drop_run(sender, run, reason),
            };
            done += passed;
            if passed == length {
                continue;
            }
            let known = before
                .as_ref()
                .map_or(0, InRing::count)
                .saturating_sub(done);
            let left = entries.get(done..).unwrap_or_default();
            let deferred = sender.defer_blocking(left, &full, known, context.now);
            if deferred == 0 {
                break;
            }
            done += deferred;
        }
        if done < entries.len() || before.is_some() {
            sender.wait_in_ring(entries, done, before.as_ref(), full, context.now);
        }
        u16::try_from(done).unwrap_or(BURST)
    }

    /// Delivers a run of frames to one port; returns the number of completed frames. If that is not
    /// all of them, the port has no room for the next one and is added to `full`.
    #[inline]
    fn unicast(
        &self,
        context: &mut WorkerContext,
        sender: &mut Sender<'_>,
        run: &mut [BatchEntry<'_, '_>],
        to: u16,
        full: &mut Full,
    ) -> usize {
        let Some(port) = self.port(to) else {
            return self.send_migrated(context, sender, run);
        };
        let tagging = match (sender.guard, &port.guard) {
            (None, None) => Tagging::Untagged,
            (_, guard) => {
                let checked = run
                    .first()
                    .map_or_else(Checked::default, BatchEntry::checked);
                match egress_tagging(guard.as_deref(), checked) {
                    Ok(tagging) => tagging,
                    Err(reason) => return drop_run(sender, run, reason),
                }
            }
        };
        let guest = match &port.kind {
            Kind::Guest(guest) => guest,
            Kind::Uplink(uplink) => {
                if port.observed {
                    let observed = run.iter().map(BatchEntry::observed_frame);
                    self.observe(context, (to, sender.pair), Direction::Received, observed);
                }
                return send_out(sender, run, tagging, uplink);
            }
        };
        let rates = port.limits.receive.as_deref();
        let within = rates.map_or(run.len(), |rates| rates.within(context.now, costs(run)));
        let (run, beyond) = run.split_at_mut(within.min(run.len()));
        if run.is_empty() {
            return drop_beyond(sender, beyond, port);
        }
        let (done, end) = to_guest(guest, context, sender, run, tagging);
        if let Some(rates) = rates {
            rates.charge(context.now, costs(run).take(done));
        }
        if port.observed {
            let observed = run.iter().take(done).map(BatchEntry::observed_frame);
            self.observe(context, (to, sender.pair), Direction::Received, observed);
        }
        let left = run.get(done..).unwrap_or_default();
        match end {
            Ok(End::Done) => {}
            Ok(End::NoRoom) => {
                full.push(to);
                return done;
            }
            Ok(End::Down) => _ = drop_run(sender, left, DropReason::ReceiverDown),
            Ok(End::Stuck) => _ = drop_run(sender, left, DropReason::ReceiverStuck),
            Err(fault) => {
                context.faults.push((to, fault));
                drop_run(sender, left, DropReason::ReceiverDown);
            }
        }
        run.len() + drop_beyond(sender, beyond, port)
    }

    /// Floods a run of frames. Ports without room lose them; the sender does not wait.
    fn flood_run(
        &self,
        context: &mut WorkerContext,
        sender: &mut Sender<'_>,
        run: &mut [BatchEntry<'_, '_>],
    ) -> usize {
        for entry in run.iter() {
            let origin = FloodSource {
                port: sender.port,
                pair: sender.pair,
                deferred: &sender.backlog.deferred,
                limits: sender.limits,
                checked: entry.checked(),
            };
            match self.flood(context, origin, &entry.head, &entry.rest()) {
                Ok(heard) => {
                    sender.finish(entry.chain, entry.head.length);
                    sender.counters.multicast_without_members += u64::from(!heard);
                }
                Err(reason) => sender.drop_frame(entry.chain, entry.head.length, reason),
            }
        }
        run.len()
    }
}
