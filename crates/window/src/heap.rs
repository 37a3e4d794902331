//! A process's heap: its owner writes it and its peers read it, so payload in it is copied once.
//!
//! A peer that has received the heap's file can read all of it, not only the messages for that
//! peer. A program must put there only what all peers may read.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::memfd;
use crate::raw::{Access, Arena, Mapping, Owned, SharedBytes};
use crate::{limits, window::WindowError};

/// A heap of this process.
#[derive(Clone, Debug)]
pub struct Heap(Arc<Arena>);

impl Heap {
    /// Creates a heap of `length` bytes. Only pages that are written take memory.
    ///
    /// # Errors
    /// The kernel refuses: there is no memory or no descriptor left, or the kernel is older than
    /// Linux 5.1.
    pub fn new(length: u64) -> Result<Self, Errno> {
        Ok(Self(Arc::new(Arena::new(length)?)))
    }

    /// Allocates `length` contiguous bytes; `None` if there is no room. They hold the bytes of
    /// earlier users.
    #[must_use]
    pub fn allocate(&self, length: usize) -> Option<Buffer> {
        Arena::allocate(&self.0, length).map(Buffer)
    }

    /// Returns the length of the heap in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.0.length()
    }

    /// Returns whether a buffer is on this heap, so that readers of the heap can read it.
    #[must_use]
    pub fn owns(&self, buffer: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, buffer.0.arena())
    }
}

impl AsFd for Heap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file()
    }
}

/// A buffer on a heap, freed when dropped.
#[derive(Debug)]
pub struct Buffer(Owned);

impl Buffer {
    /// Returns the offset of the buffer in the heap, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset()
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

/// Maps a peer's heap for reading.
///
/// # Errors
/// The file is not sealed, is larger than a heap may be, or cannot be mapped.
pub fn view(file: BorrowedFd<'_>) -> Result<SharedBytes, WindowError> {
    let length = memfd::final_length(file).ok_or(WindowError::Unsealed)?;
    if length == 0 || length > limits::HEAP {
        return Err(WindowError::Length {
            got: length,
            expected: limits::HEAP,
        });
    }
    let mapping = Mapping::new(file, 0, length, Access::Read).map_err(WindowError::Kernel)?;
    SharedBytes::new(&Arc::new(mapping), 0, length, Access::Read)
        .ok_or(WindowError::Kernel(Errno::INVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_read_and_cannot_write() {
        let heap = Heap::new(1 << 20).unwrap();
        let mut buffer = heap.allocate(10_000).unwrap();
        buffer.fill(7);
        let peer = view(heap.as_fd()).unwrap();
        let mut seen = vec![0; 10_000];
        peer.read(buffer.offset(), &mut seen).unwrap();
        assert_eq!(seen, &*buffer);
        assert!(peer.write(0, &[1]).is_none());
        assert!(peer.read((1 << 20) - 1, &mut [0; 2]).is_none());
        assert!(peer.read(u64::MAX, &mut [0; 2]).is_none());
        let writable = Mapping::new(heap.as_fd(), 0, 4096, Access::ReadWrite);
        assert_eq!(writable.unwrap_err(), Errno::PERM);
        assert!(rustix::fs::ftruncate(&heap, 0).is_err());
    }

    #[test]
    fn a_dropped_buffer_is_free_again() {
        let heap = Heap::new(8192).unwrap();
        let first = heap.allocate(8192).unwrap();
        assert!(heap.allocate(1).is_none());
        drop(first);
        assert!(heap.owns(&heap.allocate(8192).unwrap()));
        assert!(!Heap::new(4096).unwrap().owns(&heap.allocate(1).unwrap()));
    }

    #[test]
    fn a_file_that_can_shrink_is_refused() {
        let file = rustix::fs::memfd_create("loose", rustix::fs::MemfdFlags::ALLOW_SEALING);
        let file = file.unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert!(matches!(view(file.as_fd()), Err(WindowError::Unsealed)));
    }
}
