//! The memory that is lent to a request, and comes back with its result.

use std::mem;

use window::heap::Buffer;
use window::region::SharedBuffer;

use crate::raw::Segments;

/// Bytes to send, or to receive into.
#[derive(Debug, Default)]
// With a tag of one byte it would be moved in pieces that begin beside its words, and a processor
// that just wrote the words waits until they are in its cache before it can read such pieces.
#[repr(u64)]
pub enum Memory {
    /// None: an empty message.
    #[default]
    Empty,
    /// Bytes of the program. A receive fills what `len()` says, not the capacity.
    Bytes(Vec<u8>),
    /// Memory of the endpoint's heap, see [`allocate`](crate::Endpoint::allocate). Large messages
    /// from there are copied once.
    Window(Buffer),
    /// Memory that is shared with a peer, or with the VM's trust group, see
    /// [`allocate_for`](crate::Endpoint::allocate_for). Those can write there too, so there is no reference to it: see
    /// [`put`](Self::put) and [`get`](Self::get).
    SharedBuffer(Box<SharedBuffer>),
    /// Pieces of memory that belong to somebody else.
    Segments(Segments),
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Buffer> for Memory {
    fn from(buffer: Buffer) -> Self {
        Self::Window(buffer)
    }
}

impl Memory {
    /// Bytes in all.
    #[inline]
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Window(buffer) => buffer.len() as u64,
            Self::SharedBuffer(buffer) => buffer.length(),
            Self::Segments(segments) => segments.pieces().map(|piece| piece.len() as u64).sum(),
        }
    }

    /// All bytes, when they are in one piece that Rust knows the owner of, and nobody else writes; else none.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Window(buffer) => buffer,
            Self::Empty | Self::SharedBuffer(_) | Self::Segments(_) => &[],
        }
    }

    /// All of it, if it is in one piece that can be referred to.
    #[inline(always)]
    pub(crate) fn piece(&self) -> Option<&[u8]> {
        match self {
            Self::Empty => Some(&[]),
            Self::Bytes(bytes) => Some(bytes),
            Self::Window(buffer) => Some(buffer),
            Self::SharedBuffer(_) => None,
            Self::Segments(segments) => {
                let mut pieces = segments.pieces();
                let first = pieces.next().unwrap_or_default();
                pieces.next().is_none().then_some(first)
            }
        }
    }

    /// All of it to be filled, if it is in one piece that can be referred to.
    #[inline(always)]
    pub(crate) fn piece_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Empty => Some(&mut []),
            Self::Bytes(bytes) => Some(bytes),
            Self::Window(buffer) => Some(buffer),
            Self::SharedBuffer(_) => None,
            Self::Segments(segments) => {
                let mut pieces = segments.pieces_mut();
                let first = pieces.next().unwrap_or_default();
                pieces.next().is_none().then_some(first)
            }
        }
    }

    /// Hand `length` bytes from `from` to `each`, piece by piece, until it returns `None`.
    #[inline]
    pub(crate) fn read(
        &self,
        from: u64,
        length: u64,
        mut each: impl FnMut(&[u8]) -> Option<()>,
    ) -> Option<()> {
        match self {
            Self::Empty => Some(()),
            Self::Bytes(bytes) => each(part(bytes, from, length)),
            Self::Window(buffer) => each(part(buffer, from, length)),
            Self::SharedBuffer(buffer) => read_by_pages(buffer, from, length, &mut each),
            Self::Segments(segments) => {
                let (mut skip, mut left) = (from, length);
                for piece in segments.pieces() {
                    let taken = part(piece, skip, left);
                    skip = skip.saturating_sub(piece.len() as u64);
                    left -= taken.len() as u64;
                    if !taken.is_empty() {
                        each(taken)?;
                    }
                }
                Some(())
            }
        }
    }

    /// Hand `length` bytes from `from` to `each` to be filled, piece by piece, until it returns
    /// `None`.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        from: u64,
        length: u64,
        mut each: impl FnMut(&mut [u8]) -> Option<()>,
    ) -> Option<()> {
        match self {
            Self::Empty => Some(()),
            Self::Bytes(bytes) => each(part_mut(bytes, from, length)),
            Self::Window(buffer) => each(part_mut(buffer, from, length)),
            Self::SharedBuffer(buffer) => fill_by_pages(buffer, from, length, &mut each),
            Self::Segments(segments) => {
                let (mut skip, mut left) = (from, length);
                for piece in segments.pieces_mut() {
                    let whole = piece.len() as u64;
                    let taken = part_mut(piece, skip, left);
                    skip = skip.saturating_sub(whole);
                    left -= taken.len() as u64;
                    if !taken.is_empty() {
                        each(taken)?;
                    }
                }
                Some(())
            }
        }
    }

    /// Write the beginning of `bytes` at `at`; returns how many found room.
    #[inline]
    pub fn put(&mut self, at: u64, bytes: &[u8]) -> u64 {
        let mut rest = bytes;
        // Nothing to refuse: every piece takes what is left.
        let _whole = self.fill(at, bytes.len() as u64, |piece| {
            let count = piece.len().min(rest.len());
            let (now, later) = rest.split_at_checked(count)?;
            piece.get_mut(..count)?.copy_from_slice(now);
            rest = later;
            Some(())
        });
        (bytes.len() - rest.len()) as u64
    }

    /// Copy what is at `at` into `bytes`; returns how many there were.
    pub fn get(&self, at: u64, bytes: &mut [u8]) -> u64 {
        let mut done = 0;
        // Nothing to refuse: there are no more bytes than were asked for.
        let _whole = self.read(at, bytes.len() as u64, |piece| {
            let end = done + piece.len();
            bytes.get_mut(done..end)?.copy_from_slice(piece);
            done = end;
            Some(())
        });
        done as u64
    }

    /// What a peer copies of it from now on is not good, and it copies nothing there any more. Where it is just
    /// doing so, the memory is gone: nobody may have it before the peer has left.
    #[cold]
    pub(crate) fn revoke(&mut self) {
        match mem::take(self) {
            Self::SharedBuffer(buffer) => {
                let ours = buffer.revoke();
                *self = ours.map_or(Self::Empty, |ours| Self::SharedBuffer(Box::new(ours)));
            }
            other => *self = other,
        }
    }
}

