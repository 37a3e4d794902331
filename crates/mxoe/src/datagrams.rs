//! Frames in datagrams of UDP, beside those of a [`Port`](crate::Port).
//!
//! The kernel carries each frame of a packet socket alone through its layers, which takes the sender's processor longer than the
//! copy of 8 KiB. With `UDP_SEGMENT` and `UDP_GRO` (udp(7)), one call passes up to 64 KiB of datagrams, which the kernel cuts as late, and
//! joins as early, as segments of TCP. A datagram has one frame.
//!
//! The socket sends without a gateway, like frames of Ethernet: no host can make this one send data beyond the links that it is on. One
//! beside a port does not fragment: where a datagram does not fit the path, the [node's](crate::Node) probes do not arrive. One that carries all
//! frames lets the kernel fragment them, where the interface does not carry the longest one.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use rustix::net::sockopt as options;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::node::Node;
use crate::refused_datagrams::{self, keep_errors};

/// Bytes that a call passes at most: the longest datagram of IPv4, which the kernel cuts into those of the frames.
const MAX_BATCH_BYTES: usize = 65_507;

/// Frames that a call passes at most: `UDP_MAX_SEGMENTS` of Linux before 6.9.
const MAX_BATCH: usize = 64;

/// Frames of 8 KiB that a call passes.
const USUAL_BATCH: usize = 7;

/// Bytes that the kernel joins at most.
const RECEIVE_BYTES: usize = 1 << 16;

/// Size of the kernel's buffers. The blocks in flight of 16 pulls fit into the receive buffer.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 2 << 20;

/// A UDP socket on an interface.
#[derive(Debug)]
pub struct Datagrams {
    socket: OwnedFd,
    address: SocketAddr,
    received: Vec<u8>,
    control: Vec<u8>,
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
        open(
            interface,
            options::Ipv4PathMtuDiscovery::DO,
            options::Ipv6PathMtuDiscovery::DO,
        )
    }

    /// The same for a socket that carries all frames ([`Config::only_datagrams`](crate::Config::only_datagrams)).
    ///
    /// # Errors
    /// As [`open_socket`](Self::open_socket).
    pub fn open_program_socket(interface: &str) -> io::Result<OwnedFd> {
        let socket = open(
            interface,
            options::Ipv4PathMtuDiscovery::DONT,
            options::Ipv6PathMtuDiscovery::DONT,
        )?;
        keep_errors(&socket, SocketAddr::try_from(net::getsockname(&socket)?)?)?;
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
            received: vec![0; RECEIVE_BYTES],
            control: nix::cmsg_space!(i32),
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

    /// Hands received frames to `take`, each with the address that it came from, and returns their number. It reads from the socket until
    /// that is empty, and `most` times at most.
    pub fn receive(&mut self, most: usize, mut take: impl FnMut(SocketAddr, &[u8])) -> usize {
        let mut count = 0;
        for _ in 0..most {
            let (from, length, segment) = match self.read() {
                Ok(read) => read,
                Err(error) => {
                    self.has_errors |= error.kind() != ErrorKind::WouldBlock;
                    return count;
                }
            };
            let datagrams = self.received.get(..length).unwrap_or_default();
            for frame in datagrams.chunks(segment.max(1)) {
                take(from, frame);
                count += 1;
            }
        }
        count
    }

    /// Reads datagrams of one sender. Returns the sender, their bytes, and the length of each but the last.
    fn read(&mut self) -> io::Result<(SocketAddr, usize, usize)> {
        let mut parts = [IoSliceMut::new(&mut self.received)];
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut self.control), flags)?;
        let from = got.address.as_ref().and_then(socket_address);
        let from = from.ok_or(ErrorKind::InvalidData)?;
        let segment = got.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::UdpGroSegments(length) => usize::try_from(length).ok(),
            _ => None,
        });
        Ok((from, got.bytes, segment.unwrap_or(got.bytes)))
    }

    /// Returns the addresses at which there is no program any more, as their hosts have said since the last call. Only of a socket that
    /// [carries all frames](Self::open_program_socket).
    pub fn refused(&mut self) -> Vec<SocketAddr> {
        match std::mem::take(&mut self.has_errors) {
            true => refused_datagrams::take(&self.socket, socket_address),
            false => Vec::new(),
        }
    }

    /// Sends all datagrams that the node has ready. Returns false if the kernel accepts no more for now; the remaining frames wait in the node.
    pub fn send(&mut self, node: &mut Node) -> bool {
        loop {
            node.drop_old_datagrams();
            let most = if self.one_by_one { 1 } else { MAX_BATCH };
            let Some(batch) = Batch::first(node, most) else {
                return true;
            };
            match self.send_batch(&batch) {
                Err(Errno::EAGAIN | Errno::EINTR) => return false,
                // The kernel, which fragments a datagram, does not cut a batch into datagrams that it would have to fragment: EINVAL, and EMSGSIZE
                // since Linux 6.14. EIO: it cannot cut it because the interface computes no checksums, or has IPsec.
                Err(Errno::EINVAL | Errno::EMSGSIZE | Errno::EIO) if batch.count > 1 => {
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
            let count = batch.count;
            node.datagrams_sent(count);
        }
    }

    fn send_batch(&self, batch: &Batch<'_>) -> Result<(), Errno> {
        let to = SockaddrStorage::from(self.on_this_link(batch.to));
        let segment = u16::try_from(batch.length).map_err(|_| Errno::EMSGSIZE)?;
        let segments = [ControlMessage::UdpGsoSegments(&segment)];
        let control = if batch.count > 1 { &segments[..] } else { &[] };
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        sendmsg(fd, &batch.parts, control, flags, Some(&to)).map(drop)
    }

    /// Adds the link of this socket to a link-local address of another host.
    fn on_this_link(&self, mut to: SocketAddr) -> SocketAddr {
        if let (SocketAddr::V6(to), SocketAddr::V6(own)) = (&mut to, self.address) {
            to.set_scope_id(own.scope_id());
        }
        to
    }
}

/// Frames that one call passes: they have one destination, and all but the last the same length.
#[derive(Debug)]
struct Batch<'a> {
    to: SocketAddr,
    /// Bytes of each frame but the last.
    length: usize,
    count: usize,
    parts: Vec<IoSlice<'a>>,
}

