//! What an answer carries: bytes of an object, copied out of its slots as the client takes them.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use space::store::{Content, Extent};

use crate::shared::Shared;

/// Bytes copied at a time: what a client that takes nothing costs, twice over.
pub(crate) const STEP: u64 = 64 << 10;

/// The body of an answer.
pub(crate) enum Body {
    /// Words of ours.
    Text(Option<Bytes>),
    /// Part of an object.
    Object(Part),
}

/// A part of an object that is still to be sent. It holds the object's slots.
pub(crate) struct Part {
    shared: Arc<Shared>,
    _content: Content,
    extents: VecDeque<Extent>,
    left: u64,
}

impl Part {
    /// These bytes of it.
    pub(crate) fn new(shared: &Arc<Shared>, content: Content, offset: u64, length: u64) -> Self {
        let slot_bytes = shared.store().slots().slot_bytes();
        let extents = content.read(slot_bytes, offset, length);
        Self {
            shared: Arc::clone(shared),
            _content: content,
            extents: extents.into(),
            left: length,
        }
    }

    /// The next bytes.
    fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        let Some(extent) = self.extents.pop_front() else {
            return Ok(None);
        };
        let (bytes, rest) = match extent {
            Extent::Zeros { length } => {
                let count = length.min(STEP);
                let length = length - count;
                (vec![0; size(count)], Extent::Zeros { length })
            }
            Extent::Bytes { at, length } => {
                let count = length.min(STEP);
                let mut bytes = vec![0; size(count)];
                self.shared.ram().file().read_exact_at(&mut bytes, at)?;
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
        self.left -= count;
        self.shared.counts.sent.fetch_add(count, Ordering::Relaxed);
        Ok(Some(bytes.into()))
    }
}

/// At most [`STEP`].
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
            Self::Object(part) => part.next(),
        };
        Poll::Ready(next.transpose().map(|next| next.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Object(part) => part.left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Text(text) => text.as_ref().map_or(0, Bytes::len) as u64,
            Self::Object(part) => part.left,
        })
    }
}
