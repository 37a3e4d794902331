//! The crate's only `unsafe` code: memory of the caller whose owner Rust does not know.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::slice;

use crate::error::Error;
use crate::limits;

/// A message in segments of memory that the caller owns: what a C caller passes.
#[derive(Debug)]
pub struct Segments(Vec<(NonNull<u8>, usize)>);

// SAFETY: the caller of `new` promises that only the request uses the memory until it has ended, on
// whichever thread.
unsafe impl Send for Segments {}

impl Segments {
    /// Creates segments from addresses and lengths. Segments of length 0 are dropped, wherever they
    /// point.
    ///
    /// # Errors
    /// More than [`limits::SEGMENTS`] pieces, or a null address with a length.
    ///
    /// # Safety
    /// Until the request that owns it has ended or the endpoint is dropped, each segment must be
    /// valid for reads, and for a receive also for writes; nothing else may write it, and for a
    /// receive nothing else may read it; and no two segments of a receive may overlap.
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

    /// Returns all segments, to read.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: as `new` was promised.
        let piece = |(at, length): &(NonNull<u8>, usize)| unsafe {
            slice::from_raw_parts(at.as_ptr().cast_const(), *length)
        };
        self.0.iter().map(piece)
    }

    /// Returns all segments, to write.
    pub(crate) fn pieces_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        // SAFETY: as `new` was promised.
        let piece = |(at, length): &mut (NonNull<u8>, usize)| unsafe {
            slice::from_raw_parts_mut(at.as_ptr(), *length)
        };
        self.0.iter_mut().map(piece)
    }
}
