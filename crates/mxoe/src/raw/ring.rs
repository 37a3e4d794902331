//! Received frames in a ring that the kernel fills (packet(7), `PACKET_RX_RING`, version 2).
//!
//! Each slot is the kernel's or this side's, as the word at its beginning says. The kernel fills slots
//! in their order, and this side gives them back in that order; when the next one is not given back
//! yet, what comes is lost.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::set_option;
use crate::limits::FRAME;

/// Bytes of a slot: the kernel's header and the longest frame.
const SLOT: usize = 4224;

/// Bytes that are in one piece in the kernel. No slot is in two of these.
const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 128;

/// Slots of a block.
const EACH: usize = BLOCK / SLOT;

const SLOTS: usize = EACH * BLOCKS;
const BYTES: usize = BLOCK * BLOCKS;

/// Where a frame begins in its slot, at most: behind `struct tpacket2_hdr` and `struct sockaddr_ll`,
/// so that what follows its MAC header is aligned.
const FRONT: usize = 80;
const _: () = assert!(SLOT >= FRONT + FRAME && SLOT % 16 == 0, "a frame fits");

/// The slot is the kernel's.
const KERNEL: u32 = 0;

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    /// The slot that is filled next.
    next: usize,
}

// SAFETY: the mapping is memory of the process, which nobody else has a pointer to.
unsafe impl Send for Ring {}

impl Ring {
    /// Have the frames of a socket put into a ring, from now on.
    pub(crate) fn make(socket: &OwnedFd) -> io::Result<()> {
        let number = |size: usize| libc::c_uint::try_from(size).map_err(io::Error::other);
        let request = libc::tpacket_req {
            tp_block_size: number(BLOCK)?,
            tp_block_nr: number(BLOCKS)?,
            tp_frame_size: number(SLOT)?,
            tp_frame_nr: number(SLOTS)?,
        };
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(socket, libc::PACKET_VERSION, &version)?;
        set_option(socket, libc::PACKET_RX_RING, &request)
    }

    /// Map the ring that was [made](Self::make) for a socket, and of which no frame was taken.
    pub(crate) fn map(socket: &OwnedFd) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (any, fd) = (ptr::null_mut(), socket.as_fd());
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { mmap(any, BYTES, protection, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, next: 0 })
    }

    /// Give the next frame to `take`, if one has come, and its slot back. What is longer than a frame
    /// is none.
    pub(crate) fn take(&mut self, take: impl FnOnce(&[u8])) -> bool {
        let place = self.next / EACH * BLOCK + self.next % EACH * SLOT;
        // SAFETY: `next` is below `SLOTS`, so all of the slot lies within the mapping.
        let slot = unsafe { self.base.add(place) };
        // SAFETY: slots are aligned, and this word of them is used as an atomic alone.
        let status = unsafe { AtomicU32::from_ptr(slot.cast().as_ptr()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the slot is this side's until it is given back, below, and the kernel has put a
        // header in; the borrow of the frame ends before that.
        let frame = unsafe {
            let header = slot.cast::<libc::tpacket2_hdr>().read();
            let (from, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
            let whole = header.tp_len == header.tp_snaplen && length <= FRAME && from <= FRONT;
            whole.then(|| slice::from_raw_parts(slot.add(from).as_ptr(), length))
        };
        if let Some(frame) = frame {
            take(frame);
        }
        status.store(KERNEL, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no frame is borrowed any more.
        let _unmapped = unsafe { munmap(self.base.as_ptr().cast(), BYTES) };
    }
}
