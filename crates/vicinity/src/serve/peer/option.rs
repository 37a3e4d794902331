//! Options of Unix sockets: the security label of the other end, and a handle of its process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Longest label. The kernel names no bound; those of SELinux have some hundred bytes.
const LABEL: usize = 4096;

/// `SO_PEERPIDFD` of include/uapi/asm-generic/socket.h, since Linux 6.5.
const PEERPIDFD: i32 = 77;

/// The label that the other end had when it connected or began to listen (`SO_PEERSEC`); none without a security
/// module that has labels for sockets.
pub(super) fn label(socket: BorrowedFd<'_>) -> Option<String> {
    let mut label = [0_u8; LABEL];
    let mut length = libc::socklen_t::try_from(LABEL).ok()?;
    // SAFETY: the kernel writes at most `length` bytes of an array that is as long and outlives the call.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERSEC,
            label.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let label = label.get(..usize::try_from(length).ok()?)?;
    let label = std::str::from_utf8(label).ok()?;
    (got == 0).then(|| label.trim_end_matches('\0').to_owned())
}

/// A handle of the process at the other end; none from kernels before 6.5.
///
/// # Errors
/// It is gone, or no descriptors are left.
pub(super) fn process(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut handle = -1_i32;
    let size = size_of::<i32>();
    let mut length = libc::socklen_t::try_from(size).map_err(io::Error::other)?;
    // SAFETY: the kernel writes at most `length` bytes of an integer that is as long and outlives the call.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            PEERPIDFD,
            (&raw mut handle).cast(),
            &raw mut length,
        )
    };
    if got != 0 || handle < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOPROTOOPT) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the call succeeded, so this is a new descriptor with no other owner.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(handle) }))
}
