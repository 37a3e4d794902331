//! The network: a socket for the frames of MXoE on one interface.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netdevice, recv,
    send, socket_with, sockopt,
};

use crate::limits::FRAME;
use crate::node::Node;
use crate::raw::LinkAddress;
use crate::wire::{ETHERTYPE, Mac};

/// Bytes the kernel keeps for a node that is late.
const BUFFER: usize = 8 << 20;

/// Frames taken in one round before anything else is done.
const BURST: usize = 256;

/// A socket on an interface, for the frames of MXoE and no others.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    mac: Mac,
    started: Instant,
}

impl Port {
    /// On an interface, by its name. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// There is no such interface, or no permission for raw sockets.
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
        bind(&socket, &LinkAddress::new(ETHERTYPE, index))?;
        // Less is slower, not wrong.
        let _wanted = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER));
        Ok(Self {
            socket,
            mac: address(interface)?,
            started: Instant::now(),
        })
    }

    /// The interface's address.
    #[must_use]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// The time for a [`Node`] on this port.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Send what the node wants to send, wait until a frame comes, the node has something to do,
    /// or `limit` is over, and give it the frames.
    ///
    /// # Errors
    /// The interface is gone or down.
    pub fn turn(&self, node: &mut Node, limit: Duration) -> io::Result<()> {
        self.flush(node)?;
        let due = node.deadline().map(|at| at.saturating_sub(self.now()));
        let pause = due.map_or(limit, |due| due.min(limit));
        let pause = Timespec::try_from(pause).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&pause)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut frame = [0; FRAME];
        for _ in 0..BURST {
            match recv(&self.socket, &mut frame, RecvFlags::TRUNC) {
                // A frame that is longer than any of MXoE is none.
                Ok((_, length)) => {
                    if let Some(frame) = frame.get(..length) {
                        node.receive(self.now(), frame);
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        node.tick(self.now());
        self.flush(node)
    }

    /// Send all there is. What finds no room is lost, and sent again when its time has come.
    fn flush(&self, node: &mut Node) -> io::Result<()> {
        while let Some(frame) = node.transmit() {
            match send(&self.socket, &frame, SendFlags::empty()) {
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
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
