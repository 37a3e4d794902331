//! Copies payload between the spans of two chains, or between a chain and private memory. No other
//! code in the workspace copies payload into or out of guest memory.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::frame_start::FrameStart;
use crate::net_header::NetHeader;
use crate::raw::{self, Span};

/// A position in a list of spans, which advances as bytes are read, written or copied.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a, 'm> {
    current: Option<Span<'m>>,
    rest: &'a [Span<'m>],
}

impl<'a, 'm> Cursor<'a, 'm> {
    /// Creates a cursor at the first byte.
    #[inline(always)]
    #[must_use]
    pub fn new(spans: &'a [Span<'m>]) -> Self {
        match spans.split_first() {
            Some((first, rest)) => Self {
                current: Some(*first),
                rest,
            },
            None => Self {
                current: None,
                rest: spans,
            },
        }
    }

    /// Returns the rest of the span that the cursor is in; `None` at the end.
    #[inline(always)]
    fn here(&mut self) -> Option<Span<'m>> {
        loop {
            let current = self.current?;
            if current.length() > 0 {
                return Some(current);
            }
            *self = Self::new(self.rest);
        }
    }

    #[inline(always)]
    fn advance(&mut self, count: u32) {
        self.current = self.current.map(|current| current.skip(count));
    }

    /// Returns all bytes from the cursor on, if they lie in one span.
    #[inline(always)]
    #[must_use]
    pub fn single(&self) -> Option<Span<'m>> {
        self.current.filter(|_| self.rest.is_empty())
    }

    /// Advances by `count` bytes, at most to the end.
    #[inline(always)]
    pub fn skip(&mut self, mut count: u32) {
        while count > 0 {
            let Some(span) = self.here() else { return };
            let step = span.length().min(count);
            self.advance(step);
            count -= step;
        }
    }

    /// Copies bytes to private memory until `to` is full or the end is reached; returns the count.
    #[inline(always)]
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(room) = to.get_mut(done..).filter(|room| !room.is_empty()) {
            let Some(span) = self.here() else { break };
            let count = span.read(room);
            done += count;
            self.advance(u32::try_from(count).unwrap_or(u32::MAX));
        }
        done
    }

    /// Reads the start of a frame; returns `None` if fewer bytes are left.
    #[inline(always)]
    pub fn read_start(&mut self) -> Option<FrameStart> {
        if let Some(start) = self.current.and_then(|current| current.read_start()) {
            self.advance(FrameStart::BYTES);
            return Some(start);
        }
        let mut bytes = [0; FrameStart::SIZE];
        (self.read(&mut bytes) == bytes.len()).then(|| FrameStart::from_bytes(&bytes))
    }

    /// Reads the start of a frame whose network header cannot request an offload. Does not touch
    /// the header, which often has a cache line of its own.
    #[inline(always)]
    pub fn read_ethernet(&mut self) -> Option<FrameStart> {
        if let Some(start) = self.current.and_then(|current| current.read_ethernet()) {
            self.advance(FrameStart::BYTES);
            return Some(start);
        }
        let start = self.read_start()?;
        Some(start.with_header(NetHeader::NONE))
    }

    /// Writes the start of a frame if it fits into the span that the cursor is in; returns whether
    /// it did.
    #[inline(always)]
    #[must_use]
    pub fn write_start(&mut self, start: &FrameStart) -> bool {
        let written = self
            .current
            .is_some_and(|current| current.write_start(start));
        if written {
            self.advance(FrameStart::BYTES);
        }
        written
    }

    /// Copies private bytes to guest memory until all are written or the end is reached; returns
    /// the count.
    #[inline(always)]
    pub fn write(&mut self, from: &[u8]) -> usize {
        let mut done = 0;
        while let Some(left) = from.get(done..).filter(|left| !left.is_empty()) {
            let Some(span) = self.here() else { break };
            let count = span.write(left);
            done += count;
            self.advance(u32::try_from(count).unwrap_or(u32::MAX));
        }
        done
    }

    /// Copies up to `most` bytes to another cursor, until either end is reached; returns the count.
    #[inline(always)]
    pub fn copy_to(&mut self, to: &mut Cursor<'_, '_>, most: u32) -> u32 {
        let mut left = most;
        while left > 0 {
            let (Some(source), Some(target)) = (self.here(), to.here()) else {
                break;
            };
            let count = source.first(left).copy_to(&target);
            self.advance(count);
            to.advance(count);
            left -= count;
        }
        most - left
    }

    /// Writes pieces of private bytes, and then all bytes from the cursor on, to a descriptor in one
    /// call; returns the number of bytes written.
    ///
    /// # Errors
    /// `TOOBIG` when the bytes lie in too many pieces, or the error of the system call.
    pub fn write_to(self, fd: BorrowedFd<'_>, prefix: &[&[u8]]) -> Result<usize, Errno> {
        let spans = self.current.into_iter().chain(self.rest.iter().copied());
        raw::io::write_vectored(fd, prefix, spans)
    }
}
