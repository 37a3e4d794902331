//! Frames in datagrams of UDP, beside those of a [`Port`](crate::Port).
//!
//! The kernel carries each frame of a packet socket alone through its layers, which takes the sender's processor longer than the
//! copy of 8 KiB. With `UDP_SEGMENT` and `UDP_GRO` (udp(7)), one call passes up to 64 KiB of datagrams, which the kernel cuts as late, and
//! joins as early, as segments of TCP. A datagram has one frame.
//!
//! The socket sends without a gateway, like frames of Ethernet: no host can make this one send data beyond the links that it is on. One
//! beside a port does not fragment: where a datagram does not fit the path, the [node's](crate::Node) probes do not arrive. One that carries all
//! frames lets the kernel fragment them, where the interface does not carry the longest one.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use rustix::net::sockopt as options;
use rustix::net::{self, SendFlags};

use crate::connected_sockets::ConnectedSockets;
use crate::datagram_socket::{self, Fragments, Reader, on_link_of, socket_address};
use crate::node::Node;
use crate::refused_datagrams::{self, keep_errors};

/// Bytes that a call passes at most: the longest datagram of IPv4, which the kernel cuts into those of the frames.
const MAX_BATCH_BYTES: usize = 65_507;

/// Frames that a call passes at most: `UDP_MAX_SEGMENTS` of Linux before 6.9.
const MAX_BATCH: usize = 64;

/// Frames of 8 KiB that a call passes.
const USUAL_BATCH: usize = 7;

/// The sockets of UDP of a node: one at an address of an interface, and those that are [connected](Self::connect_to) to partners' programs.
#[derive(Debug)]
pub struct Datagrams {
    socket: OwnedFd,
    address: SocketAddr,
    connected: ConnectedSockets,
    reader: Reader,
    /// The kernel has refused to cut a batch, because the datagrams do not fit the interface. From then on, each is sent by a call of its own.
    one_by_one: bool,
    /// The kernel has errors for [`refused`](Self::refused).
    has_errors: bool,
}

impl Datagrams {
    /// Opens a socket beside a port, at an address of this interface: the first one of IPv4, or else the link-local one of IPv6. Without `CAP_NET_ADMIN`, the
    /// receive buffer has at most `net.core.rmem_max` bytes.
    ///
    /// # Errors
    /// There is no such interface, it has no address, or the kernel refuses an option, as Linux before 5.0 does.
    pub fn open_socket(interface: &str) -> io::Result<OwnedFd> {
        datagram_socket::open(datagram_socket::address_of(interface)?, Fragments::No)
    }

    /// The same for a socket that carries all frames ([`Config::only_datagrams`](crate::Config::only_datagrams)).
    ///
    /// # Errors
    /// As [`open_socket`](Self::open_socket).
    pub fn open_program_socket(interface: &str) -> io::Result<OwnedFd> {
        let address = datagram_socket::address_of(interface)?;
        let socket = datagram_socket::open(address, Fragments::Yes)?;
        keep_errors(&socket, address)?;
        Ok(socket)
    }

    /// Uses a socket that this or another process has [opened](Self::open_socket).
    ///
    /// # Errors
    /// It is no socket of UDP.
    pub fn adopt(socket: OwnedFd) -> io::Result<Self> {
        let address = SocketAddr::try_from(net::getsockname(&socket)?)?;
        Ok(Self {
            socket,
            address,
            connected: ConnectedSockets::default(),
            reader: Reader::new(),
            one_by_one: false,
            has_errors: false,
        })
    }

