//! The unsafe code of this crate: the read-only mapping of the slots' memory, and the system calls of zero-copy sends
//! ([`zero_copy`]).
//!
//! The mapping gives out slices, which the compiler assumes to be constant. They are: only this process writes to the
//! memory, through its file, and the store never writes to a slot that has another user (see [`space::store`]). The user of
//! a slice keeps its slots in use.
#![allow(unsafe_code)]

pub(crate) mod zero_copy;

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};

/// A read-only mapping of a whole sealed file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and nothing is changed through it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file that cannot shrink.
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

    /// Returns these bytes, if they are inside the mapping. The caller keeps their slots in use as long as it uses the bytes.
    pub(crate) fn slice(&self, at: u64, length: usize) -> Option<&[u8]> {
        let at = usize::try_from(at).ok()?;
        if at.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: the range is inside the mapping, which exists as long as `self`. No code writes to these bytes, see above.
        Some(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), length) })
    }

    /// Returns the offset of these bytes, if they are inside the mapping.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let at = bytes.as_ptr().addr().checked_sub(self.base.addr().get())?;
        let inside = at.checked_add(bytes.len())? <= self.length;
        inside.then_some(at as u64)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping; slices of it borrow `self`, so none remains.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_mapping_shows_the_bytes_of_its_file() {
        let file = crate::space_memory::create("test", 8192).unwrap();
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
