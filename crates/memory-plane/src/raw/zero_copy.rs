//! Memory lent to the kernel with a send (`MSG_ZEROCOPY`, Documentation/networking/msg_zerocopy.rst).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

// asm-generic/socket.h and linux/errqueue.h
const SO_ZEROCOPY: libc::c_int = 60;
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

/// Room for a control message and the address in it; the kernel wants it aligned like the header of one.
#[repr(C, align(8))]
struct ControlBuffer([u8; 128]);

/// Bytes of the head of a control message.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// Sends that the kernel is done with, by their numbers on this socket, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// It copied all the same.
    pub(crate) copied: bool,
}

/// Say to the kernel that this socket will lend.
pub(crate) fn enable(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).map_err(io::Error::other)?;
    // syscalls: setsockopt
    // SAFETY: the option is a whole integer that outlives the call.
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

/// The next completion that this socket has, if it has one.
pub(crate) fn next_completion(socket: BorrowedFd<'_>) -> io::Result<Option<Completion>> {
    loop {
        let mut control = ControlBuffer([0; 128]);
        // SAFETY: all of its fields are numbers and pointers, of which zero is one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = ptr::from_mut(&mut control).cast();
        message.msg_controllen = size_of::<ControlBuffer>();
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // syscalls: recvmsg
        // SAFETY: the only pointer leads to memory of that length that is ours for longer than the call.
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
        // Something else is told the same way: of no use here.
    }
}

/// How many bytes the other side has acknowledged.
pub(crate) fn acknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    /// Where `tcpi_bytes_acked` begins in `struct tcp_info` (linux/tcp.h).
    const AT: usize = 120;
    let mut info = [0; 128];
    let mut length = libc::socklen_t::try_from(info.len()).map_err(io::Error::other)?;
    // syscalls: getsockopt
    // SAFETY: the kernel writes at most `length` bytes, which are there.
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

/// Have tokio say when this, an epoll, has something.
pub(crate) fn register_epoll(epoll: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned, so it is open and the same for as long as there is its owner.
    Ok(unsafe { AsyncFd::register_with_interest(epoll, Interest::READABLE) }?)
}

/// What a control message says: `struct cmsghdr`, then `struct sock_extended_err` (linux/errqueue.h).
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
