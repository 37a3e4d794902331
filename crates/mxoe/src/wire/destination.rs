//! The endpoint that a frame is for, without a look at the rest of the frame.

use super::HEADER;
use super::coding::{
    CONNECT, HOST_QUERY, HOST_REPLY, MEDIUM_TYPE, NACK_LIB, NACK_MCP, NOTIFY, PULL, PULL_REPLY,
    RAW, RNDV, SMALL_TYPE, TINY_TYPE, TRUC,
};
use crate::pulls::Pulls;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The host: discovery has no endpoints.
    Host,
    /// An endpoint of the host.
    Endpoint(u8),
}

/// Where a packet has its destination endpoint. Offsets count from the packet's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It has none.
    Host,
    /// The byte at this offset.
    Byte(u8),
    /// The magic at this offset, which the endpoint has chosen ([`Pulls::endpoint`]).
    Magic(u8),
}

/// Returns where packets of a type have their destination endpoint; `None` for types that no packet has.
pub(crate) fn place(kind: u8) -> Option<Place> {
    Some(match kind {
        RAW | HOST_QUERY | HOST_REPLY => Place::Host,
        TRUC | CONNECT | TINY_TYPE | SMALL_TYPE | MEDIUM_TYPE | RNDV | PULL | NOTIFY => {
            Place::Byte(1)
        }
        NACK_LIB => Place::Byte(9),
        PULL_REPLY | NACK_MCP => Place::Magic(12),
        _ => return None,
    })
}

/// Returns what a frame is for, or `None` if the frame is for no endpoint. The rest of the frame may be invalid.
#[must_use]
pub fn destination(frame: &[u8]) -> Option<Destination> {
    let body = frame.get(HEADER..)?;
    match place(*body.first()?)? {
        Place::Host => Some(Destination::Host),
        Place::Byte(at) => body
            .get(usize::from(at))
            .copied()
            .map(Destination::Endpoint),
        Place::Magic(at) => {
            let magic = body.get(usize::from(at)..)?.first_chunk().copied()?;
            Pulls::endpoint(u32::from_be_bytes(magic)).map(Destination::Endpoint)
        }
    }
}
