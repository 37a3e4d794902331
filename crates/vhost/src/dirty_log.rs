//! The dirty log: the bitmap of pages that the back-end writes while a VM migrates (vhost-user
//! specification, "Migration").
//!
//! The front-end copies memory while the VM runs, and then copies the pages that the log marks again.
//! So the back-end marks every write, and does so after the write: if it marked a page before the write,
//! the front-end could clear the bit and copy the page in between, and the write would be lost.
//!
//! The log is memory of the front-end. It has one bit a page, beginning at guest-physical address 0. The
//! back-end sets bits with atomic operations, because the front-end clears bits concurrently. Memory and
//! rings that the log does not cover are refused when they are set up ([`DirtyLog::covers`]), so marking
//! cannot fail in the data path.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::raw::{MapError, Mapping};

/// Bytes that one bit covers (`VHOST_LOG_PAGE`).
pub const LOG_PAGE: u64 = 4096;

/// A mapped dirty log.
#[derive(Debug)]
pub struct DirtyLog(Mapping);

impl DirtyLog {
    /// Maps a log of `size` bytes at an offset of a file.
    ///
    /// # Errors
    /// The log cannot be mapped.
    pub fn new(fd: BorrowedFd<'_>, size: u64, offset: u64) -> Result<Self, MapError> {
        Mapping::new(fd, offset, size).map(Self)
    }

    /// Returns whether every address below `end` has a bit.
    #[must_use]
    pub fn covers(&self, end: u64) -> bool {
        end.div_ceil(LOG_PAGE).div_ceil(8) <= self.0.size() as u64
    }

    /// Marks `length` bytes at an address of the log as written.
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

    /// Returns whether the front-end truncated the log's file.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.0.truncated()
    }
}

/// The part of a dirty log in which writes to one used ring are marked.
#[derive(Clone, Debug)]
pub struct UsedLog {
    log: Arc<DirtyLog>,
    address: u64,
}

impl UsedLog {
    /// Creates the log of a used ring of `length` bytes at this address of the log, which need not be
    /// the address of the ring in memory. Returns `None` when the log does not cover all of it.
    #[must_use]
    pub fn new(log: &Arc<DirtyLog>, address: u64, length: u32) -> Option<Self> {
        let end = address.checked_add(length.into())?;
        log.covers(end).then(|| Self {
            log: Arc::clone(log),
            address,
        })
    }

    /// Marks `length` bytes at an offset into the used ring as written.
    #[cold]
    pub fn mark(&self, offset: u32, length: u32) {
        // Cannot overflow: `new` checked the end of the ring.
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
    fn spec_migration_each_page_has_one_bit() {
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