    /// Returns the size of the receive buffer. For each frame, the kernel counts all memory that it takes.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        options::socket_recv_buffer_size(&self.socket).unwrap_or_default()
    }

    /// Returns the address of the socket, as other hosts know it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.address.ip(), self.address.port())
    }

    /// Has a connected socket for each of the [partners' programs](Node::partner_programs) of a node, if they are few, for less time in the kernel. Only
    /// for a socket that [carries all frames](Self::open_program_socket).
    pub fn connect_to(&mut self, programs: &[SocketAddr]) {
        self.connected
            .connect_to(programs, (&self.socket, self.address));
    }

    /// Returns all sockets. Each is readable when a datagram has arrived at it.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.all_sockets().map(AsFd::as_fd)
    }

    fn all_sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        std::iter::once(&self.socket).chain(self.connected.all())
    }

    /// Hands received frames to `take`, each with the address that it came from, and returns their number. It reads from each socket until
    /// that is empty, and `most` times at most.
    pub fn receive(&mut self, most: usize, mut take: impl FnMut(SocketAddr, &[u8])) -> usize {
        let retired = self.connected.take_retired();
        let own = self.connected.look().then_some(&self.socket);
        let (reader, mut count) = (&mut self.reader, 0);
        let mut add = |(some, has_error)| {
            count += some;
            self.has_errors |= has_error;
        };
        for socket in retired.iter().chain(own) {
            add(reader.receive(socket, most, &mut take));
        }
        for socket in self.connected.all_mut() {
            add(socket.receive(reader, most, &mut take));
        }
        count
    }

    /// The next [`receive`](Self::receive) reads from all sockets. Otherwise it leaves out the one at which nothing is expected, as long as partners' programs have others.
    pub fn look_everywhere(&mut self) {
        self.connected.look_everywhere();
    }

    /// Returns the addresses at which there is no program any more, as their hosts have said since the last call. Only of a socket that
    /// [carries all frames](Self::open_program_socket).
    pub fn refused(&mut self) -> Vec<SocketAddr> {
        match std::mem::take(&mut self.has_errors) {
            true => self
                .all_sockets()
                .flat_map(|socket| refused_datagrams::take(socket, socket_address))
                .collect(),
            false => Vec::new(),
        }
    }

    /// Sends all datagrams that the node has ready. Returns false if the kernel accepts no more for now; the remaining frames wait in the node.
    pub fn send(&mut self, node: &mut Node) -> bool {
        loop {
            node.drop_old_datagrams();
            let Some((count, sent)) = self.send_first(node) else {
                return true;
            };
            match sent {
                Err(Errno::EAGAIN | Errno::EINTR) => return false,
                // The kernel, which fragments a datagram, does not cut a batch into datagrams that it would have to fragment: EINVAL, and EMSGSIZE
                // since Linux 6.14. EIO: it cannot cut it because the interface computes no checksums, or has IPsec.
                Err(Errno::EINVAL | Errno::EMSGSIZE | Errno::EIO) if count > 1 => {
                    self.one_by_one = true;
                    continue;
                }
                // About a datagram of an earlier call, and only once.
                Err(Errno::ECONNREFUSED) if !self.has_errors => {
                    self.has_errors = true;
                    continue;
                }
                // Whatever else the kernel says, it concerns these datagrams, or the address has gone. The protocol handles both like any other
                // loss.
                _ => {}
            }
            node.datagrams_sent(count);
        }
    }

    /// Sends the first datagrams, as far as one call can pass them. Returns their number and what the kernel says; `None` if there are none.
    fn send_first(&self, node: &Node) -> Option<(usize, Result<(), Errno>)> {
        let mut datagrams = node.datagrams();
        let (to, [head, data]) = datagrams.next()?;
        if data.is_empty() && datagrams.next().is_none() {
            return Some((1, self.send_one(to, head)));
        }
        let most = if self.one_by_one { 1 } else { MAX_BATCH };
        let frames = node.datagrams().take_while(|(other, _)| *other == to);
        let batch = Batch::first(frames.map(|(_, frame)| frame), most);
        Some((batch.count, self.send_batch(to, &batch)))
    }

    /// Returns the socket for frames to an address, and the destination that its calls need.
    fn socket_to(&self, to: SocketAddr) -> (&OwnedFd, Option<SocketAddr>) {
        match self.connected.to(to) {
            Some(socket) => (socket, None),
            None => (&self.socket, Some(on_link_of(self.address, to))),
        }
    }

    /// Sends one frame: the usual call, which takes the kernel less time without the headers of a batch.
    fn send_one(&self, to: SocketAddr, frame: &[u8]) -> Result<(), Errno> {
        let flags = SendFlags::DONTWAIT;
        let sent = match self.socket_to(to) {
            (socket, None) => net::send(socket, frame, flags),
            (socket, Some(to)) => net::sendto(socket, frame, flags, &to),
        };
        sent.map(drop)
            .map_err(|error| Errno::from_raw(error.raw_os_error()))
    }

    fn send_batch(&self, to: SocketAddr, batch: &Batch<'_>) -> Result<(), Errno> {
        let segment = u16::try_from(batch.length).map_err(|_| Errno::EMSGSIZE)?;
        let segments = [ControlMessage::UdpGsoSegments(&segment)];
        let control = if batch.count > 1 { &segments[..] } else { &[] };
        let flags = MsgFlags::MSG_DONTWAIT;
        let (socket, to) = self.socket_to(to);
        let to = to.map(SockaddrStorage::from);
        let fd = socket.as_raw_fd();
        sendmsg(fd, &batch.parts, control, flags, to.as_ref()).map(drop)
    }
}

/// Frames that one call passes: they have one destination, and all but the last the same length.
#[derive(Debug)]
struct Batch<'a> {
    /// Bytes of each frame but the last.
    length: usize,
    count: usize,
    parts: Vec<IoSlice<'a>>,
}

impl<'a> Batch<'a> {
    /// Returns the first of these frames to one destination, as far as one call can pass them, and `most` at most.
    fn first(frames: impl Iterator<Item = [&'a [u8]; 2]>, most: usize) -> Self {
        let mut batch = Self {
            length: 0,
            count: 0,
            parts: Vec::with_capacity(2 * most.min(USUAL_BATCH)),
        };
        let mut bytes = 0;
        for frame in frames.take(most) {
            let length = frame.iter().map(|part| part.len()).sum::<usize>();
            if batch.count == 0 {
                batch.length = length;
            }
            bytes += length;
            if length > batch.length || bytes > MAX_BATCH_BYTES {
                break;
            }
            batch.count += 1;
            batch.parts.extend(frame.map(IoSlice::new));
            if length < batch.length {
                break;
            }
        }
        batch
    }
}
