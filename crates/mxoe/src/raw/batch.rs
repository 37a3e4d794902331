//! Sends many frames with one system call (sendmmsg(2)).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// Frames of one call, at most.
pub(crate) const BATCH: usize = 64;

/// An empty buffer.
const EMPTY: libc::iovec = libc::iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

/// Sends the first [`BATCH`] of these frames, at most, and returns how many the kernel accepted.
// syscalls: sendmmsg
pub(crate) fn send<'a>(
    socket: &OwnedFd,
    frames: impl Iterator<Item = &'a Vec<u8>>,
) -> io::Result<usize> {
    let mut iovecs = [EMPTY; BATCH];
    let mut length = 0;
    for (iovec, frame) in iovecs.iter_mut().zip(frames) {
        // The kernel only reads through this pointer.
        iovec.iov_base = frame.as_ptr().cast_mut().cast();
        iovec.iov_len = frame.len();
        length += 1;
    }
    let mut headers = iovecs.each_mut().map(header);
    // SAFETY: each of the first `length` headers points to one iovec, and that points to a whole
    // frame, which is borrowed until this returns, and which the kernel only reads.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count(length),
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Converts a length of [`BATCH`] at most.
fn count(length: usize) -> libc::c_uint {
    libc::c_uint::try_from(length).unwrap_or_default()
}

/// Makes a message header for one buffer.
fn header(iovec: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: all zeros is a valid empty header: its pointers may be null.
    let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
    header.msg_hdr.msg_iov = iovec;
    header.msg_hdr.msg_iovlen = 1;
    header
}
