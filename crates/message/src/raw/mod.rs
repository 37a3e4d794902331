//! The crate's only `unsafe` code: memory of the caller that Rust does not know the owner of, and
//! the processor's counter ([`ticks`]).
#![allow(unsafe_code)]

pub(crate) mod ticks;

use std::ptr::NonNull;
use std::slice;

use crate::error::Error;
use crate::limits;

/// A message in pieces, in memory that belongs to somebody else: what a C caller hands over.
#[derive(Debug)]
pub struct Segments(Vec<(NonNull<u8>, usize)>);

// SAFETY: whoever makes it promises that the memory is the request's own until that has ended, on
// whichever thread.
unsafe impl Send for Segments {}

impl Segments {
    /// From addresses and lengths. Pieces of length 0 are left out, wherever they point.
    ///
    /// # Errors
    /// More than [`limits::SEGMENTS`] pieces, or a null address with a length.
    ///
    /// # Safety
    /// Until the request that it is given to has ended or the endpoint is dropped, each piece must
    /// be valid for reads, for a receive also for writes, nobody else may write to it, for a
    /// receive nobody else may read it, and no two pieces of a receive may overlap.
    pub unsafe fn new(pieces: impl IntoIterator<Item = (*mut u8, usize)>) -> Result<Self, Error> {
        let mut list = Vec::new();
        for (count, (address, length)) in pieces.into_iter().enumerate() {
            if count >= limits::SEGMENTS {
                return Err(Error::TooManySegments);
            }
            if length > 0 {
                let address = NonNull::new(address).ok_or(Error::BadRequest)?;
                list.push((address, length));
            }
        }
        Ok(Self(list))
    }

    /// All pieces, to read.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: as `new` was promised.
        let piece = |(at, length): &(NonNull<u8>, usize)| unsafe {
            slice::from_raw_parts(at.as_ptr().cast_const(), *length)
        };
        self.0.iter().map(piece)
    }

    /// All pieces, to write.
    pub(crate) fn pieces_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        // SAFETY: as `new` was promised.
        let piece = |(at, length): &mut (NonNull<u8>, usize)| unsafe {
            slice::from_raw_parts_mut(at.as_ptr(), *length)
        };
        self.0.iter_mut().map(piece)
    }
}
