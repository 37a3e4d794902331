//! Pointers of the program, and what may be done with them.
//!
//! C gives no more than its word for them, which each function of MX asks for: a pointer is null,
//! or leads to what its type says, and that stays valid for the call. That word is what every
//! block here rests on. No Rust code can make one of them.

use std::ffi::{CStr, c_char, c_void};
use std::slice;

use message::{Memory, Segments};

use crate::abi::{Parameter, Segment};
use crate::codes::{Result, Return};

/// To a value that is written, or read and written.
#[repr(transparent)]
pub(super) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Write it, unless the program does not want it.
    pub(super) fn put(&self, value: T) {
        if !self.is_null() {
            // SAFETY: not null, so it leads to a T of the program's, see above.
            unsafe { self.0.write(value) }
        }
    }

    /// Read it.
    pub(super) fn get(&self) -> Option<T> {
        // SAFETY: as above, if it is not null.
        unsafe { self.0.as_ref() }.copied()
    }
}

/// To a buffer of a length that comes with it.
#[repr(transparent)]
pub(super) struct Room(*mut c_void);

impl Room {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Write bytes to it; the caller has compared the lengths.
    pub(super) fn put(&self, bytes: &[u8]) {
        if !self.is_null() {
            let to = self.0.cast::<u8>();
            // SAFETY: it leads to at least as many bytes of the program's, which nobody else uses
            // during the call, see above.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
        }
    }

    /// Read `length` bytes.
    pub(super) fn get(&self, length: u32) -> Option<Vec<u8>> {
        if self.is_null() {
            return None;
        }
        let length = usize::try_from(length).ok()?;
        // SAFETY: it leads to that many bytes of the program's, see above.
        Some(unsafe { slice::from_raw_parts(self.0.cast::<u8>(), length) }.to_vec())
    }
}

/// To a text.
#[repr(transparent)]
pub(super) struct Text(*const c_char);

impl Text {
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: it leads to a text with a NUL, see above.
        Some(unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec())
    }
}

/// To a list of a length that comes with it.
#[repr(transparent)]
pub(super) struct List<T>(*const T);

impl<T: Copy> List<T> {
    /// `None` for a list that is missing.
    fn get(&self, count: u32) -> Option<&[T]> {
        let count = usize::try_from(count).ok()?;
        match (count, self.0.is_null()) {
            (0, _) => Some(&[]),
            (_, true) => None,
            // SAFETY: it leads to that many values of the program's, see above.
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
    /// The memory of a message.
    pub(super) fn memory(&self, count: u32) -> Result<Memory> {
        if count as usize > message::limits::SEGMENTS {
            return Err(Return::BAD_SEG_CNT);
        }
        let list = self.get(count).ok_or(Return::BAD_SEG_LIST)?;
        if list.is_empty() {
            return Ok(Memory::Empty);
        }
        let total: u64 = list.iter().map(|segment| u64::from(segment.length)).sum();
        if total > u64::from(u32::MAX) {
            return Err(Return::BAD_SEG_LIST);
        }
        let missing = |segment: &Segment| segment.start.is_null() && segment.length > 0;
        if list.iter().any(missing) {
            return Err(Return::BAD_SEG_MEM);
        }
        let pieces = list
            .iter()
            .map(|segment| (segment.start.cast(), segment.length as usize));
        // SAFETY: the program promises that a segment is its memory, and that it leaves it alone
        // until the request has ended: what MX asks of `mx_isend` and `mx_irecv`.
        Ok(Memory::Segments(unsafe { Segments::new(pieces) }?))
    }
}
