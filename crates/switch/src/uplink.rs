//! The way out of a network: a tap with a virtio-net header in front of each frame.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use vhost::limits::MAX_FRAME;
use vhost::net_header::NetHeader;

use crate::frame::{ETHERNET, Head, Rest};

/// An open tap, in non-blocking mode.
#[derive(Debug)]
pub struct Uplink {
    tap: OwnedFd,
}

/// Bytes to read a frame into: header, frame.
pub const BUFFER: usize = NetHeader::SIZE + MAX_FRAME as usize;

impl Uplink {
    /// Use a tap opened with `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`, a header of 12 bytes in
    /// little-endian order.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn new(tap: OwnedFd) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&tap, true)?;
        Ok(Self { tap })
    }

    /// Send one frame. Segments and checksums are left to the kernel.
    ///
    /// # Errors
    /// The kernel's queue is full, the interface is down, or the frame is refused.
    pub fn send(&self, head: &Head, rest: &Rest<'_, '_>) -> Result<(), Errno> {
        let mut prefix = [0; NetHeader::SIZE + ETHERNET];
        let (header, ethernet) = prefix.split_at_mut(NetHeader::SIZE);
        header.copy_from_slice(&head.header.to_bytes());
        ethernet.copy_from_slice(&head.ethernet);
        match rest {
            Rest::Guest(cursor) => cursor.write_to(self.tap.as_fd(), &prefix)?,
            Rest::Private(bytes) => {
                let pieces = [std::io::IoSlice::new(&prefix), std::io::IoSlice::new(bytes)];
                rustix::io::writev(&self.tap, &pieces)?
            }
        };
        Ok(())
    }

    /// Receive one frame: its header and its bytes. `Ok(None)` when there is none for now.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn receive<'b>(
        &self,
        buffer: &'b mut [u8],
    ) -> Result<Option<(NetHeader, &'b [u8])>, Errno> {
        let got = match rustix::io::read(&self.tap, &mut *buffer) {
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (header, frame) = buffer
            .get(..got)
            .and_then(|bytes| bytes.split_first_chunk::<{ NetHeader::SIZE }>())
            .ok_or(Errno::IO)?;
        Ok(Some((NetHeader::from_bytes(*header), frame)))
    }
}

impl AsFd for Uplink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}
