//! A guest's driver of one queue, without QEMU and without a thread: what tests and the fuzz target
//! `virtio_fs` ask a space by.

use std::io;
use std::sync::Arc;

use vhost_user_backend::VringT;
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryMmap};

use super::Device;
use super::ring::Memory;
use super::ring::Ring;
use crate::shared::Shared;

/// Entries of the queue. A request takes two: itself, and room for its answer.
pub(super) const ENTRIES: u16 = 16;

/// Bytes of a request, and of room for its answer, at most.
pub const MOST: usize = 1 << 16;

// The guest's memory: the parts of its queue, and what it asks.
const TABLE: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFERS: u64 = 0x1_0000;

/// The queue for all that may wait.
const QUEUE: usize = 1;

// Flags of a descriptor (virtio 1.3, 2.7.5).
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// A guest that asks.
pub struct Requests {
    pub(super) device: Device,
    ring: Ring,
    memory: Memory,
    /// Its `idx` of the available ring.
    offered: u16,
    /// Where the next request's chain begins.
    head: u16,
}

impl Requests {
    /// A guest of this space, which must have no other.
    ///
    /// # Errors
    /// The system is short of something.
    pub fn new(shared: &Arc<Shared>) -> io::Result<Self> {
        let bytes = usize::from(ENTRIES + 1) * MOST;
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), bytes)]);
        let memory = Memory::new(memory.map_err(io::Error::other)?);
        let ring = Ring::new(memory.clone(), ENTRIES).map_err(io::Error::other)?;
        ring.set_queue_info(TABLE, AVAILABLE, USED)
            .map_err(io::Error::other)?;
        ring.set_queue_ready(true);
        ring.set_enabled(true);
        Ok(Self {
            device: Device::new(shared, memory.clone())?,
            ring,
            memory,
            offered: 0,
            head: 0,
        })
    }

    /// Ask, in a chain of a descriptor for the request and one of `room` bytes for the answer. Returns what was
    /// answered; none, if the request waits for slots, or so many do that there is no other chain, or it is
    /// longer than [`MOST`].
    pub fn ask(&mut self, request: &[u8], room: usize) -> Option<Vec<u8>> {
        let (head, before) = (self.head, self.given_back()?);
        self.head = (head + 2) % ENTRIES;
        self.chain(head, request, room)?;
        self.offer(head)?;
        self.kick();
        if self.given_back()? == before {
            return None;
        }
        let entry = USED + 4 + u64::from(before % ENTRIES) * 8;
        let memory = self.memory.memory();
        let written: u32 = memory.read_obj(GuestAddress(entry + 4)).ok()?;
        let mut answer = vec![0; usize::try_from(written).ok()?.min(room).min(MOST)];
        let at = GuestAddress(buffer(head + 1));
        memory.read_slice(&mut answer, at).ok()?;
        Some(answer)
    }

    /// Put a request, and room for its answer, at two descriptors from this one on.
    pub(super) fn chain(&self, head: u16, request: &[u8], room: usize) -> Option<()> {
        if request.len() > MOST {
            return None;
        }
        let memory = self.memory.memory();
        memory
            .write_slice(request, GuestAddress(buffer(head)))
            .ok()?;
        for (number, length, flags, next) in [
            (head, request.len(), NEXT, head + 1),
            (head + 1, room.min(MOST), WRITE, 0),
        ] {
            let at = TABLE + u64::from(number) * 16;
            let length = u32::try_from(length).ok()?;
            memory.write_obj(buffer(number), GuestAddress(at)).ok()?;
            memory.write_obj(length, GuestAddress(at + 8)).ok()?;
            memory.write_obj(flags, GuestAddress(at + 12)).ok()?;
            memory.write_obj(next, GuestAddress(at + 14)).ok()?;
        }
        Some(())
    }

    /// Publish a chain, with no regard to whether it is the device's already.
    pub(super) fn offer(&mut self, head: u16) -> Option<()> {
        let memory = self.memory.memory();
        let entry = AVAILABLE + 4 + u64::from(self.offered % ENTRIES) * 2;
        memory.write_obj(head, GuestAddress(entry)).ok()?;
        self.offered = self.offered.wrapping_add(1);
        let index = GuestAddress(AVAILABLE + 2);
        memory.write_obj(self.offered, index).ok()
    }

    pub(super) fn kick(&mut self) {
        self.device.work(QUEUE, &self.ring);
    }

    /// The device's `idx` of the used ring.
    pub(super) fn given_back(&self) -> Option<u16> {
        let memory = self.memory.memory();
        memory.read_obj(GuestAddress(USED + 2)).ok()
    }
}

/// Where the bytes of a descriptor are.
fn buffer(number: u16) -> u64 {
    BUFFERS + u64::from(number) * MOST as u64
}
