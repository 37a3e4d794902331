//! The pages of a mapping, which are unmapped when they are dropped.

use std::ptr::NonNull;

use super::sigbus;

/// Memory that is mapped; unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(super) start: NonNull<u8>,
    pub(super) length: usize,
    /// Of the file: what is unmapped at once is a multiple of it.
    pub(super) page: usize,
    pub(super) guard: sigbus::Guard,
}

/// Unmapped at once: others of the process that need its table of mappings wait meanwhile, for some tenths of
/// a millisecond.
const PIECE: usize = 4 << 20;

// SAFETY: an address and a length, which only its owner uses.
unsafe impl Send for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        self.guard.release();
        let piece = PIECE.max(self.page);
        let mut done = 0;
        while done < self.length {
            let length = piece.min(self.length - done);
            // SAFETY: this mapping was made by `Mapping::new` and nothing can point into it any more: spans
            // borrow it, and rings hold it by `Arc`. `done < length`, so the piece begins inside it.
            let _ = unsafe { rustix::mm::munmap(self.start.add(done).as_ptr().cast(), length) };
            done += length;
        }
    }
}
