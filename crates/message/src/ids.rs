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
///
/// One number: its index in the low half, its generation in the high one. As two fields, it would be written in two halves
/// and read as a whole, for which a processor has to wait until both writes are in its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request(u64);

impl Request {
    /// A request that never exists.
    pub(crate) const NONE: Self = Self::new(u32::MAX, 0);

    #[inline(always)]
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the low half of a word"
    )]
    pub(crate) const fn index(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the request as a number, for programs without Rust types.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the request of a number from [`bits`](Self::bits); any other number gives no
    /// request, or another one.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the handle by which the peer names the request.
    pub(crate) fn handle(self) -> Handle {
        self.0
    }

    pub(crate) fn from_handle(handle: Handle) -> Self {
        Self(handle)
    }
}
