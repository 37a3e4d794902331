//! The sockets that listen for connections.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, SocketAddrUnix, SocketFlags};

use super::{Channel, seqpacket_socket};
use crate::ivshmem::remove_socket;

/// The longest time that a listener waits for others which create their sockets in the same folder.
const LOCK: Duration = Duration::from_secs(1);

/// The listen backlog: the kernel refuses further connections.
const BACKLOG: i32 = 1024;

/// A listening socket; its file is removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`. A socket that an ended process left there is replaced.
    ///
    /// # Errors
    /// `ADDRINUSE` if another process listens there, `BUSY` if one keeps the folder locked; any other error of the kernel.
    pub fn bind(path: &Path) -> Result<Self, Errno> {
        let folder = path.parent().ok_or(Errno::INVAL)?;
        let folder = fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        lock(&folder)?;
        match Channel::connect(path) {
            // A full backlog means that a process listens.
            Ok(_) | Err(Errno::AGAIN) => return Err(Errno::ADDRINUSE),
            // A file that is no socket refuses connections, too.
            Err(Errno::CONNREFUSED) => remove_socket(path)?,
            Err(_) => {}
        }
        let socket = seqpacket_socket()?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        net::listen(&socket, BACKLOG)?;
        let path = path.to_owned();
        Ok(Self { socket, path })
    }

    /// Accepts the next connection; `None` if there is none.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn accept(&self) -> Result<Option<Channel>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match net::accept_with(&self.socket, flags) {
            Ok(socket) => Ok(Some(Channel { socket })),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Locks a folder: two processes that find the same stale socket must not both replace it. A process that may read the folder can keep
/// it locked, so this does not wait for long.
fn lock(folder: &OwnedFd) -> Result<(), Errno> {
    let end = Instant::now() + LOCK;
    loop {
        match fs::flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::WOULDBLOCK) => return Err(Errno::BUSY),
            other => return other,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another process may have removed it already.
        let _ = fs::unlink(&self.path);
    }
}
