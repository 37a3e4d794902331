//! A copy that does not read the cache lines that it overwrites.
//!
//! Memory that another processor reads is in that processor's cache. An ordinary store has to fetch
//! each line from there before it overwrites the line, and a processor waits for few lines at a
//! time. A *non-temporal* store of a whole line needs no fetch. The lines leave both caches, and
//! the other side reads them from memory, which a processor prefetches.

use std::ptr;

/// Bytes from which on such a copy is used. Shorter ones gain less between processors that are far
/// apart than they lose between those that share a cache.
pub(crate) const STREAMING_MIN: usize = 4096;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Copies bytes, in any order. Stores that follow are not visible to others before the bytes.
///
/// # Safety
/// `count` bytes at `from` are readable, and at `to` writable. The two do not overlap.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn streaming_copy(from: *const u8, to: *mut u8, count: usize) {
    use std::arch::x86_64::{_mm_sfence, _mm_stream_si64};

    let head = to.align_offset(LINE).min(count);
    let lines = (count - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: the caller's; `head` and `tail` are at most `count`, and each line ends at most at
    // `tail`. The target of a line is aligned to it, so to 8 bytes, too.
    unsafe {
        ptr::copy_nonoverlapping(from, to, head);
        for line in 0..lines {
            let at = head + line * LINE;
            let (from, to) = (from.add(at).cast::<i64>(), to.add(at).cast::<i64>());
            // Stores of 8 bytes are as fast as those of 16, and QEMU emulates them twice as fast.
            for word in 0..LINE / size_of::<i64>() {
                _mm_stream_si64(to.add(word), from.add(word).read_unaligned());
            }
        }
        ptr::copy_nonoverlapping(from.add(tail), to.add(tail), count - tail);
        // The processor does not order these stores with later ones by itself.
        _mm_sfence();
    }
}

/// As above. Other processors have no such store in the Rust language.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn streaming_copy(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller's.
    unsafe { ptr::copy_nonoverlapping(from, to, count) };
}

#[cfg(test)]
mod tests {
    use super::{STREAMING_MIN, streaming_copy};

    /// Copies between all positions of source and target in a cache line.
    #[test]
    fn copies_exactly_the_bytes_it_is_given() {
        const MARGIN: usize = 128;
        let source: Vec<u8> = (0..251).cycle().take(2 * STREAMING_MIN).collect();
        for from in 0..64 {
            for to in 0..64 {
                for count in [0, 1, 63, 64, 65, STREAMING_MIN + from] {
                    let mut target = vec![0xff; to + count + MARGIN];
                    let bytes = &source[from..from + count];
                    // SAFETY: both ranges lie inside their vectors.
                    unsafe {
                        streaming_copy(bytes.as_ptr(), target.as_mut_ptr().add(to), count);
                    }
                    assert!(
                        target[..to].iter().all(|byte| *byte == 0xff),
                        "{from} {to} {count}"
                    );
                    assert_eq!(target[to..to + count], *bytes, "{from} {to} {count}");
                    assert!(target[to + count..].iter().all(|byte| *byte == 0xff));
                }
            }
        }
    }
}
