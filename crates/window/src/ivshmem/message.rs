//! The messages of the protocol: numbers of 8 bytes, with or without a descriptor.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// The version of the protocol.
pub(super) const VERSION: i64 = 0;

/// The number that the region is sent with.
pub(super) const MEMORY: i64 = -1;

/// The host's id.
pub(super) const HOST: u16 = 0;

/// The number that wakes a process of the host: no member has this id.
pub(super) const WAKE: i64 = -2;

/// Sends a number, optionally with a descriptor. A socket's buffer has room for all that is sent
/// here.
pub(super) fn send(socket: &OwnedFd, number: i64, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    send_bytes(socket, &number.to_le_bytes(), fd)
}

/// Sends bytes, all or none.
pub(super) fn send_bytes(
    socket: &OwnedFd,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
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

/// Receives the next number, with the descriptor that is attached to it.
pub(super) fn receive(socket: &OwnedFd) -> Result<(i64, Option<OwnedFd>), Errno> {
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
