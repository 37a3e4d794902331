//! Memory of messages, kept for the next ones.
//!
//! The allocator returns memory of large messages to the kernel and takes it back for the next message, and each page of it then
//! costs a page fault and is filled with zeros: more time than the copy of its bytes. Memory of shorter ones would be filled with zeros,
//! too, which takes as long as another copy.

use crate::limits::SPARE_BUFFERS;

/// Buffers that no message uses, the last one used last: its bytes are in the processor's cache.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// Returns a buffer of this length, with any content.
    pub(crate) fn take(&mut self, length: usize) -> Vec<u8> {
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= length;
        let mut buffer = match self.0.iter().rposition(fits) {
            Some(found) => self.0.remove(found),
            None => Vec::new(),
        };
        buffer.resize(length, 0);
        buffer
    }

    /// Keeps a buffer for later. If there are too many, it replaces the one that was kept longest.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        if self.0.len() >= SPARE_BUFFERS {
            self.0.remove(0);
        }
        self.0.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_few_are_kept() {
        let mut buffers = Buffers::default();
        let (short, long) = (buffers.take(100), buffers.take(1000));
        let (short_at, long_at) = (short.as_ptr(), long.as_ptr());
        buffers.give(short);
        buffers.give(long);
        let fits = buffers.take(500);
        assert_eq!((fits.as_ptr(), fits.len()), (long_at, 500));
        let found = buffers.take(100);
        assert_eq!(found.as_ptr(), short_at);
        for _ in 0..2 * SPARE_BUFFERS {
            buffers.give(vec![0; 10]);
        }
        assert_eq!(buffers.0.len(), SPARE_BUFFERS);
    }
}
