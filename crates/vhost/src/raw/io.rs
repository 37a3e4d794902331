//! System calls that take guest memory.

use std::os::fd::{AsRawFd, BorrowedFd};

use arrayvec::ArrayVec;
use rustix::io::Errno;

use super::span::Span;

/// Pieces one system call may take, the private prefix included.
const MAX_PIECES: usize = 256;

/// Write private bytes and then guest memory in one call; returns how many bytes went out.
///
/// # Errors
/// `TOOBIG` when there are too many pieces, `FAULT` when the guest's memory is gone, or what
/// the descriptor says.
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
    // The array holds at most MAX_PIECES.
    let count = libc::c_int::try_from(pieces.len()).map_err(|_| Errno::TOOBIG)?;
    // syscalls: writev
    // SAFETY: every piece is valid for reads while the call lasts: the prefix is borrowed, the
    // spans are alive. The kernel only reads, and tells a vanished page by EFAULT.
    let written = unsafe { libc::writev(fd.as_raw_fd(), pieces.as_ptr(), count) };
    usize::try_from(written).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}
