//! Reads the pieces of a short message, as the words of a slot.
//!
//! A program mostly wrote a short message just before. A load that covers several stores, or more than one store has, cannot
//! get its bytes from the processor's store buffer. It waits until these stores are in the cache, and so are all earlier ones:
//! also those of the last message, into cache lines that the peer's processor has. So no load may have more bytes than the
//! program's stores had. Pieces before the last one are headers of a library, in fields of one to eight bytes: each byte has a
//! load of its own. The last piece is a program's data, mostly numbers of four or eight bytes: it is loaded by four bytes, which
//! takes a quarter of the instructions.

use std::slice::Iter;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// Stores the pieces in words, the last one filled up with zeros. What does not fit is cut, and words that the pieces do not
/// reach are not stored.
#[inline(always)]
pub(super) fn write(pieces: &[&[u8]], to: &[AtomicU64]) {
    if let [data] = pieces {
        return write_data(data, to);
    }
    let Some((data, headers)) = pieces.split_last() else {
        return;
    };
    let mut words = Words {
        to: to.iter(),
        next: 0,
        bits: 0,
    };
    for header in headers {
        words.add(header, four_bytes);
    }
    words.add(data, four_at_once);
    if words.bits > 0 {
        words.store(words.next);
    }
}

/// The same for data alone, whose words are those of the slot.
#[inline(always)]
fn write_data(data: &[u8], to: &[AtomicU64]) {
    let (mut rest, mut to) = (data, to.iter());
    while let Some((chunk, after)) = rest.split_first_chunk()
        && let Some(word) = to.next()
    {
        word.store(eight(chunk, four_at_once), Ordering::Relaxed);
        rest = after;
    }
    if !rest.is_empty() {
        let (next, bits) = (0, 0);
        let mut words = Words { to, next, bits };
        words.add(rest, four_at_once);
        words.store(words.next);
    }
}

/// The words that the pieces are stored in.
struct Words<'a> {
    to: Iter<'a, AtomicU64>,
    /// The next word, and how many of its bits are known: less than all.
    next: u64,
    bits: usize,
}

impl Words<'_> {
    #[inline(always)]
    fn store(&mut self, value: u64) {
        if let Some(word) = self.to.next() {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Adds a piece, of which `four` loads four bytes.
    #[inline(always)]
    fn add(&mut self, piece: &[u8], four: impl Fn(&[u8; 4]) -> u64) {
        let mut rest = piece;
        while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
            self.add_bits(eight(chunk, &four), WORD);
            rest = after;
        }
        if let Some((chunk, after)) = rest.split_first_chunk() {
            self.add_bits(four(chunk), 32);
            rest = after;
        }
        if let Some(([low, high], after)) = rest.split_first_chunk() {
            self.add_bits(byte(low) | byte(high) << 8, 16);
            rest = after;
        }
        if let Some(last) = rest.first() {
            self.add_bits(byte(last), 8);
        }
    }

    /// Adds a value of so many bits.
    #[inline(always)]
    fn add_bits(&mut self, value: u64, count: usize) {
        let word = self.next | value << self.bits;
        let known = self.bits + count;
        if known < WORD {
            self.next = word;
        } else {
            self.store(word);
            self.next = match self.bits {
                0 => 0,
                bits => value >> (WORD - bits),
            };
        }
        self.bits = known % WORD;
    }
}

/// Loads a word, of which `four` loads four bytes.
#[inline(always)]
fn eight(bytes: &[u8; 8], four: impl Fn(&[u8; 4]) -> u64) -> u64 {
    let halves = bytes.first_chunk().zip(bytes.last_chunk());
    halves.map_or(0, |(low, high)| four(low) | four(high) << 32)
}

/// Loads four bytes, each alone, the first one lowest.
#[inline(always)]
fn four_bytes([a, b, c, d]: &[u8; 4]) -> u64 {
    byte(a) | byte(b) << 8 | byte(c) << 16 | byte(d) << 24
}

/// Loads four bytes at once.
#[inline(always)]
fn four_at_once(bytes: &[u8; 4]) -> u64 {
    #[repr(C, packed)]
    #[derive(Clone, Copy)]
    struct Unaligned(u32);
    // SAFETY: a reference is valid for reads, and neither type needs alignment. Volatile, because the compiler must not load
    // more bytes at once.
    let Unaligned(word) = unsafe {
        std::ptr::from_ref(bytes)
            .cast::<Unaligned>()
            .read_volatile()
    };
    u64::from(u32::from_le(word))
}

/// Loads one byte. The compiler must not load it together with others.
#[inline(always)]
fn byte(value: &u8) -> u64 {
    // SAFETY: a reference is valid for reads.
    let byte = unsafe { std::ptr::from_ref(value).read_volatile() };
    byte.into()
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
            let all: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
            write(&all, &words);
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
