//! The identity of a heap: its region and its seat.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// What tells a seat of a region from all others, by whichever descriptor the region was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    region: (u64, u64),
    seat: u32,
}

impl Home {
    /// Of a seat of the region that this descriptor is of.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(region: BorrowedFd<'_>, seat: u32) -> Result<Self, Errno> {
        let of = rustix::fs::fstat(region)?;
        Ok(Self {
            region: (of.st_dev, of.st_ino),
            seat,
        })
    }
}
