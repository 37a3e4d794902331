//! Uplinks: a tap, or a packet socket on another interface of the host, with a virtio-net header in front of
//! each frame; or an AF_XDP socket, without that header ([`crate::xdp`]).
//!
//! A tap may have several queues, which correspond to the queue pairs of VMs. A frame of a sender's pair is
//! sent on the queue with the same number, modulo the number of queues. A frame that is received on a queue
//! goes to the pair with that number. The kernel steers a flow to the queue on which it last saw the flow
//! go out, so the answers of a flow return to the same pair. One worker reads each queue.

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

/// One queue of an uplink.
#[derive(Debug)]
pub(crate) struct Queue {
    out: OwnedFd,
    way: UplinkWay,
    /// The rings of an AF_XDP socket, once its UMEM has arrived.
    xdp: Option<Xdp>,
    /// Counters of sent frames; any worker sends.
    egress: Mutex<Counters>,
    /// The state of received frames; one worker receives.
    ingress: Mutex<Ingress>,
}

/// The state of the frames that a queue has received.
#[derive(Debug, Default)]
struct Ingress {
    counters: Counters,
    learn_cache: LearnCache,
    sampler: Sampler,
    peers: Peers,
}

/// Bytes of a buffer for one frame: network header and frame.
pub const BUFFER: usize = NetHeader::SIZE + MAX_FRAME as usize;

impl Uplink {
    /// Uses a tap opened with `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`, with a little-endian header of 12 bytes,
    /// or a socket.
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

    /// Adds a queue of the same tap (`IFF_MULTI_QUEUE`) and returns its number. For an AF_XDP socket, maps
    /// the UMEM, which is not a queue, and returns `None`.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking, or cannot be mapped.
    pub fn add(&mut self, out: OwnedFd) -> Result<Option<usize>, Errno> {
        if let UplinkWay::Xdp(layout) = self.way {
            let first = &mut self.first;
            first.xdp = Some(Xdp::new(first.out.as_fd(), layout, out.as_fd())?);
            return Ok(None);
        }
        self.more.push(Queue::new(out, self.way)?);
        Ok(Some(self.more.len()))
    }

    /// Returns the queues in the order of their numbers.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Queue> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Returns the queue that sends the frames of a pair.
    pub(crate) fn queue(&self, pair: usize) -> &Queue {
        match pair % (1 + self.more.len()) {
            0 => &self.first,
            number => self.more.get(number - 1).unwrap_or(&self.first),
        }
    }

    /// Returns the running totals.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.queues().fold(Counters::default(), |sum, queue| {
            sum.plus(&queue.egress()).plus(&queue.ingress().counters)
        })
    }

    /// Returns the totals received for each port.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        let ingress: Vec<_> = self.queues().map(Queue::ingress).collect();
        peers::sum(ingress.iter().map(|ingress| &ingress.peers))
    }

    /// Removes the counters of a port that is gone, because its number may be reused.
    pub(crate) fn forget(&self, port: u16) {
        self.queues()
            .for_each(|queue| queue.ingress().peers.forget(port));
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
            egress: Mutex::default(),
            ingress: Mutex::default(),
        })
    }

    /// Locks the counters of sent frames.
    pub(crate) fn egress(&self) -> MutexGuard<'_, Counters> {
        self.egress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ingress(&self) -> MutexGuard<'_, Ingress> {
        self.ingress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one frame, or queues it for [`flush`](Self::flush). Leaves segmentation and checksums to the
    /// kernel where it accepts a network header.
    ///
    /// # Errors
    /// The kernel's queue is full, the interface is down, or the kernel refuses the frame.
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

    /// Has the kernel send the queued frames.
    pub(crate) fn flush(&self) {
        if self.xdp.is_some() {
            xdp::flush(self.out.as_fd());
        }
    }

    /// Receives one frame: its network header and its bytes. Returns `Ok(None)` when there is none now.
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
    /// Forwards frames from the queues that this worker reads, up to one burst a queue.
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
        let Ingress {
            counters,
            learn_cache,
            sampler,
            peers,
        } = &mut *queue.ingress();
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
                    match self.forward_received(context, &mut source, (port, pair), received) {
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

    /// Forwards a received frame; returns its target.
    fn forward_received(
        &self,
        context: &mut WorkerContext,
        source: &mut Source<'_>,
        (port, pair): (&Port, usize),
        (header, frame): (NetHeader, &[u8]),
    ) -> Result<Target, Loss> {
        let (mut head, rest) = Head::of_private(header, frame).ok_or(Loss::BadLength)?;
        // The kernel is trusted to describe its frames; the check also reduces the header to fields that a
        // guest may receive. Frames that a network card has merged are GSO frames with full checksums,
        // which no guest may receive (5.1.6.4.1): their header stays unchanged here, and they are segmented
        // for every receiver.
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
                // Most multicast frames from outside have no member here, so this is not counted.
                let _is_wanted = self.flood(context, origin, &head, &rest)?;
            }
            Target::Nowhere(loss) => return Err(loss),
        }
        Ok(target)
    }
}
