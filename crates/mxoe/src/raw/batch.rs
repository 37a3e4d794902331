//! Many frames with one call to the kernel (sendmmsg(2)).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// Frames of one call.
pub(crate) const BATCH: usize = 64;

/// Nothing.
const NOWHERE: libc::iovec = libc::iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

/// Send the first [`BATCH`] frames of these; how many went.
// syscalls: sendmmsg
pub(crate) fn send<'a>(
    socket: &OwnedFd,
    frames: impl Iterator<Item = &'a Vec<u8>>,
) -> io::Result<usize> {
    let mut places = [NOWHERE; BATCH];
    let mut length = 0;
    for (place, frame) in places.iter_mut().zip(frames) {
        // The kernel only reads.
        place.iov_base = frame.as_ptr().cast_mut().cast();
        place.iov_len = frame.len();
        length += 1;
    }
    let mut headers = places.each_mut().map(header);
    // SAFETY: each of the first headers leads to one place, and that to a whole frame, which is
    // borrowed until this returns, and which the kernel only reads.
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

/// No more than [`BATCH`].
fn count(length: usize) -> libc::c_uint {
    libc::c_uint::try_from(length).unwrap_or_default()
}

/// A header for one place.
fn header(place: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: all zeros is a header without anything: pointers may be null.
    let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
    header.msg_hdr.msg_iov = place;
    header.msg_hdr.msg_iovlen = 1;
    header
}
