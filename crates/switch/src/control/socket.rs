//! The socket between the supervisor and a data plane.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest encoded order or event, in bytes. [`MAX_NAME`](super::MAX_NAME) limits names, so every message of
/// the protocol fits.
pub const MAX_DATAGRAM: usize = 16 * 1024;

/// One end of the control connection.
#[derive(Debug)]
pub struct ControlSocket(OwnedFd);

impl ControlSocket {
    /// Creates a connected pair: one end for the supervisor, one for the data plane. Both are
    /// non-blocking.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        Ok((Self(a), Self(b)))
    }

    /// Sends one message, with a descriptor if the message carries one.
    ///
    /// # Errors
    /// `WouldBlock` when the socket has no room; any other error means that the other side is gone.
    pub fn send(&self, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MAX_DATAGRAM {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "control message of {} bytes exceeds {MAX_DATAGRAM}",
                    bytes.len()
                ),
            ));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds;
        if let Some(fd) = fd {
            fds = [fd];
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        // syscalls: sendmsg
        rustix::net::sendmsg(
            &self.0,
            &[IoSlice::new(&bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Receives one message. Returns `Ok(None)` when the other side is gone.
    ///
    /// # Errors
    /// `WouldBlock` when no message has arrived; `InvalidData` when the message cannot be decoded.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut bytes = vec![0; MAX_DATAGRAM];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        // syscalls: recvmsg
        let got = match rustix::net::recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            // The other side closed the socket with unread messages.
            Err(Errno::CONNRESET) => return Ok(None),
            got => got?,
        };
        if got.bytes == 0 {
            return Ok(None);
        }
        let mut fd = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut fds) = message {
                fd = fds.next();
            }
        }
        let message = bytes
            .get(..got.bytes)
            .ok_or(io::ErrorKind::InvalidData)
            .map_err(io::Error::from)
            .and_then(|body| serde_json::from_slice(body).map_err(io::Error::from))?;
        Ok(Some((message, fd)))
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl TryFrom<OwnedFd> for ControlSocket {
    type Error = io::Error;

    /// Wraps an end that another process passed on.
    ///
    /// # Errors
    /// The descriptor is not a connected [`ControlSocket`].
    fn try_from(fd: OwnedFd) -> io::Result<Self> {
        rustix::net::getpeername(&fd)?;
        if rustix::net::sockopt::socket_type(&fd)? != SocketType::SEQPACKET {
            return Err(Errno::PROTOTYPE.into());
        }
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(fd))
    }
}

impl From<ControlSocket> for OwnedFd {
    fn from(socket: ControlSocket) -> Self {
        socket.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Order, PortId};

    #[test]
    fn an_order_arrives_with_its_descriptor() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        let (extra, _keep) = ControlSocket::pair().unwrap();
        let order = Order::Attach {
            port: PortId(7),
            name: "web".into(),
        };
        ours.send(&order, Some(extra.as_fd())).unwrap();
        let (seen, fd) = theirs.receive::<Order>().unwrap().unwrap();
        assert_eq!(seen, order);
        assert!(fd.is_some());
    }

    #[test]
    fn a_closed_peer_is_distinguished_from_an_idle_one() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        let idle = theirs.receive::<Order>().unwrap_err();
        assert_eq!(idle.kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        assert!(theirs.receive::<Order>().unwrap().is_none());
    }

    #[test]
    fn a_peer_that_closes_with_unread_messages_is_gone() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        theirs.send(&Order::Report, None).unwrap();
        drop(ours);
        assert!(theirs.receive::<Order>().unwrap().is_none());
    }
}
