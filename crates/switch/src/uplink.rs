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
use vhost::limits::MAX_FRAME;
use vhost::net_header::NetHeader;

use crate::control::{Counters, Peer, UplinkKind};
use crate::frame::{Head, Rest};
use crate::packet;
use crate::peers::{self, Peers};
use crate::remote_peers::RemoteSenders;
use crate::ring_state::{LearnCache, Sampler};
use crate::sync::{Mutex, MutexGuard};
use crate::xdp::{self, Xdp};

/// An open tap or socket, in non-blocking mode.
#[derive(Debug)]
pub struct Uplink {
    pub(crate) kind: UplinkKind,
    pub(crate) first: Queue,
    /// The other queues.
    pub(crate) more: Vec<Queue>,
}

/// One queue of an uplink.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) out: OwnedFd,
    pub(crate) kind: UplinkKind,
    /// The rings of an AF_XDP socket, once its UMEM has arrived.
    pub(crate) xdp: Option<Xdp>,
    /// Counters of sent frames; any worker sends.
    pub(crate) egress: Mutex<Counters>,
    /// The state of received frames; one worker receives.
    pub(crate) ingress: Mutex<Ingress>,
}

/// The state of the frames that a queue has received.
#[derive(Debug, Default)]
pub(crate) struct Ingress {
    pub(crate) counters: Counters,
    pub(crate) learn_cache: LearnCache,
    pub(crate) sampler: Sampler,
    pub(crate) peers: Peers,
    pub(crate) remote_senders: RemoteSenders,
}

/// Bytes of a buffer for one frame: network header and frame.
pub const BUFFER: usize = NetHeader::SIZE + MAX_FRAME as usize;

impl Uplink {
    /// Uses a tap opened with `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`, with a little-endian header of 12 bytes,
    /// or a socket.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn new(out: OwnedFd, kind: UplinkKind) -> Result<Self, Errno> {
        Ok(Self {
            kind,
            first: Queue::new(out, kind)?,
            more: Vec::new(),
        })
    }

    /// Adds a queue of the same tap (`IFF_MULTI_QUEUE`) and returns its number. For an AF_XDP socket, maps
    /// the UMEM, which is not a queue, and returns `None`.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking, or cannot be mapped.
    pub fn add(&mut self, out: OwnedFd) -> Result<Option<usize>, Errno> {
        if let UplinkKind::Xdp(layout) = self.kind {
            let first = &mut self.first;
            first.xdp = Some(Xdp::new(first.out.as_fd(), layout, out.as_fd())?);
            return Ok(None);
        }
        self.more.push(Queue::new(out, self.kind)?);
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
    pub(crate) fn remove(&self, port: u16) {
        for queue in self.queues() {
            let mut ingress = queue.ingress();
            ingress.peers.remove(port);
            ingress.remote_senders.remove(port);
        }
    }
}

impl Queue {
    fn new(out: OwnedFd, kind: UplinkKind) -> Result<Self, Errno> {
        // syscalls: ioctl
        rustix::io::ioctl_fionbio(&out, true)?;
        Ok(Self {
            out,
            kind,
            xdp: None,
            egress: Mutex::default(),
            ingress: Mutex::default(),
        })
    }

    /// Locks the counters of sent frames.
    pub(crate) fn egress(&self) -> MutexGuard<'_, Counters> {
        self.egress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ingress(&self) -> MutexGuard<'_, Ingress> {
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
        let header = match self.kind {
            UplinkKind::Tap => header,
            UplinkKind::Packet => header.get(..packet::HEADER).unwrap_or(header),
            UplinkKind::Xdp(_) => {
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
    pub(crate) fn receive<'b>(
        &self,
        buffer: &'b mut [u8],
    ) -> Result<Option<(NetHeader, &'b [u8])>, Errno> {
        match self.kind {
            UplinkKind::Tap => {}
            UplinkKind::Packet => return packet::receive(self.out.as_fd(), buffer),
            UplinkKind::Xdp(_) => {
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
