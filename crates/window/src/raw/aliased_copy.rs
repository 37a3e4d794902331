//! A copy that avoids a slow case of the C library's.
//!
//! `memcpy` of glibc 2.36 (Debian 12) copies 4 KiB and more by `rep movsb`. AMD's Zen 3 and 4 carry that out 15 times slower, with
//! 2.9 instead of 44 GB/s, where the target's offset in its page is 1 to 31 bytes behind the source's (glibc's bug 30994). This
//! is a frequent case: a source at the begin of a page, and a target that `malloc` mapped, which begins 16 bytes behind that of a page. Shorter
//! copies are made by vector registers. Zen 5 copies as fast at all offsets, and slower in pieces.

use std::ptr;
use std::sync::OnceLock;

use super::processor::amd_family;

/// The family of Zen 3 and 4.
const SLOW_FAMILY: u32 = 25;

/// Bytes of a page, and those behind the source's offset that are slow.
const PAGE: usize = 4096;
const SLOW: usize = 32;

/// Bytes of a copy that glibc makes by vector registers.
const PIECE: usize = 2048;

/// Copies bytes, in any order.
///
/// # Safety
/// `count` bytes at `from` are readable, and at `to` writable. The two do not overlap.
#[inline]
pub(super) unsafe fn aliased_copy(from: *const u8, to: *mut u8, count: usize) {
    let behind = to.addr().wrapping_sub(from.addr()) % PAGE;
    let in_pieces = count >= PAGE && (1..SLOW).contains(&behind) && is_slow();
    // SAFETY: the caller's.
    unsafe { copy_by(if in_pieces { PIECE } else { count }, from, to, count) }
}

/// Whether this processor has the slow case.
fn is_slow() -> bool {
    static SLOW: OnceLock<bool> = OnceLock::new();
    *SLOW.get_or_init(|| amd_family() == Some(SLOW_FAMILY))
}

/// Copies bytes in pieces of this length.
///
/// # Safety
/// As for [`aliased_copy`].
#[inline]
unsafe fn copy_by(piece: usize, from: *const u8, to: *mut u8, count: usize) {
    let piece = piece.max(1);
    let mut at = 0;
    while at < count {
        let now = piece.min(count - at);
        // SAFETY: the caller's; `at + now` is at most `count`.
        unsafe { ptr::copy_nonoverlapping(from.add(at), to.add(at), now) };
        at += now;
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE, PIECE, aliased_copy, copy_by};

    /// Copies between all positions around the slow ones, of counts around the pieces, as on processors with and without the slow case.
    #[test]
    fn copies_exactly_the_bytes_it_is_given() {
        let source: Vec<u8> = (0..251).cycle().take(4 * PAGE).collect();
        for behind in [0, 1, 16, 31, 32, PAGE - 1] {
            for count in [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 5] {
                for in_pieces in [false, true] {
                    let mut target = vec![0xff; 4 * PAGE];
                    let to = target.as_mut_ptr();
                    let at = (source.as_ptr().addr() + behind).wrapping_sub(to.addr()) % PAGE;
                    // SAFETY: both ranges lie inside their vectors.
                    unsafe {
                        match in_pieces {
                            true => copy_by(PIECE, source.as_ptr(), to.add(at), count),
                            false => aliased_copy(source.as_ptr(), to.add(at), count),
                        }
                    }
                    let (before, rest) = target.split_at(at);
                    let (copied, after) = rest.split_at(count);
                    assert_eq!(copied, &source[..count], "{behind} {count}");
                    assert!(before.iter().chain(after).all(|byte| *byte == 0xff));
                }
            }
        }
    }
}
