//! Receives frames from an uplink's queues and forwards them.

use crate::batch_entry::Target;
use crate::capture::Direction;
use crate::context::WorkerContext;
use crate::control::DropReason;
use crate::deferred::Deferred;
use crate::fdb::FdbKey;
use crate::frame::{Head, Rest};
use crate::guard::Checked;
use crate::limits::BURST;
use crate::multicast::FloodSource;
use crate::port::Port;
use crate::resolve::Source;
use crate::switch::{Served, Switch};
use crate::uplink::{Ingress, Queue, Uplink};
use vhost::fault::Fault;
use vhost::net_header::{GSO_NONE, NEEDS_CSUM, NetHeader};

impl Switch {
    /// Forwards frames from the queues that this worker reads, up to one burst a queue.
    pub(crate) fn serve_uplink(
        &self,
        context: &mut WorkerContext,
        number: u16,
        port: &Port,
        uplink: &Uplink,
    ) -> Result<Served, Fault> {
        let mut served = Served::default();
        for (pair, queue) in uplink.queues().enumerate() {
            if self.steering.worker(number, pair) == context.worker {
                let one = self.serve_queue(context, (number, pair), port, queue)?;
                served.moved += one.moved;
                served.more |= one.more;
            }
        }
        Ok(served)
    }

    fn serve_queue(
        &self,
        context: &mut WorkerContext,
        (number, pair): (u16, usize),
        port: &Port,
        queue: &Queue,
    ) -> Result<Served, Fault> {
        let mut served = Served::default();
        let mut buffer = std::mem::take(&mut context.buffer);
        let Ingress {
            counters,
            learn_cache,
            sampler,
            peers,
            remote_senders,
        } = &mut *queue.ingress();
        learn_cache.begin(context.seconds, &self.table);
        let mut source = Source::new(number, u32::MAX, learn_cache);
        let end = loop {
            if served.moved == u32::from(BURST) {
                served.more = true;
                break Ok(served);
            }
            match queue.receive(&mut buffer) {
                Ok(Some(received)) => {
                    served.moved += 1;
                    counters.tx_frames += 1;
                    let bytes = received.1.len() as u64;
                    counters.tx_bytes += bytes;
                    match self.forward_received(context, &mut source, (port, pair), received) {
                        Ok((Target::Port(to), from)) => {
                            peers.add(to, 1, bytes);
                            remote_senders.add(to, from, bytes);
                        }
                        Ok(_) => {}
                        Err(reason) => counters.drops.count(reason),
                    }
                }
                Ok(None) => break Ok(served),
                Err(error) => break Err(Fault::Host(error)),
            }
        };
        context.buffer = buffer;
        if served.moved > 0 {
            counters.bursts.note(served.moved.into());
            counters.count_latency(sampler.next().then_some(context.now));
        }
        end
    }

    /// Forwards a received frame; returns its target and its source.
    fn forward_received(
        &self,
        context: &mut WorkerContext,
        source: &mut Source<'_>,
        (port, pair): (&Port, usize),
        (header, frame): (NetHeader, &[u8]),
    ) -> Result<(Target, FdbKey), DropReason> {
        let (mut head, rest) = Head::of_private(header, frame).ok_or(DropReason::BadLength)?;
        // The kernel is trusted to describe its frames; the check also reduces the header to fields that a
        // guest may receive. Frames that a network card has merged are GSO frames with full checksums,
        // which no guest may receive (5.1.6.4.1): their header stays unchanged here, and they are segmented
        // for every receiver.
        if header.flags & NEEDS_CSUM != 0 || header.gso_type == GSO_NONE {
            let checked = header.checked(head.length, u64::MAX);
            head.start = head
                .start
                .with_header(checked.map_err(|_| DropReason::Untranslatable)?);
        }
        let mut rest = Rest::Private(rest);
        let checked = match &port.guard {
            Some(guard) => guard.enter(&mut head, |to| rest.read(to))?,
            None => Checked::default(),
        };
        if port.observed {
            let observed = std::iter::once((&head, rest, checked));
            self.observe(context, (source.port, pair), Direction::Sent, observed);
        }
        let vlan = checked.tci.vlan();
        let target = self.resolve(&head, vlan, context.seconds, source);
        match target {
            Target::Port(to) => self.deliver_one(context, to, pair, &head, &rest, checked)?,
            Target::Flood => {
                let origin = FloodSource {
                    port: source.port,
                    pair,
                    deferred: &Deferred::default(),
                    limits: &port.limits,
                    checked,
                };
                // Most multicast frames from outside have no member here, so this is not counted.
                let _is_wanted = self.flood(context, origin, &head, &rest)?;
            }
            Target::Nowhere(reason) => return Err(reason),
        }
        Ok((target, FdbKey::new(head.source(), vlan)))
    }
}
