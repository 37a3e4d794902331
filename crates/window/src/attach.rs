//! How two processes of one host come to share a window: over a Unix socket.
//!
//! The one that connects makes the window and *offers* it: versions it speaks, a handshake_data for the
//! user of the window, the window's descriptor and perhaps its heap's. The other *answers* with
//! the version it chose, its own handshake_data, and perhaps its heap. From then on the socket carries
//! only wake-ups, one byte each, and its end is the peer's end. Packets, so every message is whole
//! or not there; never blocking, so no peer can make this side wait.
//!
//! ```text
//! offer:  magic "vicattch", 1, first version, last version, parts, place, handshake_data
//! answer: magic "vicattch", 2, version,       accepted,     parts, place, handshake_data
//! wake:   one byte
//! ```
//! *Parts* says which descriptors come along: 1 the window's, 2 the heap's. *WindowLocation* is where the
//! window begins in its file. Who connects to a gateway offers no window: the answer brings it.

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

use crate::ivshmem::remove_socket;
use crate::limits::HANDSHAKE_DATA;
use crate::window::Window;

/// Versions of this protocol that are spoken here.
pub const VERSIONS: std::ops::RangeInclusive<u8> = 1..=1;

const MAGIC: [u8; 8] = *b"vicattch";
const HEADER: usize = 20;
const WINDOW: u8 = 1;
const HEAP: u8 = 2;
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
    Malformed,
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
    /// The peer offers a window, or wants one.
    Offer {
        /// Its window, not yet checked.
        window: Option<WindowLocation>,
        /// Its heap, not yet checked.
        heap: Option<OwnedFd>,
        /// What its user says.
        handshake_data: HandshakeData,
    },
    /// The peer answers an offer.
    Answer {
        /// Whether it agreed.
        accepted: bool,
        /// Its window, if it was to bring one; not yet checked.
        window: Option<WindowLocation>,
        /// Its heap, not yet checked.
        heap: Option<OwnedFd>,
        /// What its user says.
        handshake_data: HandshakeData,
    },
    /// The peer has something for this side.
    Wake,
}

/// Where a window is.
#[derive(Debug)]
pub struct WindowLocation {
    /// The file it is in.
    pub file: OwnedFd,
    /// Where it begins in there, in bytes.
    pub offset: u64,
}

/// What users of a window say to each other while attaching.
pub type HandshakeData = ArrayVec<u8, HANDSHAKE_DATA>;

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
        let socket = seqpacket_socket()?;
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

    /// Offer a window, or ask for one.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn offer(
        &self,
        window: Option<&Window>,
        heap: Option<BorrowedFd<'_>>,
        handshake_data: &HandshakeData,
    ) -> Result<(), AttachError> {
        let fields = [OFFER, *VERSIONS.start(), *VERSIONS.end()];
        self.send(fields, window, heap, handshake_data)
    }

    /// Answer an offer, with a window if it had none.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn answer(
        &self,
        accepted: bool,
        window: Option<&Window>,
        heap: Option<BorrowedFd<'_>>,
        handshake_data: &HandshakeData,
    ) -> Result<(), AttachError> {
        let fields = [ANSWER, *VERSIONS.end(), u8::from(accepted)];
        self.send(fields, window, heap, handshake_data)
    }

    /// Tell the peer that this is the end, and go on listening for its own.
    pub fn shutdown_write(&self) {
        // Gone is finished.
        let _ = net::shutdown(&self.socket, net::Shutdown::Write);
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
        let mut bytes = [0; HEADER + HANDSHAKE_DATA + 1];
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
            return Err(AttachError::Malformed);
        }
        decode(bytes.get(..got.bytes).unwrap_or_default(), fds).map(Some)
    }

    fn send(
        &self,
        fields: [u8; 3],
        window: Option<&Window>,
        heap: Option<BorrowedFd<'_>>,
        handshake_data: &[u8],
    ) -> Result<(), AttachError> {
        let fds: ArrayVec<_, FDS> = window.map(AsFd::as_fd).into_iter().chain(heap).collect();
        let offset = window.map_or(0, Window::offset);
        let parts = window.map_or(0, |_| WINDOW) | heap.map_or(0, |_| HEAP);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let head = header(fields, parts, offset);
        let parts = [IoSlice::new(&head), IoSlice::new(handshake_data)];
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

fn header([kind, second, third]: [u8; 3], parts: u8, offset: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let fields = MAGIC.into_iter().chain([kind, second, third, parts]);
    let fields = fields.chain(offset.to_le_bytes());
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
        .ok_or(AttachError::Malformed)?;
    let (fields, rest) = rest
        .split_first_chunk::<4>()
        .ok_or(AttachError::Malformed)?;
    let (offset, rest) = rest.split_first_chunk().ok_or(AttachError::Malformed)?;
    let [kind, second, third, parts] = *fields;
    let sent = match parts {
        0 => 0,
        WINDOW | HEAP => 1,
        3 => 2,
        _ => return Err(AttachError::Malformed),
    };
    if *magic != MAGIC || fds.len() != sent {
        return Err(AttachError::Malformed);
    }
    let handshake_data = HandshakeData::try_from(rest).map_err(|_| AttachError::Malformed)?;
    let mut fds = fds.into_iter();
    let window = match parts & WINDOW {
        0 => None,
        _ => fds.next().map(|file| WindowLocation {
            file,
            offset: u64::from_le_bytes(*offset),
        }),
    };
    let heap = fds.next();
    match (kind, second, third) {
        (OFFER, first, last) => {
            if first > *VERSIONS.end() || last < *VERSIONS.start() {
                return Err(AttachError::Version { first, last });
            }
            Ok(Message::Offer {
                window,
                heap,
                handshake_data,
            })
        }
        (ANSWER, version, accepted @ (0 | 1)) => {
            if !VERSIONS.contains(&version) {
                let (first, last) = (version, version);
                return Err(AttachError::Version { first, last });
            }
            Ok(Message::Answer {
                accepted: accepted == 1,
                window,
                heap,
                handshake_data,
            })
        }
        _ => Err(AttachError::Malformed),
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
            // Also what is no socket refuses.
            Err(Errno::CONNREFUSED) => remove_socket(path)?,
            Err(_) => {}
        }
        let socket = seqpacket_socket()?;
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

fn seqpacket_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
