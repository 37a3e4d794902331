//! QEMU's `ivshmem-doorbell`: how a region gets into a VM, and how the VM is_process the host.
//!
//! The host listens on a socket for each member. QEMU connects to it and is sent, as numbers of 8
//! bytes with or without a descriptor (QEMU's `docs/specs/ivshmem-spec.rst`, "The ivshmem
//! Client-Server Protocol"): the protocol's version, the member's id, -1 with the region, and id 0
//! with an eventfd: the host's doorbell. The guest rings it by a write to the device's registers.
//! The end of the socket is the VM's end.
//!
//! A process of the host takes part in the same way ([`Client`]). It sends one byte, which QEMU
//! never does, and is woken through the socket from then on. A guest is woken by an interrupt: the
//! eventfd that comes with its own id ([`Member::introduce`]). `ivshmem-doorbell` only has MSI-X
//! interrupts, and no driver that Debian ships hands those to a program; ours does ([`crate::pci`]).
//! Without it guests look now and then.
//!
//! A member's socket is all that a host needs of it, beside the region and the doorbells: another
//! process can take over ([`Member::adopt`]). QEMU does not notice.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

/// The version of the protocol.
const VERSION: i64 = 0;

/// What the region is sent with.
const MEMORY: i64 = -1;

/// The host's id.
const HOST: u16 = 0;

/// What a process of the host is woken with: nobody's id.
const WAKE: i64 = -2;

/// Listens for one member.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    /// Where it listens, if its file is this side's to remove.
    path: Option<PathBuf>,
}

/// A member that is there.
#[derive(Debug)]
pub struct Member {
    socket: OwnedFd,
    is_process: bool,
}

/// The doorbell that members ring.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

/// This process as a member.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    doorbell: OwnedFd,
    id: u16,
}

impl Doorbell {
    /// A new one.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// One that another process made.
    #[must_use]
    pub fn adopt(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Ring it. Whoever has it too can fill it and make it block: QEMU itself takes `O_NONBLOCK`
    /// from each descriptor that it is sent (`qemu_socket_set_block` in its
    /// `io/channel-socket.c`). So a thread that serves others rings with an alarm set, which
    /// interrupts a write that waits. False when that happened: nobody was told.
    pub fn ring(&self) -> bool {
        let rung = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        // Full: it has been rung often enough.
        !matches!(rung, Err(Errno::INTR))
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Server {
    /// Listen at `path` for a member. A socket there is replaced, and nothing else.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn bind(path: &Path) -> Result<Self, Errno> {
        remove_socket(path)?;
        let listener = stream()?;
        net::bind(&listener, &SocketAddrUnix::new(path)?)?;
        net::listen(&listener, 1)?;
        Ok(Self {
            listener,
            path: Some(path.to_owned()),
        })
    }

    /// Listen on a socket that somebody else bound, who removes its file. It must not block.
    #[must_use]
    pub fn adopt(listener: OwnedFd) -> Self {
        Self {
            listener,
            path: None,
        }
    }

    /// The next that connects, if somebody does.
    ///
    /// # Errors
    /// No descriptors left.
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
        if let Some(path) = &self.path {
            // Somebody may have removed it already.
            let _ = fs::unlink(path);
        }
    }
}

impl Member {
    /// One that another process accepted: a VM, or a process of the host that will be gone soon, for
    /// it does not connect again while it has its socket.
    #[must_use]
    pub fn adopt(socket: OwnedFd) -> Self {
        Self {
            socket,
            is_process: false,
        }
    }

    /// Admit one that has just connected: it is given its id, from 1, the region and the doorbell that it is_process
    /// the host with, which no other member may have: whoever has it can fill it.
    ///
    /// # Errors
    /// It went again at once.
    pub fn admit(&self, id: u16, region: BorrowedFd<'_>, doorbell: &Doorbell) -> Result<(), Errno> {
        self.admit_alone(id, region)?;
        self.introduce(HOST, doorbell)
    }

    /// The same, for members that ring each other's doorbells and not the host's: see
    /// [`introduce`](Self::introduce).
    ///
    /// # Errors
    /// It went again at once.
    pub fn admit_alone(&self, id: u16, region: BorrowedFd<'_>) -> Result<(), Errno> {
        send(&self.socket, VERSION, None)?;
        send(&self.socket, id.into(), None)?;
        send(&self.socket, MEMORY, Some(region))
    }

