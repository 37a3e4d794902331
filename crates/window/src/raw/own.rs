//! A process's own heap: sealed, so that only this process can write it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::mapping::{Access, Mapping};
use crate::memfd;
use crate::ranges::Ranges;

/// A heap's memory and its free ranges.
#[derive(Debug)]
pub(crate) struct Arena {
    file: OwnedFd,
    mapping: Mapping,
    free: Mutex<Ranges>,
}

impl Arena {
    /// Creates a heap of `length` bytes. Only pages that are written take memory.
    pub(crate) fn new(length: u64) -> Result<Self, Errno> {
        let file = memfd::create(c"vicinity-heap", length)?;
        let mapping = Mapping::new(file.as_fd(), 0, length, Access::ReadWrite)?;
        // From here on, the mapping above is the only one that can write.
        memfd::seal_owned(file.as_fd())?;
        Ok(Self {
            file,
            mapping,
            free: Mutex::new(Ranges::new(length)),
        })
    }

    /// Returns the file, for peers to read.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the length in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.mapping.length() as u64
    }

    /// Allocates `length` contiguous bytes; `None` if there is no room.
    pub(crate) fn allocate(arena: &Arc<Self>, length: usize) -> Option<Owned> {
        let offset = arena.lock().allocate(length as u64)?;
        let base = arena
            .mapping
            .piece(offset, length as u64, 1, Access::ReadWrite)?;
        Some(Owned {
            base,
            length,
            offset,
            arena: Arc::clone(arena),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Ranges> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer on this process's heap. The arena gives each byte to one owner only, and the file is
/// sealed against other writers, so the buffer is as good as private memory.
#[derive(Debug)]
pub(crate) struct Owned {
    base: NonNull<u8>,
    length: usize,
    offset: u64,
    arena: Arc<Arena>,
}

// SAFETY: the buffer has one owner.
unsafe impl Send for Owned {}
// SAFETY: shared access only reads.
unsafe impl Sync for Owned {}

impl Owned {
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: inside the mapping, initialised by the kernel, and only this owner writes: see
        // the type.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; peers only read, and a torn read affects the peer only.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.arena.lock().release(self.offset, self.length as u64);
    }
}
