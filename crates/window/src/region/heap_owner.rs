//! The identity of a heap: its region and its member.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// Identifies a member's heap among those of all regions, by whichever descriptor the region was
/// opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapOwner {
    region: (u64, u64),
    member: u32,
}

impl HeapOwner {
    /// Identifies the heap of a member of the region behind this descriptor.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(region: BorrowedFd<'_>, member: u32) -> Result<Self, Errno> {
        let of = rustix::fs::fstat(region)?;
        Ok(Self {
            region: (of.st_dev, of.st_ino),
            member,
        })
    }
}
