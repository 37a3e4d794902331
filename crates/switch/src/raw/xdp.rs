//! The memory that an AF_XDP socket shares with the kernel (Documentation/networking/af_xdp.rst): rings of
//! descriptors, and the UMEM with the frames.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::control::{XDP_CHUNK, XDP_CHUNKS, XDP_ENTRIES, XdpRing};

/// An entry of the receive and transmit rings: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// The frame's offset in the UMEM.
    pub(crate) address: u64,
    /// The frame's length in bytes.
    pub(crate) length: u32,
    pub(crate) options: u32,
}

/// Shared memory.
#[derive(Debug)]
struct Area {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is memory of the process, usable from any thread.
unsafe impl Send for Area {}

impl Area {
    fn map(fd: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // syscalls: mmap munmap
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other mapping.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                access,
                MapFlags::SHARED,
                fd,
                offset,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, length })
    }

    /// Returns the address of `bytes` bytes at `offset`, if they are inside the area.
    fn place(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: the place is inside the mapping.
        (end <= self.length).then(|| unsafe { self.start.add(offset) })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping; the owner of the area drops its pointers with it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A ring of entries with a producer index and a consumer index, which are free running and wrap.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    area: Area,
    producer: usize,
    consumer: usize,
    entries: usize,
    kind: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps the ring at a page offset of the socket.
    ///
    /// # Errors
    /// The kernel refuses, or the layout is invalid.
    pub(crate) fn map(socket: BorrowedFd<'_>, offset: u64, layout: XdpRing) -> Result<Self, Errno> {
        let [producer, consumer, entries] = layout.0.map(|offset| offset as usize);
        let aligned = producer % 4 == 0 && consumer % 4 == 0 && entries % align_of::<T>() == 0;
        let bytes = XDP_ENTRIES as usize * size_of::<T>();
        let length = entries.checked_add(bytes).filter(|_| aligned);
        let area = Area::map(socket, offset, length.ok_or(Errno::INVAL)?)?;
        let inside = [producer, consumer].iter().all(|at| at + 4 <= entries);
        inside.then_some(()).ok_or(Errno::INVAL)?;
        Ok(Self {
            area,
            producer,
            consumer,
            entries,
            kind: PhantomData,
        })
    }

    fn index(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `map` has checked that the index is inside the mapping and aligned; the mapping exists
        // as long as `self`. The kernel, too, accesses the index atomically.
        unsafe { self.area.start.add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        let slot = (index % XDP_ENTRIES) as usize;
        // SAFETY: the mapping has `XDP_ENTRIES` entries from there, as `map` has checked.
        unsafe { self.area.start.add(self.entries).cast::<T>().add(slot) }
    }

    /// Takes the next entry that the kernel has added.
    pub(crate) fn take(&mut self) -> Option<T> {
        let at = self.index(self.consumer).load(Ordering::Relaxed);
        if self.index(self.producer).load(Ordering::Acquire) == at {
            return None;
        }
        // SAFETY: the address is that of an entry, and any bytes are valid numbers.
        let entry = unsafe { self.entry(at).read_volatile() };
        let next = at.wrapping_add(1);
        self.index(self.consumer).store(next, Ordering::Release);
        Some(entry)
    }

    /// Adds an entry for the kernel; returns false when there is no room.
    pub(crate) fn put(&mut self, entry: T) -> bool {
        let at = self.index(self.producer).load(Ordering::Relaxed);
        let taken = self.index(self.consumer).load(Ordering::Acquire);
        if at.wrapping_sub(taken) >= XDP_ENTRIES {
            return false;
        }
        // SAFETY: the address is that of an entry, which the kernel does not read before the producer index
        // advances.
        unsafe { self.entry(at).write_volatile(entry) };
        let next = at.wrapping_add(1);
        self.index(self.producer).store(next, Ordering::Release);
        true
    }
}

/// The UMEM: frames in chunks. A chunk belongs to the side that has its address: the kernel, the receiving or
/// the sending side of the switch.
#[derive(Debug)]
pub(crate) struct Frames(Area);

impl Frames {
    /// Maps the whole UMEM.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn map(memory: BorrowedFd<'_>) -> Result<Self, Errno> {
        let bytes = XDP_CHUNKS as usize * XDP_CHUNK as usize;
        Area::map(memory, 0, bytes).map(Self)
    }

    /// Copies a frame to private memory; returns its length, or `None` if it is outside the UMEM or too long.
    pub(crate) fn read(&self, descriptor: Descriptor, to: &mut [u8]) -> Option<usize> {
        let length = descriptor.length as usize;
        let from = usize::try_from(descriptor.address).ok()?;
        let from = self.0.place(from, length)?;
        let to = to.get_mut(..length)?;
        // SAFETY: both sides have that many bytes and do not overlap: one is private memory.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), length) };
        Some(length)
    }

    /// Copies bytes into the chunk at `address`, beginning at `offset`; returns whether they fit.
    pub(crate) fn write(&self, address: u64, offset: usize, bytes: &[u8]) -> bool {
        let end = offset.checked_add(bytes.len());
        let place = usize::try_from(address)
            .ok()
            .filter(|_| end.is_some_and(|end| end <= XDP_CHUNK as usize))
            .and_then(|address| self.0.place(address.checked_add(offset)?, bytes.len()));
        let Some(to) = place else {
            return false;
        };
        // SAFETY: both sides have that many bytes and do not overlap: one is private memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        true
    }
}
