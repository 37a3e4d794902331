//! Messages that an endpoint offers, and the buffered part of a streamed message.

use std::collections::VecDeque;

use crate::block::Block;
use crate::event::PartnerId;
use crate::limits::{STREAM_BUFFER, STREAM_HISTORY};
use crate::partner::{Body, Content, Outgoing};
use crate::wire::Pull;

/// An offered message.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) id: PartnerId,
    pub(crate) token: Option<u64>,
    pub(crate) length: u32,
    pub(crate) bytes: Bytes,
    /// End of the furthest block that the receiver requested, and how many requests since then were not for a new block.
    requested: u32,
    repeats: u32,
}

/// A slot for a region, and how often the slot was used.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) generation: u8,
    pub(crate) region: Option<Region>,
}

/// The bytes of an offered message.
#[derive(Debug)]
pub(crate) enum Bytes {
    Complete(Vec<u8>),
    Stream(Stream),
}

/// The buffered part of a streamed message, in a ring: from `base` up to the last byte that the
/// program supplied.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Empty until the receiver starts to pull. A message that is shorter than the ring has only its own length of it.
    pub(crate) ring: Vec<u8>,
    /// Number of bytes that the receiver pulls.
    pub(crate) total: u32,
    pub(crate) filled: u32,
    /// Start of the last block that the receiver requested.
    pub(crate) last_requested: u32,
    /// Requests for bytes that the program has not supplied.
    pub(crate) pending: VecDeque<Pull>,
}

impl Region {
    /// Notes a request, and returns how many there were since the last one for a new block.
    pub(crate) fn note_request(&mut self, block: &Block) -> u32 {
        self.repeats = match block.end() > self.requested {
            true => 0,
            false => self.repeats.saturating_add(1),
        };
        self.requested = self.requested.max(block.end());
        self.repeats
    }

    /// Returns these bytes of the message, if they are there. A frame never wraps around the end of the ring, because both
    /// consist of whole pages.
    pub(crate) fn get(&self, start: u32, length: u32) -> Option<&[u8]> {
        let (bytes, from) = match &self.bytes {
            Bytes::Complete(data) => (data, start),
            Bytes::Stream(stream) => {
                let end = start.checked_add(length)?;
                let is_there = start >= stream.base() && end <= stream.filled;
                (&stream.ring, is_there.then_some(start % STREAM_BUFFER)?)
            }
        };
        bytes.get(from as usize..)?.get(..length as usize)
    }
}

impl Stream {
    /// Returns the start of the buffered part. A receiver that requests a block has all blocks that
    /// precede it by more than [`STREAM_HISTORY`].
    pub(crate) fn base(&self) -> u32 {
        self.last_requested.saturating_sub(STREAM_HISTORY)
    }

    pub(crate) fn free_part(&mut self) -> &mut [u8] {
        let end = self.base().saturating_add(STREAM_BUFFER).min(self.total);
        let from = self.filled % STREAM_BUFFER;
        let length = end.saturating_sub(self.filled).min(STREAM_BUFFER - from);
        let space = from as usize..(from + length) as usize;
        self.ring.get_mut(space).unwrap_or_default()
    }
}

impl Slot {
    /// Stores a message in this slot, and returns the offer.
    pub(crate) fn offer(&mut self, number: u8, id: PartnerId, outgoing: Outgoing) -> Body {
        let Outgoing {
            value,
            content,
            token,
            ..
        } = outgoing;
        let length = content.length();
        self.region = Some(Region {
            id,
            token,
            length,
            bytes: match content {
                Content::Buffered(data) => Bytes::Complete(data),
                Content::Streamed(_) => Bytes::Stream(Stream::default()),
            },
            requested: 0,
            repeats: 0,
        });
        Body::Offer {
            value,
            length,
            region: number,
            generation: self.generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::STREAM_HISTORY;

    #[test]
    fn bytes_of_a_stream_are_there_until_its_ring_has_others() {
        let mut slot = Slot::default();
        let outgoing = Outgoing {
            value: 0,
            content: Content::Streamed(u32::MAX),
            synchronous: true,
            token: None,
        };
        drop(slot.offer(0, PartnerId::default(), outgoing));
        let mut region = slot.region.unwrap();
        assert_eq!(region.get(0, 1), None);
        region.bytes = Bytes::Stream(Stream {
            ring: vec![0; STREAM_BUFFER as usize],
            total: u32::MAX,
            filled: STREAM_BUFFER + 4096,
            last_requested: STREAM_HISTORY + 4096,
            pending: VecDeque::new(),
        });
        assert_eq!(region.get(0, 4096), None);
        assert_eq!(region.get(4096, 4096).map(<[u8]>::len), Some(4096));
        assert_eq!(region.get(STREAM_BUFFER, 4096).map(<[u8]>::len), Some(4096));
        assert_eq!(region.get(STREAM_BUFFER, 8192), None);
        assert_eq!(region.get(u32::MAX, 4096), None);
    }
}
