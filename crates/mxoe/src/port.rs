//! The network: an AF_PACKET socket for MXoE frames on one interface.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, netdevice, socket_with, sockopt,
};

use crate::endpoints::Endpoints;
use crate::filter::{self, Filter};
use crate::limits::MAX_ORDINARY_FRAME;
use crate::node::Node;
use crate::raw::batch::{self, BATCH};
use crate::raw::ring::Ring;
use crate::raw::{self, LinkAddress};
use crate::wire::{ETHERTYPE, Mac};

/// Bytes of a frame that the MTU does not count.
const ETHERNET: usize = 14;

/// Size of the kernel's send buffer, for frames that a node hands over faster than the interface
/// sends them.
const SEND_BUFFER: usize = 2 << 20;

/// Frames that [`Port::receive`] hands over in one call, at most.
const RECEIVE_BATCH: usize = 64;

/// An AF_PACKET socket that receives the MXoE frames of one interface.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    started: Instant,
    ring: Ring,
    /// Frames that the kernel has not accepted yet, at most [`BATCH`].
    unsent: VecDeque<Vec<u8>>,
}

impl Port {
    /// Opens a port on the interface of this name, for the interface's own address and for
    /// `others`. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// The interface does not exist or its MTU is too small, the process has no permission for raw
    /// sockets, or there is no memory for the receive ring.
    pub fn open(interface: &str, others: impl IntoIterator<Item = Mac>) -> io::Result<Self> {
        let (socket, index) = packet_socket(interface)?;
        let own = address(interface)?;
        // Before `bind`, so that the kernel puts every frame into the ring.
        Ring::create(&socket)?;
        bind(&socket, &LinkAddress::new(ETHERTYPE, index))?;
        for mac in others.into_iter().filter(|mac| *mac != own) {
            // An interface without a filter receives all frames anyway, so errors are ignored.
            let _ignored = raw::add_address(&socket, index, mac.0);
        }
        Self::adopt(socket)
    }

    /// Opens a socket for a port on an interface that other processes serve, too. The process that has the socket may send any frame.
    /// Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_shared_socket(interface: &str) -> io::Result<OwnedFd> {
        let (socket, index) = packet_socket(interface)?;
        // What arrived before there is a ring would stay in the socket's queue.
        raw::attach_filter(&socket, &filter::nothing())?;
        bind(&socket, &LinkAddress::new(ETHERTYPE, index))?;
        Ok(socket)
    }

    /// Makes a port from a socket that this or another process [opened](Self::open_shared_socket) on the interface with this address. Only
    /// frames of discovery [pass](Self::filter) at first.
    ///
    /// # Errors
    /// There is no memory for the receive ring.
    pub fn adopt_shared(socket: OwnedFd, mac: Mac) -> io::Result<Self> {
        Ring::create(&socket)?;
        let port = Self::adopt(socket)?;
        port.filter(&Filter {
            mac,
            endpoints: Endpoints::default(),
            passes_other_addresses: false,
        })?;
        Ok(port)
    }

    /// Receives only the frames that pass a filter, from now on. Frames that have arrived stay.
    ///
    /// # Errors
    /// The kernel has no memory for the filter.
    // syscalls: setsockopt
    pub fn filter(&self, filter: &Filter) -> io::Result<()> {
        raw::attach_filter(&self.socket, &filter.program())
    }

    /// Returns the time for the calls of a [`Node`] on this port.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Makes a port from a socket that another process [opened](Self::open) and from which no frame
    /// was taken.
    ///
    /// # Errors
    /// The socket has no receive ring, or the address space has no room for it.
    // syscalls: mmap munmap
    pub fn adopt(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            ring: Ring::map(&socket)?,
            socket,
            started: Instant::now(),
            unsent: VecDeque::new(),
        })
    }

    /// Hands received frames to `take`, at most 64, and returns their number.
    pub fn receive(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < RECEIVE_BATCH && self.ring.take(&mut take) {
            count += 1;
        }
        count
    }

    /// Checks whether the interface is still usable. Call it when the port is readable although no
    /// frame arrived: otherwise the port stays readable.
    ///
    /// # Errors
    /// The interface was removed or is down.
    // syscalls: getsockopt
    pub fn check(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.socket)??)
    }

    /// Returns how many frames the kernel dropped since the last call because the ring was full.
    ///
    /// # Errors
    /// The kernel refuses the query.
    // syscalls: getsockopt
    pub fn lost(&self) -> io::Result<u32> {
        raw::lost(&self.socket)
    }

    /// Sends all frames that the node has ready. Returns false if the interface accepts no more for
    /// now; the remaining frames wait in the port.
    ///
    /// # Errors
    /// The interface was removed or is down.
    pub fn send(&mut self, node: &mut Node) -> io::Result<bool> {
        loop {
            let room = BATCH - self.unsent.len();
            self.unsent
                .extend(std::iter::from_fn(|| node.transmit()).take(room));
            if self.unsent.is_empty() {
                return Ok(true);
            }
            let sent = match batch::send(&self.socket, self.unsent.iter()) {
                Ok(count) => count,
                // The kernel dropped the frame on its way out, or it is a probe of the path that is longer than the MTU. The
                // protocol handles both like any other loss.
                Err(error) if is_lost(&error) => 1,
                Err(error) if is_retryable(&error) => return Ok(false),
                Err(error) => return Err(error),
            };
            let done = sent.min(self.unsent.len());
            self.unsent
                .drain(..done)
                .for_each(|frame| node.reuse(frame));
        }
    }
}

/// Opens a packet socket that receives nothing yet. Also returns the index of the interface.
fn packet_socket(interface: &str) -> io::Result<(OwnedFd, i32)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // `bind` sets the protocol. With a protocol set here, the socket would receive frames of
    // every interface until then.
    let socket = socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        flags,
        None::<Protocol>,
    )?;
    let index = netdevice::name_to_index(&socket, interface)?;
    let index = i32::try_from(index).map_err(io::Error::other)?;
    check_mtu(interface)?;
    // A smaller buffer costs throughput and nothing else, so errors are ignored.
    let _ignored = sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER));
    Ok((socket, index))
}

/// Whether the kernel refuses this frame, and not the next ones.
fn is_lost(error: &io::Error) -> bool {
    let lost = [Errno::NOBUFS, Errno::MSGSIZE].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| lost.contains(&code))
}

/// Whether the call can succeed later: there is nothing to read, or no room to write.
fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl From<Port> for OwnedFd {
    fn from(port: Port) -> Self {
        port.socket
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the MAC address of the interface of this name.
///
/// # Errors
/// The interface does not exist, or it is no Ethernet interface.
pub fn address(interface: &str) -> io::Result<Mac> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/address"))?;
    let bytes: Vec<u8> = text
        .trim()
        .split(':')
        .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    let mac = <[u8; 6]>::try_from(bytes).map(Mac).ok();
    mac.filter(|mac| mac.is_host()).ok_or_else(|| {
        let text = format!("{interface} has no Ethernet address: use an Ethernet interface");
        io::Error::new(ErrorKind::InvalidInput, text)
    })
}

/// Checks that the longest frame of the dialect fits into the MTU. Larger frames are sent only where they arrive.
fn check_mtu(interface: &str) -> io::Result<()> {
    let needed = MAX_ORDINARY_FRAME - ETHERNET;
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/mtu"))?;
    let mtu: usize = text.trim().parse().map_err(io::Error::other)?;
    if mtu >= needed {
        return Ok(());
    }
    let text = format!(
        "{interface} has an MTU of {mtu}, and MXoE needs {needed}: ip link set {interface} mtu \
         {needed}, on both ends and what is in between"
    );
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}
