//! The network: a socket for the frames of MXoE on one interface.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netdevice, recv,
    send, socket_with, sockopt,
};

use crate::limits::FRAME;
use crate::node::Node;
use crate::raw::{self, LinkAddress};
use crate::wire::{ETHERTYPE, Mac};

/// Bytes of a frame before what the MTU counts.
const ETHERNET: usize = 14;

/// Bytes the kernel keeps for a node that is late, and of one that is early.
const RECEIVED: usize = 8 << 20;
/// See [`RECEIVED`].
const SENT: usize = 2 << 20;

/// Frames taken in one round before anything else is done.
const BURST: usize = 256;

/// A socket on an interface, for the frames of MXoE and no others.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    index: i32,
    mac: Mac,
    started: Instant,
    /// Did not go out yet.
    held: Option<Vec<u8>>,
}

impl Port {
    /// On an interface, by its name. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// There is no such interface, its frames are too short, or there is no permission for raw
    /// sockets.
    pub fn open(interface: &str) -> io::Result<Self> {
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
        let mac = address(interface)?;
        check_mtu(interface)?;
        bind(&socket, &LinkAddress::new(ETHERTYPE, index))?;
        // Less is slower, not wrong.
        let _wanted = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVED)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, RECEIVED));
        let _wanted = sockopt::set_socket_send_buffer_size_force(&socket, SENT)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, SENT));
        Ok(Self {
            socket,
            index,
            mac,
            started: Instant::now(),
            held: None,
        })
    }

    /// The interface's address.
    #[must_use]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Have frames for another address come here as well.
    ///
    /// # Errors
    /// The interface cannot.
    pub fn hear(&self, mac: Mac) -> io::Result<()> {
        raw::hear(&self.socket, self.index, mac.0)
    }

    /// The time for a [`Node`] on this port.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Take frames that have come, up to a limit; how many.
    ///
    /// # Errors
    /// The interface is gone or down.
    pub fn receive(&self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut frame = [0; FRAME];
        for count in 0..BURST {
            match recv(&self.socket, &mut frame, RecvFlags::TRUNC) {
                // A frame that is longer than any of MXoE is none.
                Ok((_, length)) => {
                    if let Some(frame) = frame.get(..length) {
                        take(frame);
                    }
                }
                Err(Errno::AGAIN) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(BURST)
    }

    /// Send all that a node wants to send. False when the interface takes no more for now: the
    /// rest waits.
    ///
    /// # Errors
    /// The interface is gone or down.
    pub fn send(&mut self, node: &mut Node) -> io::Result<bool> {
        while let Some(frame) = self.held.take().or_else(|| node.transmit()) {
            match send(&self.socket, &frame, SendFlags::empty()) {
                // Dropped on the way out: lost, like any other frame may be.
                Ok(_) | Err(Errno::NOBUFS) => {}
                Err(Errno::AGAIN | Errno::INTR) => {
                    self.held = Some(frame);
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An interface's address, from sysfs.
fn address(interface: &str) -> io::Result<Mac> {
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
