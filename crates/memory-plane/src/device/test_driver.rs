//! A driver of one virtqueue, without QEMU and without a thread, for tests and the fuzz target `virtio_fs`.

use std::io;
use std::sync::Arc;

use vhost_user_backend::VringT;
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryMmap};

use super::Device;
use super::ring::{Memory, Ring};
use crate::space_state::SpaceState;

/// Entries of the queue. A request takes two descriptors: one for itself, and one for its response.
pub(super) const ENTRIES: u16 = 16;

/// Most bytes of a request, and of a response.
pub const MAX_REQUEST: usize = 1 << 16;

// Layout of the guest's memory: the parts of the queue, and the buffers.
const TABLE: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFERS: u64 = 0x1_0000;

/// The request queue.
const QUEUE: usize = 1;

// Flags of a descriptor (virtio 1.3, 2.7.5).
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// A simulated guest with its device.
pub struct TestDriver {
    pub(super) device: Device,
    ring: Ring,
    memory: Memory,
    /// The driver's `idx` of the available ring.
    offered: u16,
    /// First descriptor of the next request's chain.
    head: u16,
}

impl TestDriver {
    /// Creates the only guest of a space.
    ///
    /// # Errors
    /// Returns an error if the system lacks a resource.
    pub fn new(state: &Arc<SpaceState>) -> io::Result<Self> {
        let bytes = usize::from(ENTRIES + 1) * MAX_REQUEST;
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), bytes)]);
        let memory = Memory::new(memory.map_err(io::Error::other)?);
        let ring = Ring::new(memory.clone(), ENTRIES).map_err(io::Error::other)?;
        ring.set_queue_info(TABLE, AVAILABLE, USED)
            .map_err(io::Error::other)?;
        ring.set_queue_ready(true);
        ring.set_enabled(true);
        Ok(Self {
            device: Device::new(state, memory.clone())?,
            ring,
            memory,
            offered: 0,
            head: 0,
        })
    }

    /// Sends a request in a chain of one descriptor for the request and one of `response_bytes` bytes for the response.
    /// Returns the response. Returns `None` if the request waits for slots, if it is longer than [`MAX_REQUEST`], or if all
    /// chains wait.
    pub fn request(&mut self, request: &[u8], response_bytes: usize) -> Option<Vec<u8>> {
        let (head, before) = (self.head, self.used_index()?);
        self.head = (head + 2) % ENTRIES;
        self.chain(head, request, response_bytes)?;
        self.offer(head)?;
        self.kick();
        if self.used_index()? == before {
            return None;
        }
        let entry = USED + 4 + u64::from(before % ENTRIES) * 8;
        let memory = self.memory.memory();
        let written: u32 = memory.read_obj(GuestAddress(entry + 4)).ok()?;
        let mut response = vec![
            0;
            usize::try_from(written)
                .ok()?
                .min(response_bytes)
                .min(MAX_REQUEST)
        ];
        let at = GuestAddress(buffer(head + 1));
        memory.read_slice(&mut response, at).ok()?;
        Some(response)
    }

    /// Writes a request, and a buffer for its response, to the two descriptors from `head` on.
    pub(super) fn chain(&self, head: u16, request: &[u8], response_bytes: usize) -> Option<()> {
        if request.len() > MAX_REQUEST {
            return None;
        }
        let memory = self.memory.memory();
        memory
            .write_slice(request, GuestAddress(buffer(head)))
            .ok()?;
        for (descriptor, length, flags, next) in [
            (head, request.len(), NEXT, head + 1),
            (head + 1, response_bytes.min(MAX_REQUEST), WRITE, 0),
        ] {
            let at = TABLE + u64::from(descriptor) * 16;
            let length = u32::try_from(length).ok()?;
            memory
                .write_obj(buffer(descriptor), GuestAddress(at))
                .ok()?;
            memory.write_obj(length, GuestAddress(at + 8)).ok()?;
            memory.write_obj(flags, GuestAddress(at + 12)).ok()?;
            memory.write_obj(next, GuestAddress(at + 14)).ok()?;
        }
        Some(())
    }

    /// Makes a chain available, even if the device has it already.
    pub(super) fn offer(&mut self, head: u16) -> Option<()> {
        let memory = self.memory.memory();
        let entry = AVAILABLE + 4 + u64::from(self.offered % ENTRIES) * 2;
        memory.write_obj(head, GuestAddress(entry)).ok()?;
        self.offered = self.offered.wrapping_add(1);
        let index = GuestAddress(AVAILABLE + 2);
        memory.write_obj(self.offered, index).ok()
    }

    pub(super) fn kick(&mut self) {
        self.device.process_queue(QUEUE, &self.ring);
    }

    /// Returns the device's `idx` of the used ring.
    pub(super) fn used_index(&self) -> Option<u16> {
        let memory = self.memory.memory();
        memory.read_obj(GuestAddress(USED + 2)).ok()
    }
}

/// Returns the address of a descriptor's buffer.
fn buffer(descriptor: u16) -> u64 {
    BUFFERS + u64::from(descriptor) * MAX_REQUEST as u64
}
