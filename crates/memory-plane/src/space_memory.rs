//! The memory of a space's slots and of its ledger: sealed memfds.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    memfd_create,
};
use space::store::{Ledger, Memory};

use crate::raw::Mapping;

/// Bytes that one step copies or zeroes.
const CHUNK: usize = 64 << 10;

/// The slots' memory, and the eventfd that signals free slots.
#[derive(Debug)]
pub struct SlotFile {
    file: File,
    mapping: Mapping,
    slot_free: OwnedFd,
    began: Instant,
}

/// Creates a memfd of `bytes` zeros, whose size is sealed. The kernel allocates its pages when they are written.
///
/// # Errors
/// Returns the kernel's error.
pub fn create(name: &str, bytes: u64) -> io::Result<File> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let file = File::from(fd);
    file.set_len(bytes)?;
    fcntl_add_seals(&file, required_seals())?;
    Ok(file)
}

/// Returns the seals of each memfd that [`create`] creates.
fn required_seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// Returns the length of a memfd with the seals of [`create`]: its size is fixed, and it is writable. Returns `None` for any
/// other descriptor.
#[must_use]
pub fn sealed_length(memory: BorrowedFd<'_>) -> Option<u64> {
    // The kernel may have added a seal of its own (`vm.memfd_noexec`). Only a memfd can have these seals.
    let read_only = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
    let is_sealed = |has: SealFlags| has.contains(required_seals()) && !has.intersects(read_only);
    let length = || fstat(memory).ok()?.st_size.try_into().ok();
    let is_sealed = fcntl_get_seals(memory).is_ok_and(is_sealed);
    is_sealed.then(length).flatten()
}

/// The ledger's memory.
#[derive(Debug)]
pub struct LedgerFile(pub File);

impl Ledger for LedgerFile {
    fn write(&self, at: u64, bytes: &[u8]) {
        if let Err(error) = self.0.write_all_at(bytes, at) {
            tracing::error!(%error, "cannot write to the ledger: files published now are lost when this process ends; check the host's memory");
        }
    }

    fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(to, at)
    }
}

impl SlotFile {
    /// Maps a memfd that [`create`] created.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn new(file: File) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        // syscalls: eventfd2
        let slot_free = eventfd(0, flags)?;
        Ok(Self {
            mapping: Mapping::new(&file)?,
            file,
            slot_free,
            began: Instant::now(),
        })
    }

    /// Returns the memfd, for reading and writing at offsets.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns bytes of slots that the caller keeps in use; `None` if they are outside the memory.
    pub(crate) fn slice(&self, at: u64, length: usize) -> Option<&[u8]> {
        self.mapping.slice(at, length)
    }

    /// Returns the offset of these bytes, if they are in the slots' memory.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        self.mapping.offset_of(bytes)
    }

    /// Returns the eventfd that becomes readable when slots become free.
    pub(crate) fn slot_free_event(&self) -> RawFd {
        self.slot_free.as_fd().as_raw_fd()
    }

    /// Clears the event of free slots.
    pub(crate) fn clear_slot_free(&self) {
        // The counter may be zero already.
        let _ = rustix::io::read(&self.slot_free, &mut [0; 8]);
    }
}

impl Memory for SlotFile {
    // syscalls: pread64 pwrite64
    fn copy(&self, mut from: u64, mut to: u64, mut length: u64) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        while length > 0 {
            let count = length.min(CHUNK as u64);
            let chunk = buffer.get_mut(..usize::try_from(count).unwrap_or(CHUNK));
            let chunk = chunk.unwrap_or_default();
            self.file.read_exact_at(chunk, from)?;
            self.file.write_all_at(chunk, to)?;
            (from, to, length) = (from + count, to + count, length - count);
        }
        Ok(())
    }

    fn zero(&self, at: u64, length: u64) -> io::Result<()> {
        let (mut at, mut left) = (at, length);
        let zeros = vec![0; CHUNK];
        while left > 0 {
            let count = left.min(CHUNK as u64);
            let chunk = zeros.get(..usize::try_from(count).unwrap_or(CHUNK));
            self.file.write_all_at(chunk.unwrap_or_default(), at)?;
            (at, left) = (at + count, left - count);
        }
        Ok(())
    }

    fn release_pages(&self, at: u64, length: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // syscalls: fallocate
        if let Err(error) = fallocate(&self.file, flags, at, length) {
            tracing::warn!(%error, "cannot release the pages of a slot");
        }
    }

    fn notify_slot_free(&self) {
        // If the counter is full, the event is signalled already.
        let _ = rustix::io::write(&self.slot_free, &1_u64.to_ne_bytes());
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn pages_are_allocated_on_write_and_freed_by_release_pages() {
        let slot_file = SlotFile::new(create("test", 4 << 20).unwrap()).unwrap();
        let pages = || slot_file.file.metadata().unwrap().blocks() * 512;
        assert_eq!(pages(), 0);
        slot_file.zero(1 << 20, 1 << 20).unwrap();
        assert_eq!(pages(), 1 << 20);
        slot_file.copy(1 << 20, 0, 1 << 20).unwrap();
        slot_file.release_pages(1 << 20, 1 << 20);
        assert_eq!(pages(), 1 << 20);
        assert!(slot_file.file.set_len(0).is_err() && slot_file.file.set_len(8 << 20).is_err());
    }
}
