//! A descriptor that a front-end handed over, which is closed where nobody waits for it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::reclaim;

/// A descriptor that a front-end handed over, of whatever kind; also the socket that such descriptors wait in
/// until they are received. Closed by [`reclaim`].
#[derive(Debug)]
pub struct Foreign(ManuallyDrop<OwnedFd>);

impl Foreign {
    /// The descriptor itself, for somebody who knows that closing it does not wait, or sees to it.
    #[must_use]
    pub fn into_inner(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so nobody takes the descriptor a second time.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl From<OwnedFd> for Foreign {
    fn from(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: this value is gone after this; `into_inner` does not get here.
        reclaim::close(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}
