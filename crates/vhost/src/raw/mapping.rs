//! Maps and unmaps one memory region.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::pages::Pages;
use super::sigbus;
use crate::fd_kind::is_memory;
use crate::reclaim;

/// The reason why a region cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Offset, size or their sum is out of range.
    #[error("its offset and size are out of range")]
    Range,
    /// The region ends behind the end of its file.
    #[error("it ends after its file ({file} bytes)")]
    PastEnd {
        /// The file's size in bytes.
        file: u64,
    },
    /// The file is on a file system whose page faults a front-end could make block, which would block
    /// every port.
    #[error("its file is neither a memfd, nor on tmpfs, nor on hugetlbfs")]
    FileSystem,
    /// The process has [`MAX_MAPPINGS`](crate::limits::MAX_MAPPINGS) mappings already.
    #[error("this process has too many mapped regions")]
    TooMany,
    /// The kernel refused the mapping.
    #[error("the kernel refused to map it: {0}")]
    Kernel(Errno),
}

/// A shared, writable mapping of part of a front-end's memory.
#[derive(Debug)]
pub struct Mapping {
    /// The region inside the mapping: its start and length.
    pub(super) base: NonNull<u8>,
    pub(super) size: usize,
    pages: Option<Pages>,
}

// SAFETY: the mapping is memory of the process, usable from any thread; the module's documentation
// lists the accesses that may race.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method returns a reference into the mapping.
unsafe impl Sync for Mapping {}

/// `f_type` of tmpfs, which memfds are on too (linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// `f_type` of hugetlbfs (linux/magic.h).
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

impl Mapping {
    /// Maps `size` bytes of `fd` from `offset`.
    ///
    /// # Errors
    /// See [`MapError`]; nothing stays mapped.
    pub fn new(fd: BorrowedFd<'_>, offset: u64, size: u64) -> Result<Self, MapError> {
        let end = offset
            .checked_add(size)
            .filter(|_| size > 0)
            .ok_or(MapError::Range)?;
        let page = page_size(fd)?;
        // syscalls: fstat
        let file = fs::fstat(fd).map_err(MapError::Kernel)?;
        let file = u64::try_from(file.st_size).map_err(|_| MapError::Range)?;
        if end > file {
            return Err(MapError::PastEnd { file });
        }
        let aligned = offset & !(page - 1);
        let lead = usize::try_from(offset - aligned).map_err(|_| MapError::Range)?;
        let length = (end - aligned)
            .checked_next_multiple_of(page)
            .ok_or(MapError::Range)?;
        let length = usize::try_from(length).map_err(|_| MapError::Range)?;
        let size = usize::try_from(size).map_err(|_| MapError::Range)?;

        // syscalls: mmap munmap
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other mapping.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                fd,
                aligned,
            )
        }
        .map_err(MapError::Kernel)?;
        let unmap = || {
            // SAFETY: this is the mapping from above; nothing points into it yet.
            let _ = unsafe { rustix::mm::munmap(start, length) };
        };
        // SAFETY: `lead < page <= length`, so the region begins inside the mapping.
        let base = unsafe { start.cast::<u8>().add(lead) };
        let (Some(start), Some(base)) = (NonNull::new(start.cast::<u8>()), NonNull::new(base))
        else {
            unmap();
            return Err(MapError::Range);
        };
        let Some(guard) = sigbus::Guard::new(start.as_ptr().addr(), length) else {
            unmap();
            return Err(MapError::TooMany);
        };
        let page = usize::try_from(page).map_err(|_| MapError::Range)?;
        Ok(Self {
            base,
            size,
            pages: Some(Pages {
                start,
                length,
                page,
                guard,
            }),
        })
    }

    /// Returns the region's size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns whether the front-end truncated the file. The mapping then has zero pages in place of
    /// the guest's memory.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.pages
            .as_ref()
            .is_some_and(|pages| pages.guard.truncated())
    }

    /// Sets bits of the byte at `offset` atomically; returns false when the offset is outside the
    /// region.
    ///
    /// A process that reads the bits also sees what this thread wrote before (release).
    #[must_use]
    pub fn set_bits(&self, offset: u64, bits: u8) -> bool {
        let Some(offset) = usize::try_from(offset)
            .ok()
            .filter(|offset| *offset < self.size)
        else {
            return false;
        };
        // SAFETY: the byte lies in the mapping, which outlives this call. An atomic may be shared
        // with another process.
        let byte = unsafe { AtomicU8::from_ptr(self.base.add(offset).as_ptr()) };
        byte.fetch_or(bits, Ordering::Release);
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            reclaim::unmap(pages);
        }
    }
}

/// Returns the page size of the file behind `fd`; offsets and lengths must be multiples of it.
fn page_size(fd: BorrowedFd<'_>) -> Result<u64, MapError> {
    if !is_memory(fd) {
        return Err(MapError::FileSystem);
    }
    // syscalls: fstatfs
    let stat = fs::fstatfs(fd).map_err(MapError::Kernel)?;
    #[allow(clippy::cast_sign_loss, reason = "f_type is a bit pattern")]
    let magic = stat.f_type as u64 & 0xffff_ffff;
    let page = match magic {
        HUGETLBFS_MAGIC => u64::try_from(stat.f_bsize).map_err(|_| MapError::Range)?,
        TMPFS_MAGIC => rustix::param::page_size() as u64,
        _ => return Err(MapError::FileSystem),
    };
    page.is_power_of_two()
        .then_some(page)
        .ok_or(MapError::Range)
}
