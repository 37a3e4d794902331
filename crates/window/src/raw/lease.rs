//! Byte-range locks on a file as leases: the kernel keeps them and releases those of a process that
//! ends, however it ends.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::last_error;

/// A range of bytes of a file, locked until this is dropped. The bytes are never read or written.
#[derive(Debug)]
pub(crate) struct Lease {
    start: u32,
    _file: OwnedFd,
}

impl Lease {
    /// Locks the first `count` consecutive bytes, of the first `limit`, that no other lease holds.
    /// The file must have been opened for this lease, for writing.
    pub(crate) fn take(file: OwnedFd, count: u32, limit: u32) -> Result<Option<Self>, Errno> {
        let mut start = 0u32;
        while start.checked_add(count).is_some_and(|end| end <= limit) {
            if set(&file, start, count, true)? {
                return Ok(Some(Self { start, _file: file }));
            }
            let other = lock(&file, libc::F_OFD_GETLK, libc::F_WRLCK, start, count)?;
            // The other holder may have ended since; the next range will do.
            let end = other.l_start.saturating_add(other.l_len);
            start = u32::try_from(end).unwrap_or(limit).max(start + 1);
        }
        Ok(None)
    }

    /// Returns the first byte of the lease.
    pub(crate) fn start(&self) -> u32 {
        self.start
    }
}

/// Locks bytes of a file, or unlocks them. Returns whether that succeeded: false if another open file has locked one.
pub(crate) fn set(file: &OwnedFd, start: u32, count: u32, locked: bool) -> Result<bool, Errno> {
    let kind = if locked { libc::F_WRLCK } else { libc::F_UNLCK };
    match lock(file, libc::F_OFD_SETLK, kind, start, count) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether another open file has locked a byte.
// syscalls: fcntl
pub(crate) fn is_locked(file: &OwnedFd, at: u32) -> Result<bool, Errno> {
    let found = lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, at, 1)?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

/// Open file description locks (fcntl_locking(2)): they exclude threads of one process from each
/// other as well as processes.
#[allow(
    clippy::cast_possible_truncation,
    reason = "small numbers, which have another type there"
)]
fn lock(
    file: &OwnedFd,
    command: i32,
    kind: i32,
    start: u32,
    count: u32,
) -> Result<libc::flock, Errno> {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start.into(),
        l_len: count.into(),
        l_pid: 0,
    };
    // SAFETY: with these commands the kernel reads and writes this structure only.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    match done {
        0 => Ok(lock),
        _ => Err(last_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{Mode, OFlags};

    proptest! {
        #[test]
        fn leases_never_overlap_and_take_the_first_free_range(
            steps in prop::collection::vec((any::<bool>(), 1u32..12, any::<prop::sample::Index>()), 1..60)
        ) {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut held: Vec<(Lease, u32)> = Vec::new();
            for (take, count, which) in steps {
                if !take && !held.is_empty() {
                    held.swap_remove(which.index(held.len()));
                    continue;
                }
                let own = rustix::fs::open(file.path(), OFlags::RDWR, Mode::empty()).unwrap();
                let got = Lease::take(own, count, 40).unwrap();
                let is_free = |start: u32| {
                    start + count <= 40
                        && held.iter().all(|(other, length)| {
                            start + count <= other.start() || other.start() + length <= start
                        })
                };
                let first = (0..40).find(|start| is_free(*start));
                prop_assert_eq!(got.as_ref().map(Lease::start), first);
                held.extend(got.map(|lease| (lease, count)));
            }
        }
    }
}
