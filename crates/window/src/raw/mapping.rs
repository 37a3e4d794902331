//! A mapped file.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// The access of this side to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read only; a write would be a bug of this program.
    Read,
    /// Read and write.
    ReadWrite,
}

/// A shared mapping of a part of a file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
    access: Access,
}

// SAFETY: the mapping is memory of the process, usable from any thread; what may race on it is
// what the module's documentation allows to race.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method gives out a reference into the mapping.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes from `offset`, a multiple of the page size, of a file that cannot
    /// shrink.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<Self, Errno> {
        let length = usize::try_from(length).map_err(|_| Errno::OVERFLOW)?;
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // syscalls: mmap munmap
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), length, protection, flags, fd, offset)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            base,
            length,
            access,
        })
    }

    /// Returns the number of mapped bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns the address of `length` bytes from `offset`, if they lie inside, permit `access`,
    /// and begin at a multiple of `alignment`.
    pub(super) fn piece(
        &self,
        offset: u64,
        length: u64,
        alignment: usize,
        access: Access,
    ) -> Option<NonNull<u8>> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(usize::try_from(length).ok()?)?;
        let allowed = access == Access::Read || self.access == Access::ReadWrite;
        if end > self.length || !allowed {
            return None;
        }
        // SAFETY: `offset <= length`, so the place is inside the mapping or at its end.
        let place = unsafe { self.base.add(offset) };
        (place.addr().get() % alignment == 0).then_some(place)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`. Whatever points into it holds a reference count on
        // this, so nothing is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
