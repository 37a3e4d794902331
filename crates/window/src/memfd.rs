//! Files without a name, sealed so that no mapping of them can lose its pages.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::io::Errno;

/// Without these a peer could truncate the file, and the next access would be a `SIGBUS`.
fn fixed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW
}

/// A file of `length` zero bytes whose length is final.
pub(crate) fn create(name: &CStr, length: u64) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = fs::memfd_create(name, flags)?;
    fs::ftruncate(&file, length)?;
    fs::fcntl_add_seals(&file, fixed())?;
    Ok(file)
}

/// No more seals: both sides may write.
pub(crate) fn seal_shared(file: BorrowedFd<'_>) -> Result<(), Errno> {
    fs::fcntl_add_seals(file, SealFlags::SEAL)
}

/// No more seals, and no more writers than the mappings that exist.
pub(crate) fn seal_owned(file: BorrowedFd<'_>) -> Result<(), Errno> {
    fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
}

/// The length of a peer's file, if that is final; `None` when it is not, or it is no memfd.
pub(crate) fn final_length(file: BorrowedFd<'_>) -> Option<u64> {
    let seals = fs::fcntl_get_seals(file).ok()?;
    if !seals.contains(fixed()) {
        return None;
    }
    u64::try_from(fs::fstat(file).ok()?.st_size).ok()
}
