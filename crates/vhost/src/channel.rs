//! The vhost-user socket: framing of messages, passing of descriptors, and replies. Never blocks.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendFlags, Shutdown,
};

use crate::fault::{Fault, ProtocolFault};
use crate::limits::{MAX_MESSAGE_FDS, MAX_PAYLOAD};
use crate::message::{Header, Request, decode};
use crate::raw::ForeignFd;

/// Most descriptors that the kernel passes with one message (`SCM_MAX_FD`). The control buffer has room
/// for all of them: the kernel would close descriptors without room in the thread that receives, however
/// long the close takes.
const MAX_PASSED_FDS: usize = 253;

/// Descriptors that came with a message.
pub type Descriptors = ArrayVec<ForeignFd, MAX_MESSAGE_FDS>;

/// A complete message.
#[derive(Debug)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// The decoded request.
    pub request: Request,
    /// The descriptors that came with the message; their number matches the request.
    pub descriptors: Descriptors,
}

/// A vhost-user socket.
#[derive(Debug)]
pub struct Channel {
    socket: ForeignFd,
    buffer: [u8; Header::SIZE + MAX_PAYLOAD],
    filled: usize,
    descriptors: Descriptors,
}

impl Channel {
    /// Uses a connected stream socket.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking: it is not a socket.
    pub fn new(socket: OwnedFd) -> Result<Self, Fault> {
        // syscalls: ioctl
        rustix::io::ioctl_fionbio(&socket, true).map_err(Fault::Host)?;
        Ok(Self {
            socket: ForeignFd::from(socket),
            buffer: [0; Header::SIZE + MAX_PAYLOAD],
            filled: 0,
            descriptors: Descriptors::new(),
        })
    }

    /// Returns the next message, or `None` when no complete one has arrived.
    ///
    /// # Errors
    /// The front-end closed the socket or broke the protocol.
    pub fn receive(&mut self) -> Result<Option<Message>, Fault> {
        loop {
            let header = self.header()?;
            let wanted = match header {
                None => Header::SIZE,
                Some(header) => Header::SIZE + header.size as usize,
            };
            if self.filled == wanted {
                if let Some(header) = header {
                    return self.take(header).map(Some);
                }
            }
            // Never read past the end of this message: the kernel would deliver the descriptors of
            // the next message with those bytes.
            if !self.fill(wanted)? {
                return Ok(None);
            }
        }
    }

    /// Returns the header, once it has arrived.
    fn header(&self) -> Result<Option<Header>, Fault> {
        if self.filled < Header::SIZE {
            return Ok(None);
        }
        let bytes = self.buffer.first_chunk::<{ Header::SIZE }>();
        Ok(bytes.map(|bytes| Header::from_bytes(*bytes)).transpose()?)
    }

    /// Takes the complete message out of the buffer.
    fn take(&mut self, header: Header) -> Result<Message, Fault> {
        let payload = self
            .buffer
            .get(Header::SIZE..self.filled)
            .unwrap_or_default();
        let request = decode(&header, payload, self.descriptors.len())?;
        self.filled = 0;
        Ok(Message {
            header,
            request,
            descriptors: std::mem::take(&mut self.descriptors),
        })
    }

    /// Reads until the buffer has `wanted` bytes; returns false when the socket has no data now.
    fn fill(&mut self, wanted: usize) -> Result<bool, Fault> {
        let room = self.buffer.get_mut(self.filled..wanted).unwrap_or_default();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        // syscalls: recvmsg
        let got = match rustix::net::recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(room)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(Errno::CONNRESET) => return Err(Fault::Disconnected),
            Err(error) => return Err(Fault::Host(error)),
        };
        let mut count = 0;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    count += 1;
                    // A descriptor that does not fit is dropped here; the message is refused below.
                    drop(self.descriptors.try_push(ForeignFd::from(fd)));
                }
            }
        }
        let cut = got.flags.contains(ReturnFlags::CTRUNC);
        if cut || count > self.descriptors.len() {
            return Err(self.too_many().into());
        }
        if got.bytes == 0 {
            return Err(Fault::Disconnected);
        }
        self.filled += got.bytes;
        Ok(true)
    }

    fn too_many(&self) -> ProtocolFault {
        let request = self
            .buffer
            .first_chunk()
            .map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        ProtocolFault::Descriptors {
            request,
            got: MAX_MESSAGE_FDS + 1,
            expected: MAX_MESSAGE_FDS,
        }
    }

    /// Sends the reply to a request.
    ///
    /// # Errors
    /// The front-end closed the socket or does not read its replies.
    pub fn reply(&self, request: u32, payload: &[u8]) -> Result<(), Fault> {
        let size = u32::try_from(payload.len()).map_err(|_| Fault::Host(Errno::MSGSIZE))?;
        let header = Header::reply(request, size);
        // syscalls: sendmsg
        let sent = rustix::net::sendmsg(
            &self.socket,
            &[IoSlice::new(&header), IoSlice::new(payload)],
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        match sent {
            Ok(count) if count == header.len() + payload.len() => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(ProtocolFault::NotReading.into()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(Fault::Disconnected),
            Err(error) => Err(Fault::Host(error)),
        }
    }
}

impl Drop for Channel {
    /// Shuts the socket down, so that the front-end sees the end at once. The reclaim thread closes
    /// the socket, together with descriptors in it that were never received.
    fn drop(&mut self) {
        // syscalls: shutdown
        // The front-end may have closed its end already.
        let _gone = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
