//! The way out of a network: a tap, or a packet socket on another interface of the host, with a
//! virtio-net header in front of each frame.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::PoisonError;

use rustix::io::Errno;
use vhost::fault::Fault;
use vhost::limits::MAX_FRAME;
use vhost::net_header::{GSO_NONE, NEEDS_CSUM, NetHeader};

use crate::aside::Aside;
use crate::books::{Sampler, Teacher};
use crate::capture::Direction;
use crate::control::{Counters, Loss, Peer, UplinkWay};
use crate::desk::Desk;
use crate::frame::{Head, Rest};
use crate::guard::Checked;
use crate::job::Target;
use crate::limits::BURST;
use crate::multicast::Origin;
use crate::packet;
use crate::peers::{self, Peers};
use crate::port::Port;
use crate::resolve::Source;
use crate::switch::{Switch, Visit};
use crate::sync::{Mutex, MutexGuard};

/// An open tap or packet socket, in non-blocking mode.
#[derive(Debug)]
pub struct Uplink {
    out: OwnedFd,
    way: UplinkWay,
    /// Of frames sent out, by any worker.
    sent_out: Mutex<Counters>,
    /// Of frames taken in, by one worker.
    taken_in: Mutex<TakenIn>,
}

/// Books of frames taken in.
#[derive(Debug, Default)]
struct TakenIn {
    counters: Counters,
    teacher: Teacher,
    sampler: Sampler,
    peers: Peers,
}

/// The pair that frames from an uplink go by: it has one queue only.
pub const UPLINK_PAIR: usize = 0;

/// Bytes to read a frame into: header, frame.
pub const BUFFER: usize = NetHeader::SIZE + MAX_FRAME as usize;

impl Uplink {
    /// Use a tap opened with `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`, a header of 12 bytes in
    /// little-endian order; or a packet socket.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn new(out: OwnedFd, way: UplinkWay) -> Result<Self, Errno> {
        // syscalls: ioctl
        rustix::io::ioctl_fionbio(&out, true)?;
        Ok(Self {
            out,
            way,
            sent_out: Mutex::default(),
            taken_in: Mutex::default(),
        })
    }

    /// Running totals.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.sent_out().plus(&self.taken_in().counters)
    }

    /// What came in for each port.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        peers::sum(std::iter::once(&self.taken_in().peers))
    }

    /// The books of frames sent out.
    pub(crate) fn sent_out(&self) -> MutexGuard<'_, Counters> {
        self.sent_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port is gone; its number may be another's one day.
    pub(crate) fn forget(&self, port: u16) {
        self.taken_in().peers.forget(port);
    }

    fn taken_in(&self) -> MutexGuard<'_, TakenIn> {
        self.taken_in.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Send one frame. Segments and checksums are left to the kernel.
    ///
    /// # Errors
    /// The kernel's queue is full, the interface is down, or the frame is refused.
    pub fn send(&self, head: &Head, rest: &Rest<'_, '_>) -> Result<(), Errno> {
        let start = head.start.to_bytes();
        let (header, ethernet) = start.split_at(NetHeader::SIZE);
        let header = match self.way {
            UplinkWay::Tap => header,
            UplinkWay::Packet => header.get(..packet::HEADER).unwrap_or(header),
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

    /// Receive one frame: its header and its bytes. `Ok(None)` when there is none for now.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn receive<'b>(
        &self,
        buffer: &'b mut [u8],
    ) -> Result<Option<(NetHeader, &'b [u8])>, Errno> {
        if self.way == UplinkWay::Packet {
            return packet::receive(self.out.as_fd(), buffer);
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

impl AsFd for Uplink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.out.as_fd()
    }
}

impl Switch {
    pub(crate) fn serve_uplink(
        &self,
        desk: &mut Desk,
        number: u16,
        port: &Port,
        uplink: &Uplink,
    ) -> Result<Visit, Fault> {
        let mut visit = Visit::default();
        if self.readers.worker(number, UPLINK_PAIR) != desk.worker {
            return Ok(visit);
        }
        let mut buffer = std::mem::take(&mut desk.buffer);
        let TakenIn {
            counters,
            teacher,
            sampler,
            peers,
        } = &mut *uplink.taken_in();
        teacher.begin(desk.seconds, &self.table);
        let mut source = Source::new(number, u32::MAX, teacher);
        let end = loop {
            if visit.moved == u32::from(BURST) {
                visit.more = true;
                break Ok(visit);
            }
            match uplink.receive(&mut buffer) {
                Ok(Some(received)) => {
                    visit.moved += 1;
                    counters.tx_frames += 1;
                    let bytes = received.1.len() as u64;
                    counters.tx_bytes += bytes;
                    match self.take_in(desk, &mut source, port, received) {
                        Ok(Target::Port(to)) => peers.add(to, 1, bytes),
                        Ok(_) => {}
                        Err(loss) => counters.drops.count(loss),
                    }
                }
                Ok(None) => break Ok(visit),
                Err(error) => break Err(Fault::Host(error)),
            }
        };
        desk.buffer = buffer;
        if visit.moved > 0 {
            counters.bursts.note(visit.moved.into());
            counters.count_latency(sampler.next().then_some(desk.now));
        }
        end
    }

    /// Pass a frame on; returns whom it was for.
    fn take_in(
        &self,
        desk: &mut Desk,
        source: &mut Source<'_>,
        port: &Port,
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
            self.show(desk, (source.port, UPLINK_PAIR), Direction::Sent, shown);
        }
        let target = self.resolve(&head, checked.tci.vlan(), desk.seconds, source);
        match target {
            Target::Port(to) => self.deliver_one(desk, to, UPLINK_PAIR, &head, &rest, checked)?,
            Target::Flood => {
                let origin = Origin {
                    port: source.port,
                    pair: UPLINK_PAIR,
                    aside: &Aside::default(),
                    limits: &port.limits,
                    checked,
                };
                // Of what the world sends to groups, most is for nobody here.
                let _heard = self.spread(desk, origin, &head, &rest)?;
            }
            Target::Nowhere(loss) => return Err(loss),
        }
        Ok(target)
    }
}
