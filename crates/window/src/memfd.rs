//! Files that are shared: without a name, and sealed so that no mapping of them can lose its pages.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::io::Errno;

/// What statfs(2) calls sysfs.
const SYSFS: fs::FsWord = 0x6265_6572;

/// What it calls hugetlbfs, on which memfds with huge pages are.
const HUGETLBFS: fs::FsWord = 0x9584_58f6;

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

/// The length of a peer's file, if that is final: a sealed memfd's, or a device's. `None` when it
/// is anything else.
pub(crate) fn final_length(file: BorrowedFd<'_>) -> Option<u64> {
    let sealed = fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(fixed()));
    let of = fs::fstatfs(file).ok()?.f_type;
    // Files of sysfs are as long as the kernel says; a BAR is mapped through one. A huge page may be missing
    // when it is touched, whatever the length.
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
    fn only_a_length_that_nobody_can_change_is_final() {
        let ours = create(c"x", 8192).unwrap();
        assert_eq!(final_length(ours.as_fd()), Some(8192));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = fs::memfd_create(c"x", flags).unwrap();
        assert_eq!(final_length(open.as_fd()), None);
        // Sealed as well, but its pages may be missing. No page is needed to make one.
        let huge = fs::memfd_create(c"x", flags | MemfdFlags::HUGETLB).unwrap();
        fs::fcntl_add_seals(&huge, fixed()).unwrap();
        assert_eq!(final_length(huge.as_fd()), None);
    }
}