/// What is copied by way of private memory at a time. It stays in the processor's nearest cache.
const PAGE: usize = 4096;

/// Hand bytes of a buffer to `each`, by way of private memory.
#[inline(never)]
fn read_by_pages(
    buffer: &SharedBuffer,
    from: u64,
    length: u64,
    each: &mut dyn FnMut(&[u8]) -> Option<()>,
) -> Option<()> {
    let mut page = [0; PAGE];
    for (at, count) in pages(buffer, from, length) {
        let page = page.get_mut(..count)?;
        buffer.read(at, page)?;
        each(page)?;
    }
    Some(())
}

/// Have `each` fill bytes of a buffer, by way of private memory.
#[inline(never)]
fn fill_by_pages(
    buffer: &mut SharedBuffer,
    from: u64,
    length: u64,
    each: &mut dyn FnMut(&mut [u8]) -> Option<()>,
) -> Option<()> {
    let mut page = [0; PAGE];
    for (at, count) in pages(buffer, from, length) {
        let page = page.get_mut(..count)?;
        each(page)?;
        buffer.write(at, page)?;
    }
    Some(())
}

/// Where pages begin and how long they are, of `length` bytes from `from`, as far as there are.
fn pages(
    buffer: &SharedBuffer,
    from: u64,
    length: u64,
) -> impl Iterator<Item = (u64, usize)> + use<> {
    let end = from.saturating_add(length).min(buffer.length());
    let count = move |at| usize::try_from(end - at).unwrap_or(PAGE).min(PAGE);
    (from..end).step_by(PAGE).map(move |at| (at, count(at)))
}

/// `length` bytes from `from`, as far as there are.
fn bounds(have: usize, from: u64, length: u64) -> std::ops::Range<usize> {
    let start = usize::try_from(from).unwrap_or(usize::MAX).min(have);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    start..start.saturating_add(length).min(have)
}

fn part(bytes: &[u8], from: u64, length: u64) -> &[u8] {
    bytes
        .get(bounds(bytes.len(), from, length))
        .unwrap_or_default()
}

fn part_mut(bytes: &mut [u8], from: u64, length: u64) -> &mut [u8] {
    let bounds = bounds(bytes.len(), from, length);
    bytes.get_mut(bounds).unwrap_or_default()
}
