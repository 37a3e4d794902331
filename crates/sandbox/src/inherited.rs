//! Descriptors that came from whoever started the program, and that nobody here knows of.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The first descriptor after the standard ones.
const FIRST: libc::c_uint = 3;

/// Close every descriptor but standard input, output and error.
///
/// To be called first of all: nothing the process has opened itself may be open yet.
///
/// # Errors
/// The kernel cannot (before Linux 5.9).
#[allow(unsafe_code)]
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: takes no memory. Descriptors that somebody owns would be closed under their owner,
    // which the caller has to rule out: it is a mistake that ends in errors, not in undefined
    // behaviour, for nothing here maps memory of theirs.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor that came from whoever started the program, for the caller to own. Programs that are
/// started do not get it.
///
/// To be called once for each, and before the process has opened anything itself.
///
/// # Errors
/// It is not open.
#[allow(unsafe_code)]
pub fn take_inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no memory. The kernel says whether the descriptor is open.
    let done = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nobody here opened it, so nobody owns it: the caller has to see to that, as for
    // [`close_inherited`].
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
