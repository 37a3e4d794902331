//! The receive ring, which the kernel fills (packet(7), `PACKET_RX_RING`, version 2).
//!
//! The status word at the start of each slot says whether the slot belongs to the kernel or to this
//! process. Both use the slots in ring order: the kernel fills them, and this process returns them.
//! When the kernel reaches a slot that it does not own, it drops frames.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::set_option;
use crate::limits::MAX_FRAME;

/// Bytes of a slot, which holds the kernel's header and the longest frame.
const SLOT: usize = 8320;

/// Bytes that are contiguous in the kernel. No slot crosses the boundary of a block.
const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 256;

/// Slots of a block.
const SLOTS_PER_BLOCK: usize = BLOCK / SLOT;

const SLOTS: usize = SLOTS_PER_BLOCK * BLOCKS;
const BYTES: usize = BLOCK * BLOCKS;

/// Largest offset of a frame in its slot: the frame follows `struct tpacket2_hdr` and `struct
/// sockaddr_ll`, at an offset that aligns what follows its MAC header.
const MAX_FRAME_OFFSET: usize = 80;
const _: () = assert!(
    SLOT >= MAX_FRAME_OFFSET + MAX_FRAME && SLOT % 16 == 0,
    "a frame fits"
);

/// `TP_STATUS_KERNEL`: the slot belongs to the kernel.
const TP_STATUS_KERNEL: u32 = 0;

/// A mapped receive ring.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    /// The slot that the kernel fills next.
    next: usize,
}

// SAFETY: the mapping belongs to the process, and only this value has a pointer to it.
unsafe impl Send for Ring {}

impl Ring {
    /// Sets up the ring of a socket. From now on, the kernel puts received frames into it.
    pub(crate) fn create(socket: &OwnedFd) -> io::Result<()> {
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

    /// Maps the ring that [`create`](Self::create) set up for a socket, of which no frame was taken.
    pub(crate) fn map(socket: &OwnedFd) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (any, fd) = (ptr::null_mut(), socket.as_fd());
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other mapping.
        let base = unsafe { mmap(any, BYTES, protection, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, next: 0 })
    }

    /// Passes the next frame to `take` if one has arrived, and returns its slot to the kernel.
    /// Frames that are truncated or longer than [`MAX_FRAME`] are skipped.
    pub(crate) fn take(&mut self, take: impl FnOnce(&[u8])) -> bool {
        let offset = self.next / SLOTS_PER_BLOCK * BLOCK + self.next % SLOTS_PER_BLOCK * SLOT;
        // SAFETY: `next` is below `SLOTS`, so the whole slot lies within the mapping.
        let slot = unsafe { self.base.add(offset) };
        // SAFETY: slots are aligned, and this process accesses the word only as an atomic.
        let status = unsafe { AtomicU32::from_ptr(slot.cast().as_ptr()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the slot belongs to this process until the store below, and the kernel has
        // written its header. The borrow of the frame ends before that store.
        let frame = unsafe {
            let header = slot.cast::<libc::tpacket2_hdr>().read();
            let (from, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
            let whole = header.tp_len == header.tp_snaplen
                && length <= MAX_FRAME
                && from <= MAX_FRAME_OFFSET;
            whole.then(|| slice::from_raw_parts(slot.add(from).as_ptr(), length))
        };
        if let Some(frame) = frame {
            take(frame);
        }
        status.store(TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the ring was mapped with this length, and no frame is borrowed any more.
        let _unmapped = unsafe { munmap(self.base.as_ptr().cast(), BYTES) };
    }
}
