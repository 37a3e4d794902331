//! A guest's memory. The crate's only `unsafe` code.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Added to a guest-physical address, it gives the front-end's address for the same byte.
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
    /// The 32 bytes a message carries.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        [self.guest, self.size, self.user, self.offset]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect()
    }
}

/// Guest memory: one memfd, mapped here, presented in regions.
#[derive(Debug)]
pub struct Ram {
    fd: OwnedFd,
    base: NonNull<u8>,
    length: usize,
    regions: Vec<Region>,
}

// SAFETY: shared memory of the process, reached through raw pointers only.
unsafe impl Send for Ram {}
// SAFETY: as above; concurrent access is what a guest's memory is for.
unsafe impl Sync for Ram {}

impl Ram {
    /// Memory of `size` bytes from guest-physical 0, in one region.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self::in_regions(size, 1)
    }

    /// Memory from guest-physical 0 in `count` adjoining regions of `size` bytes, laid out in
    /// the memfd in reverse, so that nothing but the guest's addresses adjoins.
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
        // SAFETY: a new mapping at an address of the kernel's choice.
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

    /// The memfd.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The regions.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Cut the memfd to `size` bytes. Touching what is cut off here ends the test with SIGBUS.
    pub fn truncate(&self, size: u64) {
        rustix::fs::ftruncate(&self.fd, size).expect("truncating a memfd");
    }

    /// The place of a guest-physical address, and how many bytes follow in its region.
    fn locate(&self, address: u64) -> (NonNull<u8>, usize) {
        let region = self
            .regions
            .iter()
            .find(|region| (region.guest..region.guest + region.size).contains(&address))
            .unwrap_or_else(|| panic!("{address:#x} is not in this guest's memory"));
        let into = address - region.guest;
        let offset = (region.offset + into) as usize;
        assert!(offset < self.length);
        // SAFETY: inside the mapping.
        (
            unsafe { self.base.add(offset) },
            (region.size - into) as usize,
        )
    }

    /// Write bytes at a guest-physical address.
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

    /// Read bytes at a guest-physical address.
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
        // SAFETY: two mapped bytes, aligned because regions are.
        unsafe { AtomicU16::from_ptr(place.as_ptr().cast()) }
    }

    /// All of a memory of one region as words, by guest-physical address divided by four: for
    /// drivers that must be fast.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        assert!(self.regions.len() == 1, "a memory of one region");
        // SAFETY: the mapping lives as long as `self` and begins on a page; every bit pattern is
        // a word, and words that others write meanwhile are atomics here.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length / 4) }
    }

    /// Load a word that the device writes.
    #[must_use]
    pub fn load(&self, address: u64) -> u16 {
        self.word(address).load(Ordering::Acquire)
    }

    /// Take what is in a word that the device writes, and leave zero.
    #[must_use]
    pub fn take(&self, address: u64) -> u16 {
        self.word(address).swap(0, Ordering::AcqRel)
    }

    /// Store a word that the device reads.
    pub fn store(&self, address: u64, value: u16) {
        self.word(address).store(value, Ordering::Release);
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `in_regions`; pointers into it live no longer than it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
