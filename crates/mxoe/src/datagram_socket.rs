//! A socket of UDP for frames: how it is opened, and how frames are read from it.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use rustix::io::Errno;
use rustix::net::sockopt as options;
use rustix::net::{self, AddressFamily, RecvFlags, SocketFlags, SocketType};

/// Bytes that the kernel joins at most.
const RECEIVE_BYTES: usize = 1 << 16;

/// Size of the kernel's buffers. The blocks in flight of 16 pulls fit into the receive buffer.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 2 << 20;

/// Whether the kernel fragments datagrams that do not fit the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragments {
    Yes,
    No,
}

/// Opens a socket at this address, where the kernel chooses the port 0.
pub(crate) fn open(address: SocketAddr, fragments: Fragments) -> io::Result<OwnedFd> {
    let socket = unbound(address, fragments)?;
    net::bind(&socket, &address)?;
    Ok(socket)
}

/// Opens a socket that has no address yet, of the same kind.
pub(crate) fn unbound(address: SocketAddr, fragments: Fragments) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let (v4, v6) = match fragments {
        Fragments::Yes => (
            options::Ipv4PathMtuDiscovery::DONT,
            options::Ipv6PathMtuDiscovery::DONT,
        ),
        Fragments::No => (
            options::Ipv4PathMtuDiscovery::DO,
            options::Ipv6PathMtuDiscovery::DO,
        ),
    };
    match address {
        SocketAddr::V4(_) => options::set_ip_mtu_discover(&socket, v4)?,
        SocketAddr::V6(_) => options::set_ipv6_mtu_discover(&socket, v6)?,
    }
    setsockopt(&socket, sockopt::DontRoute, &true)?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    // Smaller buffers cost throughput and nothing else, so errors are ignored.
    let _ignored = options::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
        .or_else(|_| options::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER));
    let _ignored = options::set_socket_send_buffer_size_force(&socket, SEND_BUFFER)
        .or_else(|_| options::set_socket_send_buffer_size(&socket, SEND_BUFFER));
    Ok(socket)
}

/// Returns the address at which a socket of an interface is bound, with any port.
pub(crate) fn address_of(interface: &str) -> io::Result<SocketAddr> {
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

/// Adds the link of a socket to a link-local address of another host.
pub(crate) fn on_link_of(own: SocketAddr, mut to: SocketAddr) -> SocketAddr {
    if let (SocketAddr::V6(to), SocketAddr::V6(own)) = (&mut to, own) {
        to.set_scope_id(own.scope_id());
    }
    to
}

/// Returns an address without its link, as other hosts know it.
pub(crate) fn socket_address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from
        .as_sockaddr_in()
        .map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    v4.or_else(|| {
        let v6 = from.as_sockaddr_in6()?;
        Some(SocketAddr::from((v6.ip(), v6.port())))
    })
}

/// Memory for what one call reads.
#[derive(Debug)]
pub(crate) struct Reader {
    received: Vec<u8>,
    control: Vec<u8>,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            received: vec![0; RECEIVE_BYTES],
            control: nix::cmsg_space!(i32),
        }
    }

    /// Hands frames that have arrived at a socket to `take`, each with the address that it came from. It reads until the socket is empty, and `most`
    /// times at most. Also returns whether the kernel has reported an error.
    pub(crate) fn receive(
        &mut self,
        socket: &OwnedFd,
        most: usize,
        take: &mut impl FnMut(SocketAddr, &[u8]),
    ) -> (usize, bool) {
        let mut count = 0;
        for _ in 0..most {
            let (from, length, segment) = match self.read(socket) {
                Ok(read) => read,
                Err(error) => return (count, error.kind() != ErrorKind::WouldBlock),
            };
            let datagrams = self.received.get(..length).unwrap_or_default();
            for frame in datagrams.chunks(segment.max(1)) {
                take(from, frame);
                count += 1;
            }
        }
        (count, false)
    }

    /// The same for a socket with datagrams of one sender only, which the kernel does not join.
    pub(crate) fn receive_from_one(
        &mut self,
        socket: &OwnedFd,
        most: usize,
        mut take: impl FnMut(&[u8]),
    ) -> (usize, bool) {
        for count in 0..most {
            match net::recv(socket, &mut self.received[..], RecvFlags::DONTWAIT) {
                Ok((_, length)) => take(self.received.get(..length).unwrap_or_default()),
                Err(error) => return (count, error != Errno::AGAIN),
            }
        }
        (most, false)
    }

    /// Reads datagrams of one sender. Returns the sender, their bytes, and the length of each but the last.
    fn read(&mut self, socket: &OwnedFd) -> io::Result<(SocketAddr, usize, usize)> {
        let mut parts = [IoSliceMut::new(&mut self.received)];
        let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut self.control), flags)?;
        let from = got.address.as_ref().and_then(socket_address);
        let from = from.ok_or(ErrorKind::InvalidData)?;
        let segment = got.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::UdpGroSegments(length) => usize::try_from(length).ok(),
            _ => None,
        });
        Ok((from, got.bytes, segment.unwrap_or(got.bytes)))
    }
}
