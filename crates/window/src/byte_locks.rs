//! Numbers that the processes of a kernel take, each for itself: locks on the bytes of a file.
//!
//! The kernel keeps the locks, so the numbers of a process that ends are free, however it ends.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::raw::lease;

/// The numbers that one process has taken. Its own locks do not exclude itself.
#[derive(Debug)]
pub struct ByteLocks(OwnedFd);

impl ByteLocks {
    /// Opens the file, which is created if there is none.
    ///
    /// # Errors
    /// Any error of the kernel.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        Ok(Self(rustix::fs::open(path, flags, mode)?))
    }

    /// Takes a number. Returns false if another process has it.
    ///
    /// # Errors
    /// The kernel has no memory, or the file system no locks.
    pub fn take(&self, number: u32) -> Result<bool, Errno> {
        lease::set(&self.0, number, 1, true)
    }

    /// Gives a number back.
    pub fn release(&self, number: u32) {
        // Unlocking a range in the middle can need memory. If there is none, the number stays taken.
        let _result = lease::set(&self.0, number, 1, false);
    }

    /// Returns whether another process has a number.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn is_taken_elsewhere(&self, number: u32) -> Result<bool, Errno> {
        lease::is_locked(&self.0, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_has_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks");
        let [a, b] = [(); 2].map(|()| ByteLocks::open(&path).unwrap());
        assert!(a.take(3).unwrap() && a.take(4).unwrap() && a.take(5).unwrap());
        assert!(a.take(4).unwrap(), "the own locks do not exclude");
        assert!(!b.take(4).unwrap() && b.is_taken_elsewhere(4).unwrap());
        assert!(!a.is_taken_elsewhere(4).unwrap());
        a.release(4);
        assert!(!b.is_taken_elsewhere(4).unwrap() && b.take(4).unwrap());
        assert!(b.is_taken_elsewhere(5).unwrap());
        drop(a);
        assert!(!b.is_taken_elsewhere(3).unwrap() && b.take(5).unwrap());
    }
}
