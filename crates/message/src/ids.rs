//! The identifiers by which a program names peers and requests: an index and a generation.

use crate::wire::Handle;

/// A peer of an endpoint: who is connected to it, or was. Means something to that endpoint only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The endpoint itself.
pub(crate) const SELF: Peer = Peer {
    index: 0,
    generation: 0,
};

/// A request that was started. It stays valid until its result is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Request {
    /// None that ever was.
    pub(crate) const NONE: Self = Self {
        index: u32::MAX,
        generation: 0,
    };

    /// As a number, for a program that keeps no Rust types: its place in the low half, how often
    /// that was used in the high one.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.handle()
    }

    /// What [`bits`](Self::bits) made a number of; of any other number, no request or another.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self::from_handle(bits)
    }

    /// As it is named towards the peer.
    pub(crate) fn handle(self) -> Handle {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the halves of a word"
    )]
    pub(crate) fn from_handle(handle: Handle) -> Self {
        Self {
            index: handle as u32,
            generation: (handle >> 32) as u32,
        }
    }
}
