//! What an answer carries: bytes of an object, lent out of its slots until the network has taken them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use space::store::{Content, Extent};

use crate::ram::Ram;
use crate::shared::Shared;

/// What was never written.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

/// Bytes handed on at a time.
const CHUNK: u64 = 128 << 10;

/// The body of an answer.
pub(crate) enum Body {
    /// Words of ours.
    Text(Option<Bytes>),
    /// Part of an object.
    Object(ObjectReader),
}

/// A part of an object that is still to be sent. It holds the object's slots.
pub(crate) struct ObjectReader {
    shared: Arc<Shared>,
    content: Arc<Content>,
    extents: VecDeque<Extent>,
    remaining: u64,
}

/// Bytes in slots, which it holds.
struct SlotBytes {
    ram: Arc<Ram>,
    _content: Arc<Content>,
    at: u64,
    length: usize,
}

impl AsRef<[u8]> for SlotBytes {
    fn as_ref(&self) -> &[u8] {
        // Looked at before it was made.
        self.ram.slice(self.at, self.length).unwrap_or_default()
    }
}

impl ObjectReader {
    /// These bytes of it.
    pub(crate) fn new(shared: &Arc<Shared>, content: Content, offset: u64, length: u64) -> Self {
        let extents = content.read(shared.slot_bytes(), offset, length);
        Self {
            shared: Arc::clone(shared),
            content: Arc::new(content),
            extents: extents.into(),
            remaining: length,
        }
    }

    /// The next bytes.
    pub(crate) fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        let Some(extent) = self.extents.pop_front() else {
            return Ok(None);
        };
        let (bytes, rest) = match extent {
            Extent::Zeros { length } => {
                let count = length.min(CHUNK);
                let length = length - count;
                let zeros = ZEROS.get(..size(count)).unwrap_or_default();
                (Bytes::from_static(zeros), Extent::Zeros { length })
            }
            Extent::Bytes { at, length } => {
                let count = length.min(CHUNK);
                let bytes = self.slot_bytes(at, size(count))?;
                let (at, length) = (at + count, length - count);
                (bytes, Extent::Bytes { at, length })
            }
        };
        if !matches!(
            rest,
            Extent::Zeros { length: 0 } | Extent::Bytes { length: 0, .. }
        ) {
            self.extents.push_front(rest);
        }
        let count = bytes.len() as u64;
        self.remaining -= count;
        self.shared
            .counters
            .sent
            .fetch_add(count, Ordering::Relaxed);
        Ok(Some(bytes))
    }

    fn slot_bytes(&self, at: u64, length: usize) -> std::io::Result<Bytes> {
        let ram = self.shared.ram();
        if ram.slice(at, length).is_none() {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        Ok(Bytes::from_owner(SlotBytes {
            ram: Arc::clone(ram),
            _content: Arc::clone(&self.content),
            at,
            length,
        }))
    }
}

/// At most [`CHUNK`].
fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(0)
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = match &mut *self {
            Self::Text(text) => Ok(text.take()),
            Self::Object(reader) => reader.next(),
        };
        Poll::Ready(next.transpose().map(|next| next.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Object(reader) => reader.remaining == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Text(text) => text.as_ref().map_or(0, Bytes::len) as u64,
            Self::Object(reader) => reader.remaining,
        })
    }
}
