//! The dirty log: which pages of a VM's memory were written while it migrates (vhost-user
//! specification, "Migration").
//!
//! The front-end copies memory while the VM runs and copies again what the log names. So every
//! write is logged, and after it was made: a page logged before could be copied in between, and
//! its bit cleared, and the write would be lost.
//!
//! The log is memory of the front-end: one bit a page from guest-physical address 0 on, set with
//! atomic operations because the front-end clears bits meanwhile. What lies behind its end is
//! refused when memory or rings are set up ([`DirtyLog::covers`]), so no mark of the data path
//! can fail.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::raw::{MapError, Mapping};

/// Bytes a bit stands for (`VHOST_LOG_PAGE`).
pub const LOG_PAGE: u64 = 4096;

/// A log that the front-end has handed over.
#[derive(Debug)]
pub struct DirtyLog(Mapping);

impl DirtyLog {
    /// A log of `size` bytes at an offset of a file.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn new(fd: BorrowedFd<'_>, size: u64, offset: u64) -> Result<Self, MapError> {
        Mapping::new(fd, offset, size).map(Self)
    }

    /// Whether every address below `end` has a bit.
    #[must_use]
    pub fn covers(&self, end: u64) -> bool {
        end.div_ceil(LOG_PAGE).div_ceil(8) <= self.0.size() as u64
    }

    /// Note that `length` bytes were written at an address, as the log counts addresses.
    pub fn mark(&self, address: u64, length: u32) {
        let Some(last) = u64::from(length).checked_sub(1) else {
            return;
        };
        let pages = address / LOG_PAGE..=address.saturating_add(last) / LOG_PAGE;
        for page in pages {
            let marked = self.0.set_bits(page / 8, 1 << (page % 8));
            debug_assert!(marked, "page {page} is past the log, which was checked");
        }
    }

    /// Whether the front-end has truncated it.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.0.truncated()
    }
}

/// Where the writes to one used ring are logged.
#[derive(Clone, Debug)]
pub struct UsedLog {
    log: Arc<DirtyLog>,
    address: u64,
}

impl UsedLog {
    /// Log the `length` bytes of a used ring at this address, which need not be one of memory;
    /// `None` when the log ends before it does.
    #[must_use]
    pub fn new(log: &Arc<DirtyLog>, address: u64, length: u32) -> Option<Self> {
        let end = address.checked_add(length.into())?;
        log.covers(end).then(|| Self {
            log: Arc::clone(log),
            address,
        })
    }

    /// Note that `length` bytes were written at an offset into the used ring.
    #[cold]
    pub fn mark(&self, offset: u32, length: u32) {
        // Cannot overflow: the end of the ring does not.
        self.log.mark(self.address + u64::from(offset), length);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::MemfdFlags;

    use super::*;

    fn log(size: u64) -> (std::os::fd::OwnedFd, DirtyLog) {
        let fd = rustix::fs::memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, size).unwrap();
        let log = DirtyLog::new(fd.as_fd(), size, 0).unwrap();
        (fd, log)
    }

    fn bytes(fd: &std::os::fd::OwnedFd, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        rustix::io::pread(fd, &mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn spec_migration_a_page_is_a_bit() {
        let (fd, log) = log(3);
        log.mark(4096, 1);
        log.mark(8 * 4096 - 1, 2);
        log.mark(17 * 4096 + 5, 4091);
        log.mark(0, 0);
        assert_eq!(bytes(&fd, 3), [0b1000_0010, 1, 0b10]);
    }

    #[test]
    fn cve_2020_10722_nothing_is_marked_past_the_end() {
        let (_fd, log) = log(2);
        assert!(log.covers(0) && log.covers(16 * 4096));
        assert!(!log.covers(16 * 4096 + 1) && !log.covers(u64::MAX));
        let log = Arc::new(log);
        assert!(UsedLog::new(&log, 15 * 4096, 4096).is_some());
        assert!(UsedLog::new(&log, 15 * 4096 + 1, 4096).is_none());
        assert!(UsedLog::new(&log, u64::MAX, 4096).is_none());
    }
}
