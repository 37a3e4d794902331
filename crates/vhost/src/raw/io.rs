//! System calls that read guest memory.

use std::os::fd::{AsRawFd, BorrowedFd};

use arrayvec::ArrayVec;
use rustix::io::Errno;

use super::span::Span;

/// Most pieces of one system call, including the private prefix.
const MAX_PIECES: usize = 256;

/// Writes private bytes and then guest memory in one call; returns the number of bytes written.
///
/// # Errors
/// `TOOBIG` when there are too many pieces, `FAULT` when the front-end truncated the memory, or another
/// error of the system call.
pub(crate) fn write_vectored<'m>(
    fd: BorrowedFd<'_>,
    prefix: &[&[u8]],
    spans: impl Iterator<Item = Span<'m>>,
) -> Result<usize, Errno> {
    let mut pieces: ArrayVec<libc::iovec, MAX_PIECES> = ArrayVec::new();
    let piece = |base: *const u8, length| libc::iovec {
        iov_base: base.cast_mut().cast(),
        iov_len: length,
    };
    let private = prefix.iter().map(|part| piece(part.as_ptr(), part.len()));
    let guest = spans.map(|span| piece(span.base().as_ptr(), span.length() as usize));
    for piece in private.chain(guest) {
        pieces.try_push(piece).map_err(|_| Errno::TOOBIG)?;
    }
    // At most MAX_PIECES.
    let count = libc::c_int::try_from(pieces.len()).map_err(|_| Errno::TOOBIG)?;
    // syscalls: writev
    // SAFETY: every piece is valid for reads while the call lasts: the prefix is borrowed, the
    // spans keep their mappings alive. The kernel only reads, and returns EFAULT for a page behind the
    // end of a truncated file.
    let written = unsafe { libc::writev(fd.as_raw_fd(), pieces.as_ptr(), count) };
    usize::try_from(written).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}
