//! The network: a socket for the frames of MXoE on one interface.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, netdevice, socket_with, sockopt,
};

use crate::limits::FRAME;
use crate::node::Node;
use crate::raw::batch::{self, BATCH};
use crate::raw::ring::Ring;
use crate::raw::{self, LinkAddress};
use crate::wire::{ETHERTYPE, Mac};

/// Bytes of a frame before what the MTU counts.
const ETHERNET: usize = 14;

/// Bytes the kernel keeps of a node that is early.
const SENT: usize = 2 << 20;

/// Frames that are taken before anything else is done.
const ROUND: usize = 64;

/// A socket on an interface, for the frames of MXoE and no others.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    started: Instant,
    ring: Ring,
    /// Did not go out yet; no more than [`BATCH`].
    held: VecDeque<Vec<u8>>,
}

impl Port {
    /// On an interface, by its name, for its own address and these others. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// There is no such interface, its frames are too short, there is no permission for raw sockets,
    /// or no memory for what comes.
    pub fn open(interface: &str, others: impl IntoIterator<Item = Mac>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The protocol comes with `bind`: before, the socket would hear every interface.
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            flags,
            None::<Protocol>,
        )?;
        let index = netdevice::name_to_index(&socket, interface)?;
        let index = i32::try_from(index).map_err(io::Error::other)?;
        let own = address(interface)?;
        check_mtu(interface)?;
        // Before anything comes: it all goes into the ring.
        Ring::make(&socket)?;
        bind(&socket, &LinkAddress::new(ETHERTYPE, index))?;
        // Less is slower, not wrong.
        let _wanted = sockopt::set_socket_send_buffer_size_force(&socket, SENT)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, SENT));
        for mac in others.into_iter().filter(|mac| *mac != own) {
            // An interface that cannot filter hears everything.
            let _heard = raw::hear(&socket, index, mac.0);
        }
        Self::adopt(socket)
    }

    /// The time for a [`Node`] on this port.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The port of a socket that was [opened](Self::open) by somebody else, who has taken no frame.
    ///
    /// # Errors
    /// It is not such a socket, or there is no room in the address space.
    // syscalls: mmap munmap
    pub fn adopt(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            ring: Ring::map(&socket)?,
            socket,
            started: Instant::now(),
            held: VecDeque::new(),
        })
    }

    /// Take frames that have come, up to a limit; how many.
    pub fn receive(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < ROUND && self.ring.take(&mut take) {
            count += 1;
        }
        count
    }

    /// Whether the interface can still be used: to be asked when the port is ready to be read and
    /// nothing has come, or it stays so.
    ///
    /// # Errors
    /// The interface is gone or down.
    // syscalls: getsockopt
    pub fn check(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.socket)??)
    }

    /// How many frames came since this was last asked and found no room, and were lost.
    ///
    /// # Errors
    /// The kernel does not say.
    // syscalls: getsockopt
    pub fn lost(&self) -> io::Result<u32> {
        raw::lost(&self.socket)
    }

    /// Send all that a node wants to send. False when the interface takes no more for now: the
    /// rest waits.
    ///
    /// # Errors
    /// The interface is gone or down.
    pub fn send(&mut self, node: &mut Node) -> io::Result<bool> {
        loop {
            let room = BATCH - self.held.len();
            self.held
                .extend(std::iter::from_fn(|| node.transmit()).take(room));
            if self.held.is_empty() {
                return Ok(true);
            }
            let sent = match batch::send(&self.socket, self.held.iter()) {
                Ok(count) => count,
                // Dropped on the way out: lost, like any other frame may be.
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => 1,
                Err(error) if is_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            };
            let done = sent.min(self.held.len());
            self.held.drain(..done).for_each(|frame| node.reuse(frame));
        }
    }
}

/// Whether there is nothing, or no room, for now.
fn is_later(error: &io::Error) -> bool {
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

/// The address of an interface, by its name.
///
/// # Errors
/// There is no such interface, or it is no Ethernet interface.
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

/// Whether the longest frame fits.
fn check_mtu(interface: &str) -> io::Result<()> {
    let needed = FRAME - ETHERNET;
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
