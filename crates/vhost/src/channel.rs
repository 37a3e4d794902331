//! Messages on a socket: framing, descriptors, replies. Never blocks.

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
use crate::raw::Foreign;

/// Descriptors that the kernel passes with one message, at most (`SCM_MAX_FD`). There is room for all of
/// them: what has none is closed by the kernel in the thread that receives, however long that takes.
const MAX_PASSED_FDS: usize = 253;

/// Descriptors that came with a message.
pub type Descriptors = ArrayVec<Foreign, MAX_MESSAGE_FDS>;

/// A whole message.
#[derive(Debug)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// What it asks for.
    pub request: Request,
    /// The descriptors it came with, as many as the request takes.
    pub descriptors: Descriptors,
}

/// A vhost-user socket.
#[derive(Debug)]
pub struct Channel {
    socket: Foreign,
    buffer: [u8; Header::SIZE + MAX_PAYLOAD],
    filled: usize,
    descriptors: Descriptors,
}

impl Channel {
    /// Speak on a connected stream socket.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking: it is no socket.
    pub fn new(socket: OwnedFd) -> Result<Self, Fault> {
        // syscalls: ioctl
        rustix::io::ioctl_fionbio(&socket, true).map_err(Fault::Host)?;
        Ok(Self {
            socket: Foreign::from(socket),
            buffer: [0; Header::SIZE + MAX_PAYLOAD],
            filled: 0,
            descriptors: Descriptors::new(),
        })
    }

    /// The next message, or `None` when there is no whole one yet.
    ///
    /// # Errors
    /// The front-end is gone or sent nonsense.
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
            // Never past the end of this message: the descriptors of the next one would come
            // with its bytes.
            if !self.fill(wanted)? {
                return Ok(None);
            }
        }
    }

    /// The header, once it is there.
    fn header(&self) -> Result<Option<Header>, Fault> {
        if self.filled < Header::SIZE {
            return Ok(None);
        }
        let bytes = self.buffer.first_chunk::<{ Header::SIZE }>();
        Ok(bytes.map(|bytes| Header::from_bytes(*bytes)).transpose()?)
    }

    /// The whole message that is in the buffer.
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

    /// Read up to `wanted` bytes; false when the socket has no more for now.
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
            Err(Errno::CONNRESET) => return Err(Fault::Gone),
            Err(error) => return Err(Fault::Host(error)),
        };
        let mut count = 0;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    count += 1;
                    // What does not fit is dropped, and the message refused below.
                    drop(self.descriptors.try_push(Foreign::from(fd)));
                }
            }
        }
        let cut = got.flags.contains(ReturnFlags::CTRUNC);
        if cut || count > self.descriptors.len() {
            return Err(self.too_many().into());
        }
        if got.bytes == 0 {
            return Err(Fault::Gone);
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

    /// Answer a request.
    ///
    /// # Errors
    /// The front-end is gone or does not read.
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
            Err(Errno::PIPE | Errno::CONNRESET) => Err(Fault::Gone),
            Err(error) => Err(Fault::Host(error)),
        }
    }
}

impl Drop for Channel {
    /// Descriptors that nobody received wait in the socket, and are closed with it, where
    /// nobody waits for that. The front-end hears of the end at once.
    fn drop(&mut self) {
        // syscalls: shutdown
        // It may be gone already.
        let _gone = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
