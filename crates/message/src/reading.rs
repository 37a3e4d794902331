//! The messages that match no receive, as a program reads them.

use window::lane::Place;

use crate::engine::{Arrival, Body};
use crate::ids::Peer;

/// A message that matches no receive, where it arrived. The order of the fields keeps those apart that
/// are neighbours in `mx_unexpected_t`: the compiler would copy them by one load, which waits for both
/// stores.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct InPlace {
    /// The match value.
    pub value: u64,
    /// Where the bytes are, until the message is consumed or kept: an address with exposed provenance.
    /// The peer can change the bytes at any time.
    pub address: usize,
    /// The sender.
    pub peer: Peer,
    /// The length in bytes.
    pub length: u32,
    pub(crate) place: Place,
}

/// The message that the program reads.
#[derive(Debug, Default)]
pub enum Reading {
    /// The program reads none.
    #[default]
    Nothing,
    /// A message of at most 32 KiB.
    InPlace(InPlace),
    /// A longer or synchronous one, one of this endpoint itself, or of a peer that has ended.
    Other(Box<Unexpected>),
}

/// A message that matched no receive. The program must pass it back, to [`keep`](crate::Endpoint::keep) or
/// to [`consume`](crate::Endpoint::consume). If it drops the message instead, a synchronous sender waits
/// without a limit.
#[derive(Debug)]
#[must_use]
pub struct Unexpected {
    pub(crate) arrival: Arrival,
    /// A copy of a message that this endpoint sent to itself.
    pub(crate) own: Vec<u8>,
}

impl Unexpected {
    pub(crate) fn new(arrival: Arrival) -> Self {
        let own = Vec::new();
        Self { arrival, own }
    }

    /// Returns the sender.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.arrival.peer
    }

    /// Returns the match value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.arrival.value
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.arrival.length
    }

    /// Returns the message, if it has arrived: a buffered message, or one of up to 32 KiB that the
    /// endpoint sent to itself.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        let length = usize::try_from(self.arrival.length).ok()?;
        match &self.arrival.body {
            Body::Eager(bytes) => bytes.get(..length),
            Body::Bytes(bytes, None) => Some(bytes),
            Body::Own(_) => (self.own.len() == length).then_some(&self.own[..]),
            Body::Bytes(_, Some(_)) | Body::Offer(_) => None,
        }
    }
}
