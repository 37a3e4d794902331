//! Sends without a request: the message leaves at once, or not at all.

use window::lane::SHORT_BYTES;

use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::error::{Code, Error};
use crate::ids::{Peer, SELF};
use crate::limits::{EAGER, MEDIUM, SHORT_WORDS};
use crate::peer::{Fault, Link};
use crate::wire;

/// Bytes of the longest message whose pieces are joined before they are written. The stores of a header leave those of the
/// piece behind it unaligned, and a store that crosses two cache lines waits until the processor has both.
const JOINED: usize = 256;

/// A message of at most [`SHORT_BYTES`]: little-endian words, zeros behind its bytes, and the number of its bytes.
pub type Short<'a> = (&'a [u64; SHORT_WORDS], usize);

impl Endpoint {
    /// Sends a message of at most [`MEDIUM`] bytes in pieces, if there is room for it now. The program
    /// may reuse their memory when the call returns. Returns false if there is no room, the message is
    /// too long, or the peer is this endpoint or is gone: then nothing is sent, and
    /// [`isend`](Self::isend) says what happens.
    ///
    /// # Errors
    /// `peer` is no peer of this endpoint.
    #[inline(always)]
    pub fn inject(&mut self, peer: Peer, value: u64, pieces: &[&[u8]]) -> Result<bool, Error> {
        let Some(link) = self.peers.link(peer) else {
            return self.is_known(peer).map(|()| false);
        };
        match Engine::inject(link, value, pieces) {
            Ok(sent) => {
                self.poll_plane();
                Ok(sent)
            }
            Err(_) => {
                self.fail_peer(peer, Code::Unreachable);
                Ok(false)
            }
        }
    }

    /// The same for a message in words.
    ///
    /// # Errors
    /// As [`inject`](Self::inject).
    #[inline(always)]
    pub fn inject_words(
        &mut self,
        peer: Peer,
        value: u64,
        message: Short<'_>,
    ) -> Result<bool, Error> {
        if let Some(link) = self.peers.link(peer)
            && let Ok(value) = u16::try_from(value)
            && Engine::inject_words(link, value, message)
        {
            self.poll_plane();
            return Ok(true);
        }
        self.inject_bytes(peer, value, message)
    }

    /// The same without the short way, which most messages take.
    #[inline(never)]
    fn inject_bytes(
        &mut self,
        peer: Peer,
        value: u64,
        (words, length): Short<'_>,
    ) -> Result<bool, Error> {
        let bytes = words.map(u64::to_le_bytes);
        match bytes.as_flattened().get(..length) {
            Some(bytes) => self.inject(peer, value, &[bytes]),
            None => Ok(false),
        }
    }

    /// Checks a peer without a link: this endpoint, or one that is gone.
    #[cold]
    pub(crate) fn is_known(&self, peer: Peer) -> Result<(), Error> {
        let known = peer == SELF || self.peers.get(peer).is_some();
        known.then_some(()).ok_or(Error::BadPeer)
    }
}

impl Engine {
    #[inline(always)]
    fn inject(link: &mut Link, value: u64, pieces: &[&[u8]]) -> Result<bool, Fault> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        // A message must not overtake those that wait for room.
        if !link.sends.is_empty() {
            return Ok(false);
        }
        if length > EAGER {
            return Self::inject_medium(link, value, pieces, length);
        }
        if !link.messages_out.has_room()? {
            link.lacked_room = true;
            return Ok(false);
        }
        let tag = wire::eager_tag(u8::try_from(length).unwrap_or_default());
        link.messages_out.push_pieces(tag, value, pieces, length);
        link.wake();
        Ok(true)
    }

    /// Sends a message in words. Returns false, and sends nothing, if the other function has to decide.
    #[inline(always)]
    fn inject_words(link: &mut Link, value: u16, (words, length): Short<'_>) -> bool {
        let short = u8::try_from(length).ok();
        let Some(length) = short.filter(|length| usize::from(*length) <= SHORT_BYTES) else {
            return false;
        };
        if !link.sends.is_empty() || !link.messages_out.has_free_slot() {
            return false;
        }
        let tag = wire::eager_tag(length);
        link.messages_out.push_words(tag, value, words);
        link.wake();
        true
    }

    #[inline(never)]
    fn inject_medium(
        link: &mut Link,
        value: u64,
        pieces: &[&[u8]],
        length: usize,
    ) -> Result<bool, Fault> {
        if length as u64 > MEDIUM {
            return Ok(false);
        }
        // At most 32 KiB.
        let length = u32::try_from(length).unwrap_or_default();
        let Some(room) = link.messages_out.room(length)? else {
            link.lacked_room = true;
            return Ok(false);
        };
        match pieces.len() > 1 && length as usize <= JOINED {
            true => write_joined(link, room.offset, pieces)?,
            false => write(link, room.offset, pieces)?,
        }
        let record = wire::medium(value, room.offset, length, None);
        link.messages_out.push_with_data(&record, room);
        link.wake();
        Ok(true)
    }
}

/// Writes the pieces into the data area, one after the other.
fn write(link: &mut Link, offset: u32, pieces: &[&[u8]]) -> Result<(), Fault> {
    let mut at = u64::from(offset);
    for piece in pieces {
        let written = link.messages_out.write(at, piece);
        written.ok_or(Fault::Malformed)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Writes pieces of at most [`JOINED`] bytes in total.
fn write_joined(link: &mut Link, offset: u32, pieces: &[&[u8]]) -> Result<(), Fault> {
    let mut joined = [0; JOINED];
    let mut length = 0;
    for piece in pieces {
        let end = length + piece.len();
        let room = joined.get_mut(length..end).ok_or(Fault::Malformed)?;
        room.copy_from_slice(piece);
        length = end;
    }
    write(link, offset, &[joined.get(..length).unwrap_or_default()])
}
