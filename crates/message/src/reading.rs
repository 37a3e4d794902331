//! The messages that match no receive, as a program reads them.

use window::lane::Place;

use crate::engine::{Arrival, Body};
use crate::ids::Peer;
use crate::limits;

const _: () = assert!(limits::READ_AT_ONCE <= u16::BITS as usize);

/// A message that matches no receive, where it arrived. The order of the fields keeps those apart that
/// are neighbours in `mx_unexpected_t`: the compiler would copy them by one load, which waits for both
/// stores.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct InPlace {
    /// The match value.
    pub value: u64,
    /// Where the bytes are, until the message is consumed: an address with exposed provenance.
    /// The peer can change the bytes at any time.
    pub address: usize,
    /// The length in bytes.
    pub length: u32,
    pub(crate) place: Place,
}

/// The messages that the program reads: several of one peer, in place, or another one.
#[derive(Debug)]
pub struct Reading {
    pub(crate) peer: Peer,
    pub(crate) count: usize,
    list: [InPlace; limits::READ_AT_ONCE],
    /// Which of the messages in place the program keeps.
    pub(crate) kept: u16,
    /// A message that is longer than 32 KiB or synchronous, one of this endpoint itself, or of a peer that
    /// has ended.
    pub(crate) other: Option<Box<Unexpected>>,
}

impl Reading {
    pub(crate) fn new(own: Peer) -> Self {
        let unused = InPlace {
            value: 0,
            address: 0,
            length: 0,
            place: Place::Slot(0),
        };
        Self {
            peer: own,
            count: 0,
            list: [unused; limits::READ_AT_ONCE],
            kept: 0,
            other: None,
        }
    }

    /// Returns the sender of the messages in place.
    #[inline(always)]
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the messages in place, each of at most 32 KiB.
    #[inline(always)]
    #[must_use]
    pub fn in_place(&self) -> &[InPlace] {
        self.list.get(..self.count).unwrap_or_default()
    }

    /// Returns the message that is not in place, if the program reads such a one.
    #[inline(always)]
    #[must_use]
    pub fn other(&self) -> Option<&Unexpected> {
        self.other.as_deref()
    }

    /// Adds a message in place.
    #[inline(always)]
    pub(crate) fn push(&mut self, message: InPlace) {
        if let Some(next) = self.list.get_mut(self.count) {
            *next = message;
            self.count = self.count.wrapping_add(1);
        }
    }

    /// Returns the message of this number for the program to keep, unless it is kept already.
    pub(crate) fn keep(&mut self, number: usize) -> Option<InPlace> {
        let message = self.in_place().get(number).copied()?;
        let bit = 1 << number;
        let is_kept = self.kept & bit != 0;
        self.kept |= bit;
        (!is_kept).then_some(message)
    }
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
