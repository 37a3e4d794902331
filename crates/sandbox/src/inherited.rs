//! Descriptors that came from whoever started the program, and that nobody here knows of.

use std::io;

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
