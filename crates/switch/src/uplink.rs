//! The way out of a network: a tap, or a packet socket on another interface of the host, with a
//! virtio-net header in front of each frame; or a socket of AF_XDP, without ([`crate::xdp`]).
//!
//! A tap may have several queues, which stand beside the queue pairs of VMs: a frame of a sender's pair
//! goes out by the queue of the same number, wrapped round, and one that comes in by a queue goes to the
//! pair of that number. The kernel keeps a flow to the queue by which it last saw it go out, so a flow
//! that answers another one comes back to the same pair. Each queue is read by one worker.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::PoisonError;

use rustix::io::Errno;
use vhost::fault::Fault;
use vhost::limits::MAX_FRAME;
use vhost::net_header::{GSO_NONE, NEEDS_CSUM, NetHeader};

use crate::batch_entry::Target;
use crate::capture::Direction;
use crate::context::WorkerContext;
use crate::control::{Counters, Loss, Peer, UplinkWay};
use crate::deferred::Deferred;
use crate::frame::{Head, Rest};
use crate::guard::Checked;
use crate::limits::BURST;
use crate::multicast::Origin;
use crate::packet;
use crate::peers::{self, Peers};
use crate::port::Port;
use crate::resolve::Source;
use crate::ring_state::{LearnCache, Sampler};
use crate::switch::{Switch, Visit};
use crate::sync::{Mutex, MutexGuard};
use crate::xdp::{self, Xdp};

/// An open tap or socket, in non-blocking mode.
#[derive(Debug)]
pub struct Uplink {
    way: UplinkWay,
    first: Queue,
    /// The other queues.
    more: Vec<Queue>,
}

/// One of its queues.
#[derive(Debug)]
pub(crate) struct Queue {
    out: OwnedFd,
    way: UplinkWay,
    /// Of a socket of AF_XDP whose memory has come.
    xdp: Option<Xdp>,
    /// Of frames sent out, by any worker.
    sent_out: Mutex<Counters>,
    /// Of frames taken in, by one worker.
    taken_in: Mutex<TakenIn>,
}

/// RingState of frames taken in.
#[derive(Debug, Default)]
struct TakenIn {
    counters: Counters,
    learn_cache: LearnCache,
    sampler: Sampler,
    peers: Peers,
}

/// Bytes to read a frame into: header, frame.
pub const BUFFER: usize = NetHeader::SIZE + MAX_FRAME as usize;

impl Uplink {
    /// Use a tap opened with `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`, a header of 12 bytes in
    /// little-endian order; or a socket.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn new(out: OwnedFd, way: UplinkWay) -> Result<Self, Errno> {
        Ok(Self {
            way,
            first: Queue::new(out, way)?,
            more: Vec::new(),
        })
    }

    /// Use one more queue of the same tap (`IFF_MULTI_QUEUE`); returns its number. Or the memory of
    /// frames of a socket of AF_XDP, which is no queue.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking, or mapped.
    pub fn add(&mut self, out: OwnedFd) -> Result<Option<usize>, Errno> {
        if let UplinkWay::Xdp(layout) = self.way {
            let first = &mut self.first;
            first.xdp = Some(Xdp::new(first.out.as_fd(), layout, out.as_fd())?);
            return Ok(None);
        }
        self.more.push(Queue::new(out, self.way)?);
        Ok(Some(self.more.len()))
    }

    /// Its queues, by their numbers.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Queue> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// The queue that frames of a pair go out by.
    pub(crate) fn queue(&self, pair: usize) -> &Queue {
        match pair % (1 + self.more.len()) {
            0 => &self.first,
            number => self.more.get(number - 1).unwrap_or(&self.first),
        }
    }

    /// Running totals.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.queues().fold(Counters::default(), |sum, queue| {
            sum.plus(&queue.sent_out()).plus(&queue.taken_in().counters)
        })
    }

    /// What came in for each port.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        let ring_state: Vec<_> = self.queues().map(Queue::taken_in).collect();
        peers::sum(ring_state.iter().map(|ring_state| &ring_state.peers))
    }

    /// A port is gone; its number may be another's one day.
    pub(crate) fn forget(&self, port: u16) {
        self.queues()
            .for_each(|queue| queue.taken_in().peers.forget(port));
    }
}