impl<'a> Batch<'a> {
    /// Returns the first frames of a node, as far as one call can pass them, and `most` at most.
    fn first(node: &'a Node, most: usize) -> Option<Self> {
        let mut datagrams = node.datagrams();
        let (to, first) = datagrams.next()?;
        let mut batch = Self {
            to,
            length: 0,
            count: 0,
            parts: Vec::with_capacity(2 * most.min(USUAL_BATCH)),
        };
        batch.length = batch.add(first);
        let mut bytes = batch.length;
        for (other, frame) in datagrams.take(most.saturating_sub(1)) {
            let length = frame.iter().map(|part| part.len()).sum::<usize>();
            bytes += length;
            if other != to || length > batch.length || bytes > MAX_BATCH_BYTES {
                break;
            }
            batch.add(frame);
            if length < batch.length {
                break;
            }
        }
        Some(batch)
    }

    /// Adds a frame and returns its length.
    fn add(&mut self, frame: [&'a [u8]; 2]) -> usize {
        self.count += 1;
        self.parts.extend(frame.map(IoSlice::new));
        frame.iter().map(|part| part.len()).sum()
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens a socket at an address of an interface, which fragments or does not.
fn open(
    interface: &str,
    v4: options::Ipv4PathMtuDiscovery,
    v6: options::Ipv6PathMtuDiscovery,
) -> io::Result<OwnedFd> {
    let address = address_of(interface)?;
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::DGRAM, flags, None)?;
    match address {
        SocketAddr::V4(_) => {
            options::set_ip_mtu_discover(&socket, v4)?;
        }
        SocketAddr::V6(_) => {
            options::set_ipv6_mtu_discover(&socket, v6)?;
        }
    }
    setsockopt(&socket, sockopt::DontRoute, &true)?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    // Smaller buffers cost throughput and nothing else, so errors are ignored.
    let _ignored = options::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
        .or_else(|_| options::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER));
    let _ignored = options::set_socket_send_buffer_size_force(&socket, SEND_BUFFER)
        .or_else(|_| options::set_socket_send_buffer_size(&socket, SEND_BUFFER));
    net::bind(&socket, &address)?;
    Ok(socket)
}

/// Returns an address without its link, as other hosts know it.
fn socket_address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from
        .as_sockaddr_in()
        .map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    v4.or_else(|| {
        let v6 = from.as_sockaddr_in6()?;
        Some(SocketAddr::from((v6.ip(), v6.port())))
    })
}

/// Returns the address at which a socket of an interface is bound, with any port.
fn address_of(interface: &str) -> io::Result<SocketAddr> {
    let addresses: Vec<_> = getifaddrs()?
        .filter(|found| found.interface_name == interface)
        .filter_map(|found| found.address)
        .collect();
    let v4 = addresses
        .iter()
        .find_map(|found| found.as_sockaddr_in())
        .map(|v4| SocketAddr::from((v4.ip(), 0)));
    let v6 = addresses
        .iter()
        .filter_map(|found| found.as_sockaddr_in6())
        .find(|v6| v6.ip().is_unicast_link_local())
        .map(|v6| SocketAddr::V6(SocketAddrV6::new(v6.ip(), 0, 0, v6.scope_id())));
    v4.or(v6).ok_or_else(|| {
        let text =
            format!("{interface} has neither an address of IPv4 nor a link-local one of IPv6");
        io::Error::new(ErrorKind::AddrNotAvailable, text)
    })
}
