//! Reads the pieces of a short message, as the words of a slot.
//!
//! A program mostly wrote a short message just before, in fields of one to eight bytes. A load that
//! covers several stores, or more than one store has, cannot get its bytes from the processor's
//! store buffer. It waits until these stores are in the cache, and so are all earlier ones: also those
//! of the last message, into cache lines that the peer's processor has. So each byte has a load of its own.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes and bits of a word.
const WORD: usize = 8;
const WORD_BITS: usize = 8 * WORD;

/// Stores the pieces in words, the last one filled up with zeros. What does not fit is cut, and words that the pieces do not
/// reach are not stored.
#[inline(always)]
pub(super) fn write<'a>(pieces: impl Iterator<Item = &'a [u8]>, to: &[AtomicU64]) {
    let mut words = to.iter();
    let mut store = |value| {
        if let Some(word) = words.next() {
            word.store(value, Ordering::Relaxed);
        }
    };
    // The next word, and how many of its bits are known: less than all.
    let (mut word, mut bits) = (0, 0);
    for piece in pieces {
        let mut rest = piece;
        while let Some((chunk, after)) = rest.split_first_chunk() {
            let next = load_whole(chunk);
            store(word | next << bits);
            word = upper(next, bits);
            rest = after;
        }
        if !rest.is_empty() {
            let (next, next_bits) = load_rest(rest);
            word |= next << bits;
            let known = bits + next_bits;
            if known >= WORD_BITS {
                store(word);
                word = upper(next, bits);
            }
            bits = known % WORD_BITS;
        }
    }
    if bits > 0 {
        store(word);
    }
}

/// Returns what of a value did not fit into a word that had so many bits.
#[inline(always)]
fn upper(value: u64, bits: usize) -> u64 {
    match bits {
        0 => 0,
        _ => value >> (WORD_BITS - bits),
    }
}

/// Returns eight bytes as a word, the first one lowest.
#[inline(always)]
fn load_whole(chunk: &[u8; WORD]) -> u64 {
    u64::from_le_bytes(chunk.each_ref().map(byte))
}

/// Returns less than eight bytes as a word, the first one lowest, and their number of bits.
#[inline(always)]
fn load_rest(rest: &[u8]) -> (u64, usize) {
    let (word, bits, rest) = add_chunk::<4>(0, 0, rest);
    let (word, bits, rest) = add_chunk::<2>(word, bits, rest);
    let (word, bits, _none) = add_chunk::<1>(word, bits, rest);
    (word, bits)
}

/// Adds so many bytes above `bits` of a word if there are as many; returns the word, its bits and the other bytes.
#[inline(always)]
fn add_chunk<const BYTES: usize>(word: u64, bits: usize, from: &[u8]) -> (u64, usize, &[u8]) {
    let Some((chunk, rest)) = from.split_first_chunk::<BYTES>() else {
        return (word, bits, from);
    };
    let bytes = chunk.iter().rev().map(|value| u64::from(byte(value)));
    let next = bytes.fold(0, |next, byte| next << 8 | byte);
    // Less than eight bytes in all.
    (word | next << bits, bits + 8 * BYTES, rest)
}

/// Reads one byte. The compiler must not read it together with others.
#[inline(always)]
fn byte(value: &u8) -> u8 {
    // SAFETY: a reference is valid for reads.
    unsafe { std::ptr::from_ref(value).read_volatile() }
}

#[cfg(all(not(loom), test))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pieces of any length, also empty ones, and more bytes than the words have.
        #[test]
        fn words_have_the_bytes_of_the_pieces(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6)
        ) {
            const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;
            let words = [(); 6].map(|()| AtomicU64::new(UNTOUCHED));
            write(pieces.iter().map(Vec::as_slice), &words);
            let bytes = pieces.concat();
            for (number, word) in words.iter().enumerate() {
                let from = bytes.len().min(8 * number);
                let own = &bytes[from..bytes.len().min(from + 8)];
                let mut expected = [0; 8];
                expected[..own.len()].copy_from_slice(own);
                let expected = match own.is_empty() {
                    true => UNTOUCHED,
                    false => u64::from_le_bytes(expected),
                };
                prop_assert_eq!(word.load(Ordering::Relaxed), expected);
            }
        }
    }
}
