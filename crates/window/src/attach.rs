//! How two processes of one host come to share a window: over a Unix socket.
//!
//! The one that connects makes the window and *offers* it: versions it speaks, a greeting for the
//! user of the window, the window's descriptor and perhaps its heap's. The other *answers* with
//! the version it chose, its own greeting, and perhaps its heap. From then on the socket carries
//! only wake-ups, one byte each, and its end is the peer's end. Packets, so every message is whole
//! or not there; never blocking, so no peer can make this side wait.
//!
//! ```text
//! offer:  magic "vicattch", 1, first version, last version, 0, greeting   + window, [heap]
//! answer: magic "vicattch", 2, version,       accepted,     0, greeting   + [heap]
//! wake:   one byte
//! ```

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use arrayvec::ArrayVec;
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::limits::GREETING;

/// Versions of this protocol that are spoken here.
pub const VERSIONS: std::ops::RangeInclusive<u8> = 1..=1;

const MAGIC: [u8; 8] = *b"vicattch";
const HEADER: usize = 12;
const OFFER: u8 = 1;
const ANSWER: u8 = 2;
const WAKE: &[u8] = b"w";

/// Most descriptors in a message.
const FDS: usize = 2;

/// Connections that wait for this process to look: more than this many at a time are refused.
const BACKLOG: i32 = 1024;

/// What went wrong on a socket. The connection is of no use afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The peer closed its socket, or died.
    #[error("the peer is gone")]
    Gone,
    /// The peer speaks another protocol or another version of it.
    #[error("the peer speaks no common version of the attach protocol ({first} to {last})")]
    Version {
        /// The oldest it speaks.
        first: u8,
        /// The newest it speaks.
        last: u8,
    },
    /// The peer sent something that is no message.
    #[error("the peer sent a message that makes no sense")]
    Nonsense,
    /// The peer does not read its socket.
    #[error("the peer does not take its messages")]
    Full,
    /// This host cannot.
    #[error("the kernel refused: {0}")]
    Kernel(Errno),
}

/// A message, checked.
#[derive(Debug)]
pub enum Message {
    /// The peer offers a window.
    Offer {
        /// The window's file, not yet checked.
        window: OwnedFd,
        /// Its heap, not yet checked.
        heap: Option<OwnedFd>,
        /// What its user says.
        greeting: Greeting,
    },
    /// The peer answers an offer.
    Answer {
        /// Whether it took the window.
        accepted: bool,
        /// Its heap, not yet checked.
        heap: Option<OwnedFd>,
        /// What its user says.
        greeting: Greeting,
    },
    /// The peer has something for this side.
    Wake,
}

/// What users of a window say to each other while attaching.
pub type Greeting = ArrayVec<u8, GREETING>;

