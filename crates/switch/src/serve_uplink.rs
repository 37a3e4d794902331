//! Receives frames from an uplink's queues and forwards them.

use vhost::fault::Fault;
use vhost::net_header::{GSO_NONE, NEEDS_CSUM, NetHeader};

use crate::batch_entry::Target;
use crate::capture::Direction;
use crate::context::WorkerContext;
use crate::control::Loss;
use crate::deferred::Deferred;
use crate::frame::{Head, Rest};
use crate::guard::Checked;
use crate::limits::BURST;
use crate::multicast::Origin;
use crate::port::Port;
use crate::resolve::Source;
use crate::switch::{Switch, Visit};
use crate::uplink::{Queue, TakenIn, Uplink};

impl Switch {
    /// Move what has come in by the queues that this worker reads, up to one burst a queue.
    pub(crate) fn serve_uplink(
        &self,
        context: &mut WorkerContext,
        number: u16,
        port: &Port,
        uplink: &Uplink,
    ) -> Result<Visit, Fault> {
        let mut visit = Visit::default();
        for (pair, queue) in uplink.queues().enumerate() {
            if self.readers.worker(number, pair) == context.worker {
                let one = self.serve_queue(context, (number, pair), port, queue)?;
                visit.moved += one.moved;
                visit.more |= one.more;
            }
        }
        Ok(visit)
    }

    fn serve_queue(
        &self,
        context: &mut WorkerContext,
        (number, pair): (u16, usize),
        port: &Port,
        queue: &Queue,
    ) -> Result<Visit, Fault> {
        let mut visit = Visit::default();
        let mut buffer = std::mem::take(&mut context.buffer);
        let TakenIn {
            counters,
            teacher,
            sampler,
            peers,
        } = &mut *queue.taken_in();
        teacher.begin(context.seconds, &self.table);
        let mut source = Source::new(number, u32::MAX, teacher);
        let end = loop {
            if visit.moved == u32::from(BURST) {
                visit.more = true;
                break Ok(visit);
            }
            match queue.receive(&mut buffer) {
                Ok(Some(received)) => {
                    visit.moved += 1;
                    counters.tx_frames += 1;
                    let bytes = received.1.len() as u64;
                    counters.tx_bytes += bytes;
                    match self.take_in(context, &mut source, (port, pair), received) {
                        Ok(Target::Port(to)) => peers.add(to, 1, bytes),
                        Ok(_) => {}
                        Err(loss) => counters.drops.count(loss),
                    }
                }
                Ok(None) => break Ok(visit),
                Err(error) => break Err(Fault::Host(error)),
            }
        };
        context.buffer = buffer;
        if visit.moved > 0 {
            counters.bursts.note(visit.moved.into());
            counters.count_latency(sampler.next().then_some(context.now));
        }
        end
    }

    /// Pass a frame on; returns whom it was for.
    fn take_in(
        &self,
        context: &mut WorkerContext,
        source: &mut Source<'_>,
        (port, pair): (&Port, usize),
        (header, frame): (NetHeader, &[u8]),
    ) -> Result<Target, Loss> {
        let (mut head, rest) = Head::of_private(header, frame).ok_or(Loss::BadLength)?;
        // The kernel is trusted to describe its frames; the check makes its header one that may
        // be passed on. Frames merged by a network card, to be cut but with full checksums, are
        // none that any guest may get as they are (5.1.6.4.1): they stay as they are here, and
        // are cut for every receiver.
        if header.flags & NEEDS_CSUM != 0 || header.gso_type == GSO_NONE {
            let checked = header.checked(head.length, u64::MAX);
            head.start = head
                .start
                .with_header(checked.map_err(|_| Loss::Untranslatable)?);
        }
        let mut rest = Rest::Private(rest);
        let checked = match &port.guard {
            Some(guard) => guard.enter(&mut head, |to| rest.read(to))?,
            None => Checked::default(),
        };
        if port.watched {
            let shown = std::iter::once((&head, rest, checked));
            self.show(context, (source.port, pair), Direction::Sent, shown);
        }
        let target = self.resolve(&head, checked.tci.vlan(), context.seconds, source);
        match target {
            Target::Port(to) => self.deliver_one(context, to, pair, &head, &rest, checked)?,
            Target::Flood => {
                let origin = Origin {
                    port: source.port,
                    pair,
                    deferred: &Deferred::default(),
                    limits: &port.limits,
                    checked,
                };
                // Of what the world sends to groups, most is for nobody here.
                let _heard = self.steering(context, origin, &head, &rest)?;
            }
            Target::Nowhere(loss) => return Err(loss),
        }
        Ok(target)
    }
}
