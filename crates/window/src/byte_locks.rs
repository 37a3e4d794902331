//! Numbers that the processes of a kernel take, each for itself: locks on the bytes of a file.
//!
//! The kernel keeps the locks, so the numbers of a process that ends are free, however it ends. A look at a lock is a call of the
//! kernel. So the file's first word counts the numbers that were taken: what a process has seen to be free is free as long as this has
//! not changed. All processes with the file map the word, and trust each other with it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::raw::{Access, LongWord, Mapping, lease};

/// The length of the file.
const LENGTH: u64 = 4096;

/// The numbers that one process has taken. Its own locks do not exclude itself.
#[derive(Debug)]
pub struct ByteLocks {
    file: OwnedFd,
    taken: LongWord,
}

impl ByteLocks {
    /// Opens the file, which is created if there is none.
    ///
    /// # Errors
    /// Any error of the kernel.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let file = rustix::fs::open(path, flags, mode)?;
        // The file never shrinks: each process gives it the same length.
        rustix::fs::ftruncate(&file, LENGTH)?;
        let mapping = Mapping::new(file.as_fd(), 0, LENGTH, Access::ReadWrite)?;
        let taken = LongWord::new(&Arc::new(mapping), 0).ok_or(Errno::INVAL)?;
        Ok(Self { file, taken })
    }

    /// Takes a number. Returns false if another process has it.
    ///
    /// # Errors
    /// The kernel has no memory, or the file system no locks.
    pub fn take(&self, number: u32) -> Result<bool, Errno> {
        let taken = lease::set(&self.file, number, 1, true)?;
        if taken {
            self.taken.atomic().fetch_add(1, Ordering::Release);
        }
        Ok(taken)
    }

    /// Gives a number back.
    pub fn release(&self, number: u32) {
        // Unlocking a range in the middle can need memory. If there is none, the number stays taken.
        let _result = lease::set(&self.file, number, 1, false);
    }

    /// Returns whether another process has a number.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn is_taken_elsewhere(&self, number: u32) -> Result<bool, Errno> {
        lease::is_locked(&self.file, number)
    }

    /// Returns how often any process has taken a number. A number that was free stays so as long as this has not changed since before
    /// the look.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.taken.atomic().load(Ordering::Acquire)
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

    #[test]
    fn each_process_sees_that_another_one_has_taken_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks");
        let [a, b] = [(); 2].map(|()| ByteLocks::open(&path).unwrap());
        let before = a.changes();
        assert!(b.take(3).unwrap());
        let after = a.changes();
        assert_ne!(after, before);
        assert!(!a.take(3).unwrap(), "a refused process changes nothing");
        b.release(3);
        assert_eq!(a.changes(), after);
        // Also for a process that comes later.
        drop(b);
        assert_eq!(ByteLocks::open(&path).unwrap().changes(), after);
    }
}