/// A connected socket.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// Connect to whoever listens at `path`.
    ///
    /// # Errors
    /// Nobody listens there (`NOENT`, `CONNREFUSED`), or too many connect at the same time
    /// (`AGAIN`).
    pub fn connect(path: &Path) -> Result<Self, Errno> {
        let socket = packets()?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket })
    }

    /// Both ends of a connection, in one process.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) =
            net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self { socket: one }, Self { socket: other }))
    }

    /// Offer a window.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn offer(
        &self,
        window: BorrowedFd<'_>,
        heap: Option<BorrowedFd<'_>>,
        greeting: &Greeting,
    ) -> Result<(), AttachError> {
        let head = header(OFFER, *VERSIONS.start(), *VERSIONS.end());
        let fds: ArrayVec<_, FDS> = std::iter::once(window).chain(heap).collect();
        self.send(&head, greeting, &fds)
    }

    /// Answer an offer.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn answer(
        &self,
        accepted: bool,
        heap: Option<BorrowedFd<'_>>,
        greeting: &Greeting,
    ) -> Result<(), AttachError> {
        let head = header(ANSWER, *VERSIONS.end(), u8::from(accepted));
        let fds: ArrayVec<_, FDS> = heap.into_iter().collect();
        self.send(&head, greeting, &fds)
    }

    /// Wake the peer. One that has wake-ups it did not read needs no more.
    pub fn ring(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // Full: it has enough to read. Gone: whoever reads will find out.
        let _ = net::send(&self.socket, WAKE, flags);
    }

    /// The next message; `None` when there is none.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn receive(&self) -> Result<Option<Message>, AttachError> {
        let mut bytes = [0; HEADER + GREETING + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = match net::recvmsg(&self.socket, parts, &mut ancillary, flags) {
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(Errno::CONNRESET) => return Err(AttachError::Gone),
            Err(error) => return Err(AttachError::Kernel(error)),
        };
        let mut fds = ArrayVec::<OwnedFd, FDS>::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                // What is too much is closed here; the kernel marks the message as cut.
                more.for_each(|fd| drop(fds.try_push(fd)));
            }
        }
        if got.bytes == 0 {
            return Err(AttachError::Gone);
        }
        let cut = ReturnFlags::CTRUNC | ReturnFlags::TRUNC;
        if got.flags.intersects(cut) {
            return Err(AttachError::Nonsense);
        }
        decode(bytes.get(..got.bytes).unwrap_or_default(), fds).map(Some)
    }

    fn send(
        &self,
        head: &[u8],
        greeting: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), AttachError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        let parts = [IoSlice::new(head), IoSlice::new(greeting)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match net::sendmsg(&self.socket, &parts, &mut ancillary, flags) {
            Ok(_) => Ok(()),
            Err(Errno::AGAIN) => Err(AttachError::Full),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(AttachError::Gone),
            Err(error) => Err(AttachError::Kernel(error)),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn header(kind: u8, second: u8, third: u8) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let fields = MAGIC.into_iter().chain([kind, second, third, 0]);
    for (place, byte) in bytes.iter_mut().zip(fields) {
        *place = byte;
    }
    bytes
}

fn decode(bytes: &[u8], fds: ArrayVec<OwnedFd, FDS>) -> Result<Message, AttachError> {
    if bytes == WAKE && fds.is_empty() {
        return Ok(Message::Wake);
    }
    let (magic, rest) = bytes
        .split_first_chunk::<8>()
        .ok_or(AttachError::Nonsense)?;
    let (fields, rest) = rest.split_first_chunk::<4>().ok_or(AttachError::Nonsense)?;
    if *magic != MAGIC {
        return Err(AttachError::Nonsense);
    }
    let greeting = Greeting::try_from(rest).map_err(|_| AttachError::Nonsense)?;
    let mut fds = fds.into_iter();
    match *fields {
        [OFFER, first, last, 0] => {
            if first > *VERSIONS.end() || last < *VERSIONS.start() {
                return Err(AttachError::Version { first, last });
            }
            Ok(Message::Offer {
                window: fds.next().ok_or(AttachError::Nonsense)?,
                heap: fds.next(),
                greeting,
            })
        }
        [ANSWER, version, accepted @ (0 | 1), 0] => {
            if !VERSIONS.contains(&version) {
                let (first, last) = (version, version);
                return Err(AttachError::Version { first, last });
            }
            let heap = fds.next();
            match fds.next() {
                None => Ok(Message::Answer {
                    accepted: accepted == 1,
                    heap,
                    greeting,
                }),
                Some(_) => Err(AttachError::Nonsense),
            }
        }
        _ => Err(AttachError::Nonsense),
    }
}

/// Listens at a path, and removes it when dropped.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listen at `path`. A socket that a dead process left there is replaced.
    ///
    /// # Errors
    /// `ADDRINUSE` when somebody listens there; whatever else the kernel says.
    pub fn bind(path: &Path) -> Result<Self, Errno> {
        let folder = path.parent().ok_or(Errno::INVAL)?;
        let folder = fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Two processes that find the same dead socket must not both replace it.
        fs::flock(&folder, FlockOperation::LockExclusive)?;
        match Channel::connect(path) {
            // Full is busy.
            Ok(_) | Err(Errno::AGAIN) => return Err(Errno::ADDRINUSE),
            Err(Errno::CONNREFUSED) => fs::unlink(path)?,
            Err(_) => {}
        }
        let socket = packets()?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        net::listen(&socket, BACKLOG)?;
        let path = path.to_owned();
        Ok(Self { socket, path })
    }

    /// The next connection; `None` when nobody waits.
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

impl Drop for Listener {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        let _ = fs::unlink(&self.path);
    }
}

fn packets() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
