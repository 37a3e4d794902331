//! Response bodies: the bytes of an object, referenced in its slots without a copy.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use space::store::{Content, Extent};

use crate::space_memory::SlotFile;
use crate::space_state::SpaceState;

/// The bytes of holes in a file.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

/// Most bytes of one frame of a body.
const CHUNK: u64 = 128 << 10;

/// The body of a response or of a pushed request.
pub(crate) enum Body {
    /// A short text, such as an error message.
    Text(Option<Bytes>),
    /// A range of an object.
    Object(ObjectReader),
}

/// Reads a range of an object in chunks. The object's slots stay in use as long as the reader or one of its chunks
/// exists.
pub(crate) struct ObjectReader {
    state: Arc<SpaceState>,
    content: Arc<Content>,
    extents: VecDeque<Extent>,
    remaining: u64,
}

/// A chunk of bytes in slots. It keeps the slots in use.
struct SlotBytes {
    slot_file: Arc<SlotFile>,
    _content: Arc<Content>,
    at: u64,
    length: usize,
}

impl AsRef<[u8]> for SlotBytes {
    fn as_ref(&self) -> &[u8] {
        // `ObjectReader::slot_bytes` checked the range.
        self.slot_file
            .slice(self.at, self.length)
            .unwrap_or_default()
    }
}

impl ObjectReader {
    /// Creates a reader of `length` bytes from `offset`.
    pub(crate) fn new(state: &Arc<SpaceState>, content: Content, offset: u64, length: u64) -> Self {
        let extents = content.read(state.slot_bytes(), offset, length);
        Self {
            state: Arc::clone(state),
            content: Arc::new(content),
            extents: extents.into(),
            remaining: length,
        }
    }

    /// Returns the next chunk, or `None` at the end of the range.
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
        self.state.counters.sent.fetch_add(count, Ordering::Relaxed);
        Ok(Some(bytes))
    }

    fn slot_bytes(&self, at: u64, length: usize) -> std::io::Result<Bytes> {
        let slot_file = self.state.slot_file();
        if slot_file.slice(at, length).is_none() {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        Ok(Bytes::from_owner(SlotBytes {
            slot_file: Arc::clone(slot_file),
            _content: Arc::clone(&self.content),
            at,
            length,
        }))
    }
}

/// Converts a count of at most [`CHUNK`].
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
