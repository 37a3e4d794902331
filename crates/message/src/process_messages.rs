//! The messages of a link that are to be copied between the processes: what each side has collected, and their pieces.

use arrayvec::ArrayVec;

use crate::ids::Request;
use crate::limits::{COPIED_TOGETHER, PIECE};
use crate::wire::Handle;

/// Bytes of a page: the kernel copies whole ones fastest.
const PAGE: u64 = 4096;

/// The most pieces of a message ([`window::chunk_claim`]).
const MOST: u64 = u16::MAX as u64;

/// An offered message that is to be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) request: Request,
    pub(crate) sender: Handle,
    /// Addresses in the sender's process and in this one.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) wanted: u64,
}

/// The messages that a receiver has collected.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    pub(crate) list: ArrayVec<Fetch, COPIED_TOGETHER>,
    /// How many times the peer has been served since the first one.
    pub(crate) serves: u32,
}

impl Fetches {
    /// Returns whether none waits.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Returns the bytes of each piece but the last of a message. There are at most as many as can be claimed.
pub(crate) fn piece(wanted: u64) -> u64 {
    match is_short(wanted) {
        true => wanted.div_ceil(2).next_multiple_of(PAGE),
        false => wanted.div_ceil(MOST).next_multiple_of(PAGE).max(PIECE),
    }
}

/// Returns whether a message consists of two halves.
pub(crate) fn is_short(wanted: u64) -> bool {
    wanted < PIECE * 2
}

/// A message that the receiver asked this side to copy, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) request: Request,
    pub(crate) receiver: Handle,
    /// An address in the receiver's process.
    pub(crate) to: u64,
    pub(crate) wanted: u64,
}

/// The messages of one epoch, as far as their records have arrived.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    pub(crate) list: ArrayVec<Joined, COPIED_TOGETHER>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_messages_have_two_pieces_and_long_ones_not_too_many() {
        for wanted in [32_769, 32_770, 40_001, 65_536, 2 * PIECE - 1] {
            assert_eq!(wanted.div_ceil(piece(wanted)), 2, "{wanted}");
        }
        for wanted in [2 * PIECE, PIECE * MOST, PIECE * MOST + 1, 9 << 30, 1 << 46] {
            let count = wanted.div_ceil(piece(wanted));
            assert!((2..=MOST).contains(&count), "{wanted}: {count}");
        }
        assert_eq!(piece(1 << 20), PIECE);
    }
}
