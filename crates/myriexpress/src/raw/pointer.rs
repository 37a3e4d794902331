//! Pointers from the program.
//!
//! The documentation of each MX function requires that a pointer is null or points to a value of
//! its type, which stays valid during the call. Every `unsafe` block here relies on that. Rust code
//! cannot make a value of these types.

use std::ffi::{CStr, c_char, c_void};
use std::slice;

use message::limits::SHORT_WORDS;
use message::{Memory, Segments, Short};

use crate::abi::{Parameter, Segment};
use crate::codes::{Result, Return};

/// A pointer to a value that the call writes, or reads and writes, or to several that it writes.
#[repr(transparent)]
pub(super) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the value, unless the pointer is null.
    #[inline(always)]
    pub(super) fn put(&self, value: T) {
        self.put_at(0, value);
    }

    /// Writes one of several values, by its number from 0, unless the pointer is null. The number must be below
    /// the length that the program gave.
    #[inline(always)]
    pub(super) fn put_at(&self, number: u32, value: T) {
        if !self.is_null() {
            // SAFETY: the pointer is not null, so it points to that many T of the program, see above.
            unsafe { self.0.add(number as usize).write(value) }
        }
    }

    /// Reads the value.
    pub(super) fn get(&self) -> Option<T> {
        // SAFETY: as above, if it is not null.
        unsafe { self.0.as_ref() }.copied()
    }
}

/// A pointer to a buffer, whose length is another argument.
#[repr(transparent)]
pub(super) struct Buffer(*mut c_void);

impl Buffer {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes bytes; the caller has checked that they fit.
    pub(super) fn put(&self, bytes: &[u8]) {
        if !self.is_null() {
            let to = self.0.cast::<u8>();
            // SAFETY: the pointer points to at least as many bytes of the program, which nothing
            // else accesses during the call, see above.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
        }
    }

    /// Reads `length` bytes.
    pub(super) fn get(&self, length: u32) -> Option<Vec<u8>> {
        if self.is_null() {
            return None;
        }
        let length = usize::try_from(length).ok()?;
        // SAFETY: the pointer points to that many bytes of the program, see above.
        Some(unsafe { slice::from_raw_parts(self.0.cast::<u8>(), length) }.to_vec())
    }
}

impl Buffer {
    /// Returns the address, which is not accessed.
    pub(super) fn address(&self) -> usize {
        self.0.addr()
    }

    /// Returns `length` bytes, which the call reads.
    pub(super) fn bytes(&self, length: u64) -> Option<&[u8]> {
        let length = usize::try_from(length).ok()?;
        match (length, self.is_null()) {
            (0, _) => Some(&[]),
            (_, true) => None,
            // SAFETY: the pointer points to that many bytes of the program, which nothing writes
            // during the call, see above.
            (_, false) => Some(unsafe { slice::from_raw_parts(self.0.cast(), length) }),
        }
    }

    /// Returns `length` bytes, which the call writes.
    pub(super) fn bytes_mut(&mut self, length: u64) -> Option<&mut [u8]> {
        let length = usize::try_from(length).ok()?;
        match (length, self.is_null()) {
            (0, _) => Some(&mut []),
            (_, true) => None,
            // SAFETY: the pointer points to that many bytes of the program, which nothing else
            // accesses during the call, see above.
            (_, false) => Some(unsafe { slice::from_raw_parts_mut(self.0.cast(), length) }),
        }
    }
}

/// A pointer to a C string.
#[repr(transparent)]
pub(super) struct Text(*const c_char);

impl Text {
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the pointer points to a string with a NUL, see above.
        Some(unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec())
    }
}

/// A pointer to a list, whose length is another argument.
#[repr(transparent)]
pub(super) struct List<T>(*const T);

impl<T: Copy> List<T> {
    /// Returns the list, or `None` if it is missing.
    fn get(&self, count: u32) -> Option<&[T]> {
        let count = usize::try_from(count).ok()?;
        match (count, self.0.is_null()) {
            (0, _) => Some(&[]),
            (_, true) => None,
            // SAFETY: the pointer points to that many values of the program, see above.
            (_, false) => Some(unsafe { slice::from_raw_parts(self.0, count) }),
        }
    }
}

impl List<Parameter> {
    pub(super) fn parameters(&self, count: u32) -> Result<&[Parameter]> {
        self.get(count).ok_or(Return::BAD_PARAM_LIST)
    }
}

impl List<Segment> {
    /// Returns the list, which is not checked.
    #[inline(always)]
    pub(super) fn segments(&self, count: u32) -> Result<&[Segment]> {
        if count as usize > message::limits::SEGMENTS {
            return Err(Return::BAD_SEG_CNT);
        }
        self.get(count).ok_or(Return::BAD_SEG_LIST)
    }

    /// Returns the memory of a message.
    pub(super) fn memory(&self, count: u32) -> Result<Memory> {
        let list = self.segments(count)?;
        check(list)?;
        if list.is_empty() {
            return Ok(Memory::Empty);
        }
        let pieces = list
            .iter()
            .map(|segment| (segment.start.cast(), segment.length as usize));
        // SAFETY: MX requires of `mx_isend` and `mx_irecv` that a segment is memory of the program,
        // which it does not access until the request has completed.
        Ok(Memory::Segments(unsafe { Segments::new(pieces) }?))
    }
}

impl List<u64> {
    /// Returns the words and the length of a short message.
    #[inline(always)]
    pub(super) fn short_message(&self, length: u32) -> Result<Short<'_>> {
        let length = length as usize;
        if length > SHORT_WORDS * 8 || self.0.is_null() {
            return Err(Return::BAD_SEG_LIST);
        }
        // SAFETY: the pointer is not null, so it points to as many words of the program, see above.
        Ok((unsafe { &*self.0.cast() }, length))
    }
}

/// Checks that segments may describe a message.
#[inline(always)]
fn check(list: &[Segment]) -> Result {
    let total: u64 = list.iter().map(|segment| u64::from(segment.length)).sum();
    if total > u64::from(u32::MAX) {
        return Err(Return::BAD_SEG_LIST);
    }
    let missing = |segment: &Segment| segment.start.is_null() && segment.length > 0;
    match list.iter().any(missing) {
        true => Err(Return::BAD_SEG_MEM),
        false => Ok(()),
    }
}

/// Returns the bytes of a message that is sent before the call returns. Where the compiler knows the number of segments, a
/// short message needs no loop over them.
#[inline(always)]
pub(super) fn pieces<const COUNT: usize>(list: &[Segment; COUNT]) -> Result<[&[u8]; COUNT]> {
    check(list)?;
    Ok(list.each_ref().map(bytes))
}

/// The same for any number of segments.
pub(super) fn many_pieces(list: &[Segment]) -> Result<Vec<&[u8]>> {
    check(list)?;
    Ok(list.iter().map(bytes).collect())
}

/// Returns the bytes of a segment that [`check`] accepted.
#[inline(always)]
fn bytes(segment: &Segment) -> &[u8] {
    if segment.length == 0 {
        return &[];
    }
    // SAFETY: `mx_inject` requires that a segment is memory of the program, which nothing writes during
    // the call, and `check` found that it is not null.
    unsafe { slice::from_raw_parts(segment.start.cast(), segment.length as usize) }
}
