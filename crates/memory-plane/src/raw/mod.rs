//! The slots' memory, mapped for reading; and what the kernel says of memory that it was lent ([`zero_copy`]).
//!
//! Slots are lent as slices, which the compiler takes to be constant. They are: this process alone writes to
//! the memory, through its file, and never into a slot that anybody else still holds (see
//! [`space::store`]). Who is lent some holds the slots.
#![allow(unsafe_code)]

pub(crate) mod zero_copy;

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};

/// A whole sealed file, mapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: memory of the process, of which nothing is changed through this.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map a file that cannot become shorter.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let length = usize::try_from(file.metadata()?.len()).map_err(too_large)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), length, ProtFlags::READ, flags, file, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    /// These bytes, if they lie inside; while they are used, the caller holds the slots they are in.
    pub(crate) fn slice(&self, at: u64, length: usize) -> Option<&[u8]> {
        let at = usize::try_from(at).ok()?;
        if at.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: inside the mapping, which lives as long as `self`. Nobody writes there, see above.
        Some(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), length) })
    }

    /// Where these bytes are, if they lie inside.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let at = bytes.as_ptr().addr().checked_sub(self.base.addr().get())?;
        let inside = at.checked_add(bytes.len())? <= self.length;
        inside.then_some(at as u64)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; slices of it borrow `self`, so none is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_mapping_shows_the_bytes_of_its_file() {
        let file = crate::ram::make("test", 8192).unwrap();
        file.write_all_at(b"here", 4090).unwrap();
        let mapping = Mapping::new(&file).unwrap();
        assert_eq!(mapping.slice(4090, 4), Some(&b"here"[..]));
        assert_eq!(mapping.slice(8191, 1), Some(&[0][..]));
        for (at, length) in [(8192, 1), (0, 8193), (u64::MAX, 1), (1, usize::MAX)] {
            assert_eq!(mapping.slice(at, length), None);
        }
        assert_eq!(
            mapping.offset_of(mapping.slice(4090, 4).unwrap()),
            Some(4090)
        );
        assert_eq!(
            mapping.offset_of(mapping.slice(8192, 0).unwrap()),
            Some(8192)
        );
        assert_eq!(mapping.offset_of(&[0; 4]), None);
    }
}
