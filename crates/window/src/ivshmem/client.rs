//! A process of the host as a member: connects to the socket of a member, as QEMU does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::message::{HOST, MEMORY, VERSION, receive};

/// This process as a member.
#[derive(Debug)]
pub struct Client {
    pub(super) socket: OwnedFd,
    doorbell: OwnedFd,
    id: u16,
}

impl Client {
    /// Connects to the region that is served at `path`.
    ///
    /// # Errors
    /// There is no server, or it sends something else.
    pub fn connect(path: &Path) -> Result<(Self, OwnedFd), Errno> {
        let socket = net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        let expect = |wanted: i64| match receive(&socket)? {
            (number, fd) if number == wanted => Ok(fd),
            _ => Err(Errno::PROTO),
        };
        expect(VERSION)?;
        let (id, _) = receive(&socket)?;
        let id = u16::try_from(id).map_err(|_| Errno::PROTO)?;
        let region = expect(MEMORY)?.ok_or(Errno::PROTO)?;
        let doorbell = expect(HOST.into())?.ok_or(Errno::PROTO)?;
        net::send(&socket, b"w", SendFlags::NOSIGNAL)?;
        let client = Self {
            socket,
            doorbell,
            id,
        };
        Ok((client, region))
    }

    /// Returns the member's id.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Wakes the host. Only the host has this doorbell, too, see [`Member::admit`](super::Member::admit), and it does not
    /// write it.
    pub fn ring(&self) {
        // If the eventfd is full, the doorbell is ringing already.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// Reads pending wake-ups; returns false if the host has closed its end.
    #[must_use]
    pub fn take_wakeups(&self) -> bool {
        match net::recv(&self.socket, &mut [0; 256][..], RecvFlags::DONTWAIT) {
            Ok((count, _)) => count > 0,
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
