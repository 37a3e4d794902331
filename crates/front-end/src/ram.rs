//! A guest's memory. This module contains all `unsafe` code of the crate.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// The difference between the front-end's virtual address of a byte and its guest-physical address.
pub const USER_BASE: u64 = 0x7f00_0000_0000;

/// A memory region, as vhost-user describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Guest-physical address.
    pub guest: u64,
    /// Size in bytes.
    pub size: u64,
    /// Address in the front-end.
    pub user: u64,
    /// Offset into the memfd.
    pub offset: u64,
}

impl Region {
    /// Returns the 32 bytes that describe the region in a message.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        [self.guest, self.size, self.user, self.offset]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect()
    }
}

/// Guest memory: one memfd, mapped into this process and described to the back-end as regions.
#[derive(Debug)]
pub struct Ram {
    fd: OwnedFd,
    base: NonNull<u8>,
    length: usize,
    regions: Vec<Region>,
}

// SAFETY: the mapping belongs to the process, and the code accesses it through raw pointers and atomics
// only.
unsafe impl Send for Ram {}
// SAFETY: as above; guest memory is meant for concurrent access.
unsafe impl Sync for Ram {}

impl Ram {
    /// Creates a memory of `size` bytes from guest-physical address 0, in one region.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self::in_regions(size, 1)
    }

    /// Creates a memory from guest-physical address 0 in `count` adjacent regions of `size` bytes.
    /// Their order in the memfd is reversed, so that adjacent regions are not adjacent in the file.
    #[must_use]
    pub fn in_regions(size: u64, count: u64) -> Self {
        let regions = (0..count).map(|index| Region {
            guest: index * size,
            size,
            user: USER_BASE + index * size,
            offset: (count - 1 - index) * size,
        });
        let fd = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        rustix::fs::ftruncate(&fd, size * count).expect("room for guest memory");
        let length = (size * count) as usize;
        // SAFETY: the kernel chooses an unused address for the new mapping.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )
        }
        .expect("a mapping");
        Self {
            fd,
            base: NonNull::new(base.cast()).expect("a mapping is not at zero"),
            length,
            regions: regions.collect(),
        }
    }

    /// Returns the memfd.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the regions.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Truncates the memfd to `size` bytes. Later access to the removed part through this mapping ends
    /// the test with SIGBUS.
    pub fn truncate(&self, size: u64) {
        rustix::fs::ftruncate(&self.fd, size).expect("truncating a memfd");
    }

    /// Returns the mapped address of a guest-physical address, and the number of bytes from there to
    /// the end of its region.
    fn locate(&self, address: u64) -> (NonNull<u8>, usize) {
        let region = self
            .regions
            .iter()
            .find(|region| (region.guest..region.guest + region.size).contains(&address))
            .unwrap_or_else(|| panic!("{address:#x} is not in this guest's memory"));
        let into = address - region.guest;
        let offset = (region.offset + into) as usize;
        assert!(offset < self.length);
        // SAFETY: `offset` is inside the mapping.
        (
            unsafe { self.base.add(offset) },
            (region.size - into) as usize,
        )
    }

    /// Writes bytes at a guest-physical address.
    pub fn write(&self, mut address: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (place, room) = self.locate(address);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            // SAFETY: `now` fits into the rest of the region, which is mapped.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), place.as_ptr(), now.len()) };
            address += now.len() as u64;
            bytes = later;
        }
    }

    /// Reads bytes at a guest-physical address.
    pub fn read(&self, mut address: u64, mut to: &mut [u8]) {
        while !to.is_empty() {
            let (place, room) = self.locate(address);
            let (now, later) = to.split_at_mut(room.min(to.len()));
            // SAFETY: as in `write`.
            unsafe { ptr::copy_nonoverlapping(place.as_ptr(), now.as_mut_ptr(), now.len()) };
            address += now.len() as u64;
            to = later;
        }
    }

    fn word(&self, address: u64) -> &AtomicU16 {
        let (place, room) = self.locate(address);
        assert!(room >= 2 && address % 2 == 0);
        // SAFETY: both bytes are mapped, and they are aligned because regions are.
        unsafe { AtomicU16::from_ptr(place.as_ptr().cast()) }
    }

    /// Returns the whole memory as words, indexed by guest-physical address divided by four. Fast
    /// drivers use this function. Panics if the memory has more than one region.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        assert!(self.regions.len() == 1, "a memory of one region");
        // SAFETY: the mapping exists as long as `self` and begins on a page. Each bit pattern is a
        // valid word. The words are atomics, so other threads and processes may write them at the same
        // time.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length / 4) }
    }

    /// Loads a word that the device writes.
    #[must_use]
    pub fn load(&self, address: u64) -> u16 {
        self.word(address).load(Ordering::Acquire)
    }

    /// Replaces a word that the device writes by zero, and returns its value.
    #[must_use]
    pub fn take(&self, address: u64) -> u16 {
        self.word(address).swap(0, Ordering::AcqRel)
    }

    /// Stores a word that the device reads.
    pub fn store(&self, address: u64, value: u16) {
        self.word(address).store(value, Ordering::Release);
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        // SAFETY: `in_regions` made this mapping, and no pointer into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
