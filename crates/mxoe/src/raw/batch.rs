//! Many frames with one call to the kernel (recvmmsg(2), sendmmsg(2)).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use crate::limits::FRAME;

/// Frames of one call.
pub(crate) const BATCH: usize = 64;

/// Nothing.
const NOWHERE: libc::iovec = libc::iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

/// Frames that were received.
pub(crate) struct Inbox {
    frames: Vec<[u8; FRAME]>,
    lengths: [usize; BATCH],
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            frames: vec![[0; FRAME]; BATCH],
            lengths: [0; BATCH],
        }
    }

    /// Take what has come, in place of what came before; how many frames.
    // syscalls: recvmmsg
    pub(crate) fn receive(&mut self, socket: &OwnedFd) -> io::Result<usize> {
        let mut places = [NOWHERE; BATCH];
        for (place, frame) in places.iter_mut().zip(&mut self.frames) {
            place.iov_base = frame.as_mut_ptr().cast();
            place.iov_len = FRAME;
        }
        let mut headers = places.each_mut().map(header);
        // SAFETY: each header leads to one place, and that to a whole frame. Nobody refers to these
        // during the call, and they outlive it.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count(BATCH),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                ptr::null_mut(),
            )
        };
        self.lengths = headers.map(|header| header.msg_len as usize);
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// The first of those that were received last. What is longer than a frame is none.
    pub(crate) fn frames(&self, count: usize) -> impl Iterator<Item = &[u8]> {
        let frames = self.frames.iter().zip(self.lengths).take(count);
        frames.filter_map(|(frame, length)| frame.get(..length))
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}

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
