//! The memory of a message. A request owns it until its result is taken.

use std::mem;

use window::heap::Buffer;
use window::region::SharedBuffer;

use crate::raw::Segments;

/// Bytes to send, or to receive into.
#[derive(Debug, Default)]
// With a tag of one byte, the value would be moved in pieces that do not begin at its words. A
// processor that has just written the words waits until they are in its cache before it can read
// such pieces.
#[repr(u64)]
pub enum Memory {
    /// None: an empty message.
    #[default]
    Empty,
    /// Bytes of the program. A receive fills `len()` bytes, not the capacity.
    Bytes(Vec<u8>),
    /// Memory of the endpoint's heap, see [`allocate`](crate::Endpoint::allocate). Large messages
    /// from there are copied once.
    Window(Buffer),
    /// Memory that is shared with a peer, or with the VM's trust group, see
    /// [`allocate_for`](crate::Endpoint::allocate_for). These can write it, too, so it gives no
    /// reference to its bytes: see [`put`](Self::put) and [`get`](Self::get).
    SharedBuffer(Box<SharedBuffer>),
    /// Segments of memory that the caller owns.
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
    /// Returns the length in bytes.
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

    /// Returns all bytes, if they are contiguous, have an owner that Rust knows, and are written by
    /// nothing else; otherwise an empty slice.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Window(buffer) => buffer,
            Self::Empty | Self::SharedBuffer(_) | Self::Segments(_) => &[],
        }
    }

    /// Returns all bytes, if they are contiguous and can be referred to.
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

    /// Returns all bytes to be filled, if they are contiguous and can be referred to.
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

    /// Returns the address of all bytes in this process, if they are contiguous and can be referred to.
    pub(crate) fn address(&self) -> Option<u64> {
        let bytes = self.piece()?;
        Some(bytes.as_ptr().expose_provenance() as u64)
    }

    /// Returns `length` bytes from `from`, if they are contiguous and can be referred to.
    pub(crate) fn part(&self, from: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(from).ok()?;
        self.piece()?.get(from..from.checked_add(length)?)
    }

    /// Returns `length` bytes to be filled from `from`, if they are contiguous and can be referred to.
    pub(crate) fn part_mut(&mut self, from: u64, length: usize) -> Option<&mut [u8]> {
        let from = usize::try_from(from).ok()?;
        self.piece_mut()?.get_mut(from..from.checked_add(length)?)
    }

    /// Passes `length` bytes from `from` to `each`, piece by piece, until it returns `None`.
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

    /// Passes `length` bytes from `from` to `each` to be filled, piece by piece, until it returns
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

    /// Copies `bytes` to offset `at`, as far as there is room; returns how many bytes.
    #[inline]
    pub fn put(&mut self, at: u64, bytes: &[u8]) -> u64 {
        let mut rest = bytes;
        // Never refused: each piece takes what is left.
        let _whole = self.fill(at, bytes.len() as u64, |piece| {
            let count = piece.len().min(rest.len());
            let (now, later) = rest.split_at_checked(count)?;
            piece.get_mut(..count)?.copy_from_slice(now);
            rest = later;
            Some(())
        });
        (bytes.len() - rest.len()) as u64
    }

    /// Copies bytes from offset `at` into `bytes`; returns how many there were.
    pub fn get(&self, at: u64, bytes: &mut [u8]) -> u64 {
        let mut done = 0;
        // Never refused: there are no more bytes than requested.
        let _whole = self.read(at, bytes.len() as u64, |piece| {
            let end = done + piece.len();
            bytes.get_mut(done..end)?.copy_from_slice(piece);
            done = end;
            Some(())
        });
        done as u64
    }

    /// Revokes the memory towards peers: what a peer copies out from now on is invalid, and it
    /// cannot copy into it any more. If a peer is writing it now, the memory is dropped: no program
    /// may use it before that peer has finished.
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

/// Bytes that are copied through private memory at a time. They stay in the first-level cache.
const PAGE: usize = 4096;

/// Passes bytes of a shared buffer to `each`, through private memory.
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

/// Lets `each` fill bytes of a shared buffer, through private memory.
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

/// Returns offsets and lengths of pages of `length` bytes from `from`, within the buffer.
fn pages(
    buffer: &SharedBuffer,
    from: u64,
    length: u64,
) -> impl Iterator<Item = (u64, usize)> + use<> {
    let end = from.saturating_add(length).min(buffer.length());
    let count = move |at| usize::try_from(end - at).unwrap_or(PAGE).min(PAGE);
    (from..end).step_by(PAGE).map(move |at| (at, count(at)))
}

/// Returns the range of `length` bytes from `from`, within the bounds.
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