    /// Tell it that nothing more comes, also where another process has the socket too.
    pub fn reject(self) {
        // syscalls: shutdown
        // It may be gone already.
        let _gone = net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Look at its socket; false when it is gone. What it said stays there: descriptors may have come along, and
    /// whoever takes them has to close them, which may take as long as their sender likes. So this is to be
    /// called once for each time that something comes ([`Waiter::add_shared`](crate::waiter::Waiter::add_shared)).
    pub fn check_socket(&mut self) -> bool {
        // syscalls: recvfrom
        let look = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match net::recv(&self.socket, &mut [0; 1][..], look) {
            Ok((0, _)) => false,
            Ok(_) => {
                self.is_process = true;
                // The end is behind what it said. A socket without another end takes nothing, not even nothing.
                send_bytes(&self.socket, &[], None).is_ok()
            }
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Whether it is a process of the host, which has said so, and no VM.
    #[must_use]
    pub fn is_process(&self) -> bool {
        self.is_process
    }

    /// Tell it of a member's doorbell, once for each id: of another's to ring it, of its own to
    /// hear it.
    ///
    /// # Errors
    /// It is gone, or does not read.
    pub fn introduce(&self, id: u16, doorbell: &Doorbell) -> Result<(), Errno> {
        send(&self.socket, id.into(), Some(doorbell.as_fd()))
    }

    /// Wake it, if it can be woken.
    pub fn wake(&self) {
        if self.is_process {
            // Full: it has enough to read. Gone: that will be heard.
            let _ = send(&self.socket, WAKE, None);
        }
    }
}

impl AsFd for Member {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Client {
    /// Take part in the region that is served at `path`.
    ///
    /// # Errors
    /// Nobody serves there, or it sends something else.
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

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Wake the host. Nobody but the host has this doorbell too, see [`Server::accept`], and the
    /// host does not write it.
    pub fn ring(&self) {
        // Full: it has been rung often enough.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// Take wake-ups; false when the host is gone.
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

/// Remove a socket that was left there. Any other file stays, and is in the way.
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

/// Send a number, perhaps with a descriptor. A socket's buffer has room for what is sent here.
fn send(socket: &OwnedFd, number: i64, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    send_bytes(socket, &number.to_le_bytes(), fd)
}

/// Send bytes, all of them or none.
fn send_bytes(socket: &OwnedFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let fds: arrayvec::ArrayVec<_, 1> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // syscalls: sendmsg
    let sent = net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?;
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(Errno::AGAIN),
    }
}

/// The next number, with the descriptor that came with it.
fn receive(socket: &OwnedFd) -> Result<(i64, Option<OwnedFd>), Errno> {
    let mut bytes = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let got = net::recvmsg(socket, parts, &mut ancillary, flags)?;
    let mut fd = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last();
        }
    }
    match got.bytes == bytes.len() {
        true => Ok((i64::from_le_bytes(bytes), fd)),
        false => Err(Errno::PROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_socket_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        std::fs::write(&path, "kept").unwrap();
        assert_eq!(Server::bind(&path).unwrap_err(), Errno::EXIST);
        let bound = crate::attach::Listener::bind(&path);
        assert_eq!(bound.unwrap_err(), Errno::EXIST);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
        // A socket is, also one that somebody left.
        std::fs::remove_file(&path).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        Server::bind(&path).unwrap();
    }

    #[test]
    fn a_member_is_given_region_and_doorbell_and_its_end_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let server = Server::bind(&path).unwrap();
        let doorbell = Doorbell::new().unwrap();
        let region = crate::memfd::create(c"x", 4096).unwrap();
        assert!(server.accept().unwrap().is_none());
        let client = std::thread::spawn(move || Client::connect(&path).unwrap());
        let socket = loop {
            if let Some(socket) = server.accept().unwrap() {
                break socket;
            }
        };
        let mut member = Member::adopt(socket);
        member.admit(3, region.as_fd(), &doorbell).unwrap();
        let (client, memory) = client.join().unwrap();
        assert_eq!(client.id(), 3);
        assert_eq!(crate::memfd::final_length(memory.as_fd()), Some(4096));
        client.ring();
        let rung = rustix::io::read(&doorbell, &mut [0; 8]);
        assert_eq!(rung, Ok(8));
        assert!(member.check_socket() && client.take_wakeups());
        member.wake();
        let mut woken = [0; 8];
        let (count, _) = net::recv(&client.socket, &mut woken[..], RecvFlags::empty()).unwrap();
        assert_eq!((count, i64::from_le_bytes(woken)), (8, WAKE));
        assert!(member.is_process());
        drop(client);
        assert!(!member.check_socket());
    }

    #[test]
    fn what_a_member_says_is_left_in_its_socket_and_its_end_noticed() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut member, theirs) = (Member::adopt(ours.into()), OwnedFd::from(theirs));
        assert!(member.check_socket() && !member.is_process());
        let (read, write) = rustix::pipe::pipe().unwrap();
        send_bytes(&theirs, b"w", Some(write.as_fd())).unwrap();
        drop(write);
        assert!(member.check_socket() && member.is_process());
        // The pipe has its other end: in the socket, where nobody has closed it.
        let flags = rustix::event::PollFlags::HUP;
        let mut end = [rustix::event::PollFd::new(&read, flags)];
        let now = rustix::time::Timespec::default();
        assert_eq!(rustix::event::poll(&mut end, Some(&now)), Ok(0));
        drop(theirs);
        assert!(!member.check_socket(), "its end is behind what it said");
        member.reject();
        assert_eq!(rustix::event::poll(&mut end, Some(&now)), Ok(1));
    }
}
