//! The pages of a mapping, which are unmapped when they are dropped.

use std::ptr::NonNull;

use super::sigbus;

/// Mapped pages, which are unmapped on drop.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(super) start: NonNull<u8>,
    pub(super) length: usize,
    /// The page size of the file; each piece that is unmapped is a multiple of it.
    pub(super) page: usize,
    pub(super) guard: sigbus::Guard,
}

/// Bytes that one system call unmaps. The call holds the lock on the process's memory map, for some tenths
/// of a millisecond, during which other threads that need it wait.
const UNMAP_CHUNK: usize = 4 << 20;

// SAFETY: an address and a length, which only the owner uses.
unsafe impl Send for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        self.guard.release();
        let piece = UNMAP_CHUNK.max(self.page);
        let mut done = 0;
        while done < self.length {
            let length = piece.min(self.length - done);
            // SAFETY: `Mapping::new` created this mapping, and nothing points into it any more: spans
            // borrow it, and rings share it by `Arc`. `done < length`, so the piece begins inside it.
            let _ = unsafe { rustix::mm::munmap(self.start.add(done).as_ptr().cast(), length) };
            done += length;
        }
    }
}
