//! The attach protocol: how two processes of one host come to share a window, over a Unix socket.
//!
//! The process that connects creates the window and sends an *offer*: the protocol versions that it
//! supports, opaque handshake data of the window's user, the window's descriptor and optionally its
//! heap's. The other process sends an *answer* with the version that it chose, its own handshake
//! data, and optionally its heap. From then on the socket carries only wake-ups, one byte each, and
//! its end of file means that the peer has closed or ended. The sockets are of type
//! `SOCK_SEQPACKET`, so each message arrives whole or not at all, and they do not block, so no peer
//! can make this side wait.
//!
//! ```text
//! offer:  magic "vicattch", 1, first version, last version, parts, offset, data
//! answer: magic "vicattch", 2, version,       accepted,     parts, offset, data
//! wake:   one byte
//! ```
//! *Parts* are flags for the descriptors that are attached: 1 for the window's, 2 for the heap's.
//! *Offset* is where the window begins in its file. A process that connects to a gateway offers no
//! window: the answer brings one.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::time::Timespec;

use crate::limits::HANDSHAKE_DATA;
use crate::window::Window;

mod listener;

pub use listener::Listener;

/// Versions of this protocol that this side supports.
pub const VERSIONS: std::ops::RangeInclusive<u8> = 1..=1;

const MAGIC: [u8; 8] = *b"vicattch";
const HEADER: usize = 20;
const WINDOW: u8 = 1;
const HEAP: u8 = 2;
const OFFER: u8 = 1;
const ANSWER: u8 = 2;
const WAKE: &[u8] = b"w";

/// The most descriptors in a message.
const FDS: usize = 2;

/// An error on a socket. The connection cannot be used afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The peer closed its socket, or its process ended.
    #[error("the peer closed its socket, or its process ended")]
    Disconnected,
    /// The peer supports no version of the protocol that this side supports.
    #[error(
        "the peer supports only versions {first} to {last} of the attach protocol; use the same release on \
        both sides"
    )]
    Version {
        /// The oldest version that the peer supports.
        first: u8,
        /// The newest version that the peer supports.
        last: u8,
    },
    /// The peer sent bytes that are no message.
    #[error("the peer sent a malformed message; it is faulty, or has another release")]
    Malformed,
    /// The peer does not read its socket.
    #[error("the peer does not read its socket")]
    Full,
    /// The kernel refused a call.
    #[error("the kernel refused a system call: {0}")]
    Kernel(Errno),
}

/// A message, checked.
#[derive(Debug)]
pub enum Message {
    /// The peer offers a window, or asks for one.
    Offer {
        /// The window, not yet checked.
        window: Option<WindowLocation>,
        /// The peer's heap, not yet checked.
        heap: Option<OwnedFd>,
        /// Data of the peer's user of the window.
        handshake_data: HandshakeData,
    },
    /// The peer answers an offer.
    Answer {
        /// Whether the peer accepted.
        accepted: bool,
        /// The window, if the offer had none; not yet checked.
        window: Option<WindowLocation>,
        /// The peer's heap, not yet checked.
        heap: Option<OwnedFd>,
        /// Data of the peer's user of the window.
        handshake_data: HandshakeData,
    },
    /// The peer published something for this side.
    Wake,
}

/// The location of a window.
#[derive(Debug)]
pub struct WindowLocation {
    /// The file.
    pub file: OwnedFd,
    /// The offset in the file, in bytes.
    pub offset: u64,
}

/// Opaque data that the users of a window exchange in offer and answer.
pub type HandshakeData = ArrayVec<u8, HANDSHAKE_DATA>;

/// A connected socket.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// Connects to the listener at `path`.
    ///
    /// # Errors
    /// There is no listener (`NOENT`, `CONNREFUSED`), or its backlog is full (`AGAIN`).
    pub fn connect(path: &Path) -> Result<Self, Errno> {
        let socket = seqpacket_socket()?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket })
    }

    /// Connects to the listener at `path` itself. Another user may have put a symbolic link there, to a socket to which this process may
    /// connect and that user may not.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); `LOOP` for a symbolic link.
    pub fn connect_directly(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::open(path, flags, Mode::empty())?;
        if fs::FileType::from_raw_mode(fs::fstat(&file)?.st_mode).is_symlink() {
            return Err(Errno::LOOP);
        }
        Self::connect(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
    }

    /// Creates both ends of a connection in one process.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) =
            net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self { socket: one }, Self { socket: other }))
    }

    /// Sends an offer, with a window or without.
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

    /// Sends an answer, with a window if the offer had none.
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

    /// Shuts the socket down for writing: the peer reads end of file, and this side can still wait
    /// for the peer's.
    pub fn shutdown_write(&self) {
        // If the peer has closed, there is nothing to shut down.
        let _ = net::shutdown(&self.socket, net::Shutdown::Write);
    }

    /// Wakes the peer. If its socket is full of wake-ups, it needs no more.
    pub fn ring(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // If the socket is full, a wake-up is pending. If the peer has closed, the next read finds
        // out.
        let _ = net::send(&self.socket, WAKE, flags);
    }

    /// Returns whether the peer has closed its socket, or its process has ended. Messages may still be there.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut socket, Some(&Timespec::default())).is_ok()
            && socket
                .iter()
                .any(|socket| socket.revents().intersects(ended))
    }

    /// Receives the next message; `None` if there is none.
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
            Err(Errno::CONNRESET) => return Err(AttachError::Disconnected),
            Err(error) => return Err(AttachError::Kernel(error)),
        };
        let mut fds = ArrayVec::<OwnedFd, FDS>::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                // Surplus descriptors are closed here; the kernel marks the message as truncated.
                more.for_each(|fd| drop(fds.try_push(fd)));
            }
        }
        if got.bytes == 0 {
            return Err(AttachError::Disconnected);
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
            Err(Errno::PIPE | Errno::CONNRESET) => Err(AttachError::Disconnected),
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

fn seqpacket_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
