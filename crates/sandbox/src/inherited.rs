//! Descriptors that the process inherited.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The first descriptor after the standard ones.
const FIRST: libc::c_uint = 3;

/// Closes every descriptor except standard input, output and error.
///
/// Must be called first: no descriptor that the process itself opened may be open yet.
///
/// # Errors
/// The kernel has no such call (before Linux 5.9).
#[allow(unsafe_code)]
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: takes no memory. The caller must make sure that no value owns these descriptors. If one
    // does, its calls fail, which is no undefined behaviour, because no memory is mapped from them.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns an inherited descriptor, which the caller then owns. Programs that this process starts do not
/// inherit it.
///
/// Must be called once for each descriptor, and before the process opens any itself.
///
/// # Errors
/// The descriptor is not open.
#[allow(unsafe_code)]
pub fn take_inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no memory. The kernel says whether the descriptor is open.
    let done = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and this process did not open it, so no value owns it. The caller
    // must make sure of that, as for [`close_inherited`].
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
