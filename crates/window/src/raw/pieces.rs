//! Reads the pieces of a short message, as the words of a slot.
//!
//! A program mostly wrote a short message just before, in fields of one to eight bytes. A load that
//! covers several stores, or more than one store has, cannot get its bytes from the processor's
//! store buffer. It waits until these stores are in the cache, and so are all earlier ones: also those
//! of the last message, into cache lines that the peer's processor has. So each byte has a load of its own.

/// Bytes of a word.
const WORD: usize = 8;

/// Calls `store` with each word of the pieces: its number and the bytes, filled up with zeros. What does
/// not fit into `WORDS` words is cut.
#[inline(always)]
pub(super) fn words<'a, const WORDS: usize>(
    pieces: impl Iterator<Item = &'a [u8]>,
    mut store: impl FnMut(usize, u64),
) {
    let (mut number, mut word, mut filled) = (0, 0, 0);
    for chunk in pieces.flat_map(|piece| piece.chunks(WORD)) {
        let next = load(chunk);
        word |= next << (8 * filled);
        filled += chunk.len();
        if filled >= WORD {
            if number < WORDS {
                store(number, word);
            }
            number += 1;
            filled -= WORD;
            // What did not fit.
            let fitted = chunk.len() - filled;
            word = match filled {
                0 => 0,
                _ => next >> (8 * fitted),
            };
        }
    }
    if filled > 0 && number < WORDS {
        store(number, word);
    }
}

/// Returns up to eight bytes as a word, the first one lowest.
#[inline(always)]
fn load(chunk: &[u8]) -> u64 {
    match <&[u8; WORD]>::try_from(chunk) {
        Ok(bytes) => u64::from_le_bytes(bytes.each_ref().map(byte)),
        Err(_) => {
            let bytes = chunk.iter().rev().map(|value| u64::from(byte(value)));
            bytes.fold(0, |word, byte| word << 8 | byte)
        }
    }
}

/// Reads one byte. The compiler must not read it together with others.
#[inline(always)]
fn byte(value: &u8) -> u8 {
    // SAFETY: a reference is valid for reads.
    unsafe { std::ptr::from_ref(value).read_volatile() }
}