impl Queue {
    fn new(out: OwnedFd, way: UplinkWay) -> Result<Self, Errno> {
        // syscalls: ioctl
        rustix::io::ioctl_fionbio(&out, true)?;
        Ok(Self {
            out,
            way,
            xdp: None,
            sent_out: Mutex::default(),
            taken_in: Mutex::default(),
        })
    }

    /// The books of frames sent out.
    pub(crate) fn sent_out(&self) -> MutexGuard<'_, Counters> {
        self.sent_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken_in(&self) -> MutexGuard<'_, TakenIn> {
        self.taken_in.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Send one frame, or have it ready for [`flush`](Self::flush). Segments and checksums are left to
    /// the kernel where it takes a network header.
    ///
    /// # Errors
    /// The kernel's queue is full, the interface is down, or the frame is refused.
    pub(crate) fn send(&self, head: &Head, rest: &Rest<'_, '_>) -> Result<(), Errno> {
        let start = head.start.to_bytes();
        let (header, ethernet) = start.split_at(NetHeader::SIZE);
        let header = match self.way {
            UplinkWay::Tap => header,
            UplinkWay::Packet => header.get(..packet::HEADER).unwrap_or(header),
            UplinkWay::Xdp(_) => {
                let xdp = self.xdp.as_ref().ok_or(Errno::NETDOWN)?;
                return xdp.send(self.out.as_fd(), head, rest);
            }
        };
        match rest {
            Rest::Guest(cursor) => cursor.write_to(self.out.as_fd(), &[header, ethernet])?,
            Rest::Parts([first, second], cursor) => {
                cursor.write_to(self.out.as_fd(), &[header, ethernet, first, second])?
            }
            Rest::Private(bytes) => {
                let pieces = [header, ethernet, bytes].map(std::io::IoSlice::new);
                // syscalls: writev
                rustix::io::writev(&self.out, &pieces)?
            }
        };
        Ok(())
    }

    /// What was sent before goes out now.
    pub(crate) fn flush(&self) {
        if self.xdp.is_some() {
            xdp::flush(self.out.as_fd());
        }
    }

    /// Receive one frame: its header and its bytes. `Ok(None)` when there is none for now.
    ///
    /// # Errors
    /// The interface is down or gone.
    fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<(NetHeader, &'b [u8])>, Errno> {
        match self.way {
            UplinkWay::Tap => {}
            UplinkWay::Packet => return packet::receive(self.out.as_fd(), buffer),
            UplinkWay::Xdp(_) => {
                let got = self.xdp.as_ref().and_then(|xdp| xdp.receive(buffer));
                let frame = got.and_then(|got| buffer.get(..got));
                return Ok(frame.map(|frame| (NetHeader::default(), frame)));
            }
        }
        // syscalls: read
        let got = match rustix::io::read(&self.out, &mut *buffer) {
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (header, frame) = buffer
            .get(..got)
            .and_then(|bytes| bytes.split_first_chunk::<{ NetHeader::SIZE }>())
            .ok_or(Errno::IO)?;
        Ok(Some((NetHeader::from_bytes(*header), frame)))
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.out.as_fd()
    }
}

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
            if self.steering.worker(number, pair) == context.worker {
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
            learn_cache,
            sampler,
            peers,
        } = &mut *queue.taken_in();
        learn_cache.begin(context.seconds, &self.table);
        let mut source = Source::new(number, u32::MAX, learn_cache);
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
        if port.observed {
            let observed = std::iter::once((&head, rest, checked));
            self.observe(context, (source.port, pair), Direction::Sent, observed);
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
                let _heard = self.flood(context, origin, &head, &rest)?;
            }
            Target::Nowhere(loss) => return Err(loss),
        }
        Ok(target)
    }
}
