//! The messages that an endpoint offers, and their bytes until they are pulled.

use std::collections::VecDeque;

use crate::event::Partner as Who;
use crate::limits::{BEHIND, STREAM};
use crate::partner::{Body, Content, Outgoing};
use crate::wire::Pull;

/// A message that is offered.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) who: Who,
    pub(crate) token: u64,
    pub(crate) length: u32,
    pub(crate) bytes: Bytes,
}

/// A place for one, and how often it was used.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) generation: u8,
    pub(crate) region: Option<Region>,
}

/// Its bytes.
#[derive(Debug)]
pub(crate) enum Bytes {
    Here(Vec<u8>),
    Stream(Stream),
}

/// The part of a message that is here: from a while before the last block that was asked for, up
/// to what was fed. It lies in a ring.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Empty until somebody pulls.
    pub(crate) ring: Vec<u8>,
    /// How much of the message is pulled.
    pub(crate) total: u32,
    pub(crate) fed: u32,
    /// Where the last block begins that was asked for.
    pub(crate) asked: u32,
    /// Requests for more than was fed.
    pub(crate) wanting: VecDeque<Pull>,
}

impl Stream {
    /// Where the part that is here begins. Whoever asks for a block has all that is so many blocks
    /// before.
    pub(crate) fn base(&self) -> u32 {
        self.asked.saturating_sub(BEHIND)
    }

    pub(crate) fn space(&mut self) -> &mut [u8] {
        let end = self.base().saturating_add(STREAM).min(self.total);
        let from = self.fed % STREAM;
        let length = end.saturating_sub(self.fed).min(STREAM - from);
        let space = from as usize..(from + length) as usize;
        self.ring.get_mut(space).unwrap_or_default()
    }

    /// Bytes of a frame, which never goes round the end of the ring: both are made of pages.
    pub(crate) fn get(&self, start: u32, length: u32) -> &[u8] {
        let from = (start % STREAM) as usize;
        self.ring
            .get(from..from + length as usize)
            .unwrap_or_default()
    }
}

impl Place {
    /// Offer a message from here.
    pub(crate) fn offer(&mut self, number: u8, who: Who, outgoing: Outgoing) -> Body {
        let Outgoing {
            value,
            content,
            token,
            ..
        } = outgoing;
        let length = content.length();
        self.region = Some(Region {
            who,
            token,
            length,
            bytes: match content {
                Content::Here(data) => Bytes::Here(data),
                Content::Later(_) => Bytes::Stream(Stream::default()),
            },
        });
        Body::Offer {
            value,
            length,
            region: number,
            generation: self.generation,
        }
    }
}
