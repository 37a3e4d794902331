//! `epoll_wait(2)` without waiting.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::last_error;

/// Fills `events` with the user data of descriptors that are ready, and returns how many there are.
pub(crate) fn ready<const COUNT: usize>(
    epoll: BorrowedFd<'_>,
    events: &mut [u64; COUNT],
) -> Result<usize, Errno> {
    let mut ready = [libc::epoll_event { events: 0, u64: 0 }; COUNT];
    let most = libc::c_int::try_from(COUNT).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `most` events into an array of so many, which outlives the call.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), ready.as_mut_ptr(), most, 0) };
    let count = usize::try_from(count).map_err(|_| last_error())?;
    for (event, ready) in events.iter_mut().zip(ready) {
        *event = ready.u64;
    }
    Ok(count)
}
