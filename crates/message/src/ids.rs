//! The identifiers of peers and requests: an index and a generation.

use crate::wire::Handle;

/// A peer of an endpoint: an endpoint that is or was connected to it. Valid only at that endpoint.
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

/// A request that was started. It is valid until its result is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Request {
    /// A request that never exists.
    pub(crate) const NONE: Self = Self {
        index: u32::MAX,
        generation: 0,
    };

    /// Returns the request as a number, for programs without Rust types: its index in the low half,
    /// its generation in the high one.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.handle()
    }

    /// Returns the request of a number from [`bits`](Self::bits); any other number gives no
    /// request, or another one.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self::from_handle(bits)
    }

    /// Returns the handle by which the peer names the request.
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
