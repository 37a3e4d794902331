//! Sends without a request: the message leaves at once, or not at all.

use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::error::{Code, Error};
use crate::ids::{Peer, SELF};
use crate::limits::{EAGER, MEDIUM};
use crate::peer::{Fault, Link};
use crate::wire;

impl Endpoint {
    /// Sends a message of at most [`MEDIUM`] bytes in pieces, if there is room for it now. The program
    /// may reuse their memory when the call returns. Returns false if there is no room, the message is
    /// too long, or the peer is this endpoint or is gone: then nothing is sent, and
    /// [`isend`](Self::isend) says what happens.
    ///
    /// # Errors
    /// `peer` is no peer of this endpoint.
    #[inline]
    pub fn inject<'a>(
        &mut self,
        peer: Peer,
        value: u64,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<bool, Error> {
        let Some(link) = self.peers.link(peer) else {
            let known = peer == SELF || self.peers.get(peer).is_some();
            return known.then_some(false).ok_or(Error::BadPeer);
        };
        match Engine::inject(link, value, pieces) {
            Ok(sent) => Ok(sent),
            Err(_) => {
                self.fail_peer(peer, Code::Unreachable);
                Ok(false)
            }
        }
    }
}

impl Engine {
    #[inline]
    fn inject<'a>(
        link: &mut Link,
        value: u64,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<bool, Fault> {
        let length: u64 = pieces.clone().map(|piece| piece.len() as u64).sum();
        // A message must not overtake those that wait for room.
        if !link.sends.is_empty() || length > MEDIUM {
            return Ok(false);
        }
        if length <= EAGER as u64 {
            if !link.messages_out.has_room()? {
                return Ok(false);
            }
            push_pieces(link, value, pieces);
        } else {
            // At most 32 KiB.
            let length = u32::try_from(length).unwrap_or_default();
            let Some(room) = link.messages_out.room(length)? else {
                return Ok(false);
            };
            let mut at = u64::from(room.offset);
            for piece in pieces {
                let written = link.messages_out.write(at, piece);
                written.ok_or(Fault::Malformed)?;
                at += piece.len() as u64;
            }
            let record = wire::medium(value, room.offset, length, None);
            link.messages_out.push_with_data(&record, room);
        }
        link.wake();
        Ok(true)
    }
}

/// Publishes a message of at most [`EAGER`] bytes. There must be room.
#[inline]
fn push_pieces<'a>(link: &mut Link, value: u64, pieces: impl Iterator<Item = &'a [u8]>) {
    let mut bytes = [0; EAGER];
    let mut length = 0;
    for piece in pieces {
        // It fits: the caller checked the length.
        if let Some(room) = bytes.get_mut(length..length + piece.len()) {
            room.copy_from_slice(piece);
        }
        length += piece.len();
    }
    let tag = wire::eager_tag(u8::try_from(length).unwrap_or_default());
    let message = bytes.get(..length).unwrap_or_default();
    link.messages_out.push_bytes(tag, value, message);
}
