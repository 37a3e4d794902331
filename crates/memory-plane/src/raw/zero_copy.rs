//! System calls of zero-copy sends (`MSG_ZEROCOPY`, Documentation/networking/msg_zerocopy.rst).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

// asm-generic/socket.h and linux/errqueue.h
const SO_ZEROCOPY: libc::c_int = 60;
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

/// Buffer for a control message with its address. The kernel requires the alignment of a control message's header.
#[repr(C, align(8))]
struct ControlBuffer([u8; 128]);

/// Bytes of the header of a control message.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// A range of completed sends, by their numbers on this socket, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// Whether the kernel copied the bytes in spite of `MSG_ZEROCOPY`.
    pub(crate) copied: bool,
}

/// Enables zero-copy sends on a socket.
pub(crate) fn enable(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).map_err(io::Error::other)?;
    // syscalls: setsockopt
    // SAFETY: the option is an initialised integer of `length` bytes that outlives the call.
    let done = unsafe {
        let on = ptr::from_ref(&on).cast();
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_ZEROCOPY,
            on,
            length,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads the next completion from the socket's error queue, if there is one.
pub(crate) fn next_completion(socket: BorrowedFd<'_>) -> io::Result<Option<Completion>> {
    loop {
        let mut control = ControlBuffer([0; 128]);
        // SAFETY: all fields are integers and pointers, for which zero is a valid value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = ptr::from_mut(&mut control).cast();
        message.msg_controllen = size_of::<ControlBuffer>();
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // syscalls: recvmsg
        // SAFETY: the only pointer points to a buffer of that length, which is owned here and outlives the call.
        if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) } < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            };
        }
        let received = control.0.get(..message.msg_controllen).unwrap_or_default();
        if let Some(completion) = parse(received) {
            return Ok(Some(completion));
        }
        // The error queue has other messages, too. They are ignored.
    }
}

/// Returns how many bytes the peer has acknowledged.
pub(crate) fn acknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    /// Offset of `tcpi_bytes_acked` in `struct tcp_info` (linux/tcp.h).
    const AT: usize = 120;
    let mut info = [0; 128];
    let mut length = libc::socklen_t::try_from(info.len()).map_err(io::Error::other)?;
    // syscalls: getsockopt
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the buffer.
    let done = unsafe {
        let to = info.as_mut_ptr().cast();
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            to,
            &raw mut length,
        )
    };
    match (done, info.get(AT..).and_then(|bytes| bytes.first_chunk())) {
        (0, Some(bytes)) => Ok(u64::from_ne_bytes(*bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Registers an epoll descriptor with tokio, which reports when it has an event.
pub(crate) fn register_epoll(epoll: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the `AsyncFd` owns the descriptor, so it stays open and unchanged as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(epoll, Interest::READABLE) }?)
}

/// Parses a control message: `struct cmsghdr`, then `struct sock_extended_err` (linux/errqueue.h).
fn parse(message: &[u8]) -> Option<Completion> {
    let (head, rest) = message.split_at_checked(HEADER)?;
    let (length, kind) = head.split_first_chunk::<8>()?;
    let data = usize::from_ne_bytes(*length).checked_sub(HEADER)?;
    let error = rest.get(..data)?;
    let part = |at: usize| Some(i32::from_ne_bytes(*kind.get(at..)?.first_chunk()?));
    let kind = (part(0)?, part(4)?);
    let kinds = [
        (libc::SOL_IP, libc::IP_RECVERR),
        (libc::SOL_IPV6, libc::IPV6_RECVERR),
    ];
    if !kinds.contains(&kind) {
        return None;
    }
    let (origin, code) = (*error.get(4)?, *error.get(6)?);
    (origin == SO_EE_ORIGIN_ZEROCOPY).then_some(Completion {
        first: read_u32(error, 8)?,
        last: read_u32(error, 12)?,
        copied: code & SO_EE_CODE_ZEROCOPY_COPIED != 0,
    })
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}
