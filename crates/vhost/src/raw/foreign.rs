//! A file descriptor from a front-end, which the reclaim thread closes.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::reclaim;

/// A file descriptor of any kind that a front-end sent, or the socket that contains such descriptors until
/// they are received. Its close may block, so [`reclaim`] closes it in a background thread.
#[derive(Debug)]
pub struct ForeignFd(ManuallyDrop<OwnedFd>);

impl ForeignFd {
    /// Returns the descriptor itself. The caller knows that closing it does not block, or passes it to
    /// [`reclaim`].
    #[must_use]
    pub fn into_inner(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the descriptor is taken only once.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl From<OwnedFd> for ForeignFd {
    fn from(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }
}

impl AsFd for ForeignFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for ForeignFd {
    fn drop(&mut self) {
        // SAFETY: the value is being dropped, so the descriptor is taken only once; `into_inner`
        // prevents the drop.
        reclaim::close(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}
