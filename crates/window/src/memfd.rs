//! Shared files: memfds, sealed so that no mapping of them can lose its pages.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::io::Errno;

/// The file system type of sysfs in statfs(2).
const SYSFS: fs::FsWord = 0x6265_6572;

/// The file system type of hugetlbfs, which memfds with huge pages are on.
const HUGETLBFS: fs::FsWord = 0x9584_58f6;

/// The seals that fix the length. Without them a peer could truncate the file, and the next access
/// would raise `SIGBUS`.
fn fixed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW
}

/// Creates a file of `length` zero bytes whose length is final.
pub(crate) fn create(name: &CStr, length: u64) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = fs::memfd_create(name, flags)?;
    fs::ftruncate(&file, length)?;
    fs::fcntl_add_seals(&file, fixed())?;
    Ok(file)
}

/// Forbids further seals, so that both sides may write.
pub(crate) fn seal_shared(file: BorrowedFd<'_>) -> Result<(), Errno> {
    fs::fcntl_add_seals(file, SealFlags::SEAL)
}

/// Forbids further seals and further writable mappings: only the mappings that exist can write.
pub(crate) fn seal_owned(file: BorrowedFd<'_>) -> Result<(), Errno> {
    fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
}

/// Returns the length of a peer's file if it is final: that of a sealed memfd or of a device.
/// `None` for any other file.
pub(crate) fn final_length(file: BorrowedFd<'_>) -> Option<u64> {
    let sealed = fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(fixed()));
    let of = fs::fstatfs(file).ok()?.f_type;
    // The kernel fixes the length of sysfs files; a BAR is mapped through one. On hugetlbfs, a page
    // may be missing when it is touched, whatever the length, so it is refused.
    if of != SYSFS && (!sealed || of == HUGETLBFS) {
        return None;
    }
    u64::try_from(fs::fstat(file).ok()?.st_size).ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn only_a_length_that_cannot_change_is_final() {
        let ours = create(c"x", 8192).unwrap();
        assert_eq!(final_length(ours.as_fd()), Some(8192));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = fs::memfd_create(c"x", flags).unwrap();
        assert_eq!(final_length(open.as_fd()), None);
        // Sealed as well, but a huge page may be missing on access. Creating the file needs no
        // page.
        let huge = fs::memfd_create(c"x", flags | MemfdFlags::HUGETLB).unwrap();
        fs::fcntl_add_seals(&huge, fixed()).unwrap();
        assert_eq!(final_length(huge.as_fd()), None);
    }
}
