//! The front-end's end of a vhost-user socket: encodes, sends and receives messages.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::TEST_TIMEOUT;

/// Message numbers (vhost-user specification, "Front-end message types").
#[allow(missing_docs, reason = "named as in the specification")]
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_LOG_FD: u32 = 7;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SEND_RARP: u32 = 19;
    pub const NET_SET_MTU: u32 = 20;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    pub const SET_STATUS: u32 = 39;
    pub const GET_STATUS: u32 = 40;
}

/// Header flag: version 1.
pub const VERSION: u32 = 1;
/// Header flag: this is a reply.
pub const REPLY: u32 = 1 << 2;
/// Header flag: the front-end asks the back-end to acknowledge this request.
pub const NEED_REPLY: u32 = 1 << 3;

/// The maximum number of descriptors sent with one message. It is larger than the limit of any
/// back-end.
const MAX_FDS: usize = 32;

/// Returns the bytes of a message: header and payload.
#[must_use]
pub fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let size = payload.len() as u32;
    let header = [request, flags, size];
    let header = header.iter().flat_map(|word| word.to_ne_bytes());
    header.chain(payload.iter().copied()).collect()
}

/// Returns a payload: a ring's number and a value.
#[must_use]
pub fn state(ring: u32, value: u32) -> Vec<u8> {
    [ring, value]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect()
}

/// Returns a payload: a number.
#[must_use]
pub fn number(value: u64) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// Returns a payload: a ring's addresses in the front-end's address space.
#[must_use]
pub fn addresses(ring: u32, descriptors: u64, used: u64, available: u64) -> Vec<u8> {
    let mut bytes = state(ring, 0);
    for word in [descriptors, used, available, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// Returns a payload: a ring's addresses, with writes to the used ring logged at an address of the log.
#[must_use]
pub fn logged_addresses(ring: u32, places: [u64; 3], log: u64) -> Vec<u8> {
    let mut bytes = state(ring, 1);
    for word in places.into_iter().chain([log]) {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// Returns a payload: the size of a log and its offset in its file.
#[must_use]
pub fn log(size: u64, offset: u64) -> Vec<u8> {
    [number(size), number(offset)].concat()
}

/// A connected socket.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
}

impl Wire {
    /// Creates the front-end's end from a connected stream socket, and sets its timeouts.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, Some(TEST_TIMEOUT)).expect("a socket");
        }
        Self { socket }
    }

    /// Creates a front-end's end, and the socket for its back-end.
    #[must_use]
    pub fn pair() -> (Self, OwnedFd) {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket pair");
        (Self::new(ours), theirs)
    }

    /// Sends bytes unchanged, with the descriptors attached to the first byte. Returns false if the
    /// back-end has closed the connection.
    pub fn send_raw(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let flags = SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Ok(count) => {
                assert_eq!(count, bytes.len());
                true
            }
            Err(Errno::PIPE | Errno::CONNRESET) => false,
            Err(error) => panic!("the back-end does not read: {error}"),
        }
    }

    /// Sends a message without requesting an acknowledgement.
    pub fn send(&self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        self.send_raw(&message(request, VERSION, payload), fds)
    }

    /// Sends a message and requests an acknowledgement from the back-end.
    pub fn send_for_reply(&self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        self.send_raw(&message(request, VERSION | NEED_REPLY, payload), fds)
    }

    /// Reads a reply. Returns its request and payload, or `None` if the back-end has closed the
    /// connection.
    #[must_use]
    pub fn reply(&self) -> Option<(u32, Vec<u8>)> {
        let mut header = [0; 12];
        self.read(&mut header)?;
        let [request, flags, size] =
            [0, 4, 8].map(|at| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap()));
        assert_eq!(flags & (3 | REPLY), VERSION | REPLY, "flags of a reply");
        let mut payload = vec![0; size as usize];
        self.read(&mut payload)?;
        Some((request, payload))
    }

    /// Reads a reply to this request whose payload is a number.
    #[must_use]
    pub fn number(&self, request: u32) -> u64 {
        let (to, payload) = self.reply().expect("a reply");
        assert_eq!(to, request);
        u64::from_ne_bytes(payload.try_into().expect("a number"))
    }

    /// Reads a reply whose payload is a ring's state. Returns the ring and the value.
    #[must_use]
    pub fn state(&self, request: u32) -> (u32, u32) {
        let (to, payload) = self.reply().expect("a reply");
        assert_eq!((to, payload.len()), (request, 8));
        let [ring, value] =
            [0, 4].map(|at| u32::from_ne_bytes(payload[at..at + 4].try_into().unwrap()));
        (ring, value)
    }

    /// Waits until the back-end closes the connection. Discards the messages that it sends before.
    pub fn wait_for_hang_up(&self) {
        let mut byte = [0];
        while self.read(&mut byte).is_some() {}
    }

    fn read(&self, to: &mut [u8]) -> Option<()> {
        let mut done = 0;
        while done < to.len() {
            match rustix::io::read(&self.socket, &mut to[done..]) {
                Ok(0) | Err(Errno::CONNRESET) => return None,
                Ok(count) => done += count,
                Err(error) => panic!("no answer from the back-end: {error}"),
            }
        }
        Some(())
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
