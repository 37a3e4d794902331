//! QEMU's `ivshmem-doorbell`: gives a region to a VM, and lets the VM wake the host.
//!
//! The host listens on a socket for each member. QEMU connects to it, and the host sends numbers of
//! 8 bytes with or without a descriptor (QEMU's `docs/specs/ivshmem-spec.rst`, "The ivshmem
//! Client-Server Protocol"): the protocol's version, the member's id, -1 with the region, and id 0
//! with an eventfd, the host's doorbell. The guest rings that doorbell by a write to the device's
//! registers. The socket closes when QEMU ends.
//!
//! A process of the host connects in the same way ([`Client`]). It sends one byte, which QEMU never
//! does, and the host then wakes it through the socket. The host wakes a guest by an interrupt: the
//! eventfd that is sent with the guest's own id ([`Member::send_doorbell`]). `ivshmem-doorbell` has
//! only MSI-X interrupts, and no driver that Debian ships exposes those to programs; ours does
//! ([`crate::pci`]). Without that driver, guests poll.
//!
//! Beside the region and the doorbells, a member's socket is the only state that a host needs, so
//! another process can take over ([`Member::adopt`]). QEMU does not notice.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

use message::{HOST, MEMORY, VERSION, WAKE, send, send_bytes};

mod client;
mod message;
#[cfg(test)]
mod tests;

pub use client::Client;

/// The socket where one member connects.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    /// The path of the socket, whose file this side removes.
    path: PathBuf,
}

/// A connected member.
#[derive(Debug)]
pub struct Member {
    socket: OwnedFd,
    is_process: bool,
}

/// A doorbell: an eventfd.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// Creates a doorbell.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Takes over a doorbell that another process created.
    #[must_use]
    pub fn adopt(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Rings the doorbell. A process that holds the same eventfd can fill it and make it block:
    /// QEMU itself clears `O_NONBLOCK` on each descriptor that it receives (`qemu_socket_set_block`
    /// in its `io/channel-socket.c`). So a thread that serves other members rings with a timer set
    /// whose signal interrupts a blocked write. Returns false if that happened: the member was not
    /// woken.
    pub fn ring(&self) -> bool {
        let rung = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        // If the eventfd is full, the doorbell is ringing already.
        !matches!(rung, Err(Errno::INTR))
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Server {
    /// Listens at `path` for a member. A socket file there is replaced; any other file is not.
    ///
    /// # Errors
    /// Any error of the kernel.
    pub fn bind(path: &Path) -> Result<Self, Errno> {
        remove_socket(path)?;
        let listener = stream()?;
        net::bind(&listener, &SocketAddrUnix::new(path)?)?;
        net::listen(&listener, 1)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// Accepts the next connection, if there is one.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn accept(&self) -> Result<Option<OwnedFd>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match net::accept_with(&self.listener, flags) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Another process may have removed it already.
        let _ = fs::unlink(&self.path);
    }
}

impl Member {
    /// Takes over a connection that another process accepted: that of a VM, or of a process of the
    /// host. Such a process is expected to end soon, because it does not connect again while it
    /// keeps its socket.
    #[must_use]
    pub fn adopt(socket: OwnedFd) -> Self {
        Self {
            socket,
            is_process: false,
        }
    }

    /// Admits a member that has just connected: sends its id, from 1, the region, and the doorbell
    /// by which it wakes the host. No other member may have that doorbell, because its holder can
    /// fill it.
    ///
    /// # Errors
    /// The member has closed its socket.
    pub fn admit(&self, id: u16, region: BorrowedFd<'_>, doorbell: &Doorbell) -> Result<(), Errno> {
        self.admit_without_doorbell(id, region)?;
        self.send_doorbell(HOST, doorbell)
    }

    /// The same for members that ring each other's doorbells and not the host's: see
    /// [`send_doorbell`](Self::send_doorbell).
    ///
    /// # Errors
    /// The member has closed its socket.
    pub fn admit_without_doorbell(&self, id: u16, region: BorrowedFd<'_>) -> Result<(), Errno> {
        send(&self.socket, VERSION, None)?;
        send(&self.socket, id.into(), None)?;
        send(&self.socket, MEMORY, Some(region))
    }

    /// Shuts the connection down, also for other processes that hold the socket.
    pub fn reject(self) {
        // syscalls: shutdown
        // It may be closed already.
        let _gone = net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Checks the socket; returns false if the member has closed it. Received bytes stay in the
    /// socket: descriptors may be attached, and a process that receives them has to close them,
    /// which may take as long as the sender likes. So the caller must call this once for each event
    /// ([`Waiter::add_shared`](crate::waiter::Waiter::add_shared)).
    pub fn check_socket(&mut self) -> bool {
        // syscalls: recvfrom
        let look = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match net::recv(&self.socket, &mut [0; 1][..], look) {
            Ok((0, _)) => false,
            Ok(_) => {
                self.is_process = true;
                // End of file is behind the received bytes, so a read cannot tell. A socket whose
                // other end is closed refuses even an empty message.
                send_bytes(&self.socket, &[], None).is_ok()
            }
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Returns whether the member is a process of the host, which has sent a byte, and not a VM.
    #[must_use]
    pub fn is_process(&self) -> bool {
        self.is_process
    }

    /// Sends a member's doorbell, once for each id: another member's to ring it, and its own to
    /// wait for it.
    ///
    /// # Errors
    /// The member has closed its socket, or does not read it.
    pub fn send_doorbell(&self, id: u16, doorbell: &Doorbell) -> Result<(), Errno> {
        send(&self.socket, id.into(), Some(doorbell.as_fd()))
    }

    /// Wakes the member through its socket, if it is a process of the host.
    pub fn wake(&self) {
        if self.is_process {
            // If the socket is full, a wake-up is pending. If it is closed, the next check finds
            // out.
            let _ = send(&self.socket, WAKE, None);
        }
    }
}

impl AsFd for Member {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Removes a socket file that an ended process left. Any other file stays, and binding fails.
pub(crate) fn remove_socket(path: &Path) -> Result<(), Errno> {
    let removed =
        fs::lstat(path).and_then(|found| match fs::FileType::from_raw_mode(found.st_mode) {
            fs::FileType::Socket => fs::unlink(path),
            _ => Err(Errno::EXIST),
        });
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}
