//! The driver's side of a split virtqueue (virtio 1.3, section 2.7).

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::TEST_TIMEOUT;
use crate::features::{EVENT_IDX, IN_ORDER};
use crate::ram::{Ram, USER_BASE};

/// Descriptor flag: another descriptor follows.
pub const NEXT: u16 = 1;
/// Descriptor flag: the device writes to the buffer.
pub const WRITE: u16 = 2;
/// Descriptor flag: the buffer is a table of descriptors.
pub const INDIRECT: u16 = 4;

/// A memory buffer in a descriptor chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Guest-physical address.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Returns the bytes of a descriptor.
#[must_use]
pub fn descriptor(buffer: Buffer, flags: u16, next: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&buffer.address.to_le_bytes());
    bytes[8..12].copy_from_slice(&buffer.length.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}

/// A split virtqueue, as the driver uses it.
#[derive(Debug)]
pub struct Queue {
    ram: Arc<Ram>,
    size: u16,
    /// Guest-physical address of the descriptor table.
    pub descriptors: u64,
    /// Guest-physical address of the available ring.
    pub available: u64,
    /// Guest-physical address of the used ring.
    pub used: u64,
    flags: u16,
    event_idx: bool,
    in_order: bool,
    free: Vec<u16>,
    /// The descriptors of each chain, by the chain's head.
    chains: Vec<Vec<u16>>,
    /// The heads of the chains that the device has not returned, in the order in which the driver made
    /// them available.
    offered: VecDeque<u16>,
    /// The number of these chains that one used element has returned (virtio 1.3, section 2.7.9) and
    /// that the driver has not taken yet.
    batch: usize,
    next_available: u16,
    published: u16,
    next_used: u16,
    kick: OwnedFd,
    call: OwnedFd,
}

impl Queue {
    /// Creates a ring with `size` descriptors at a guest-physical address. If `writable`, the device
    /// writes to the buffers.
    #[must_use]
    pub fn new(ram: Arc<Ram>, at: u64, size: u16, writable: bool, features: u64) -> Self {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd");
        let available = at + 16 * u64::from(size);
        Self {
            ram,
            size,
            descriptors: at,
            available,
            used: (available + 6 + 2 * u64::from(size)).next_multiple_of(4),
            flags: if writable { WRITE } else { 0 },
            event_idx: features & EVENT_IDX != 0,
            in_order: features & IN_ORDER != 0,
            free: (0..size).rev().collect(),
            chains: vec![Vec::new(); usize::from(size)],
            offered: VecDeque::new(),
            batch: 0,
            next_available: 0,
            published: 0,
            next_used: 0,
            kick: event(),
            call: event(),
        }
    }

    /// Returns the number of bytes that a ring of this size occupies.
    #[must_use]
    pub fn bytes(size: u16) -> u64 {
        26 * u64::from(size) + 16
    }

    /// Sets the first value of both indices. Call this function before the ring is started.
    pub fn begin_at(&mut self, index: u16) {
        (self.next_available, self.published, self.next_used) = (index, index, index);
        self.ram.store(self.available + 2, index);
        self.ram.store(self.used + 2, index);
        self.ask_for_call();
    }

    /// Returns the number of descriptors.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Returns the number of free descriptors.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of chains that the device has not returned.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.offered.len()
    }

    /// Returns the available index that the driver has published to the device.
    #[must_use]
    pub fn published(&self) -> u16 {
        self.published
    }

    /// Returns the used index that the device has published.
    #[must_use]
    pub fn used_index(&self) -> u16 {
        self.ram.load(self.used + 2)
    }

    /// Returns the front-end's virtual addresses of the descriptor table, the used ring and the
    /// available ring.
    #[must_use]
    pub fn user_addresses(&self) -> [u64; 3] {
        [self.descriptors, self.used, self.available].map(|address| USER_BASE + address)
    }

    /// Writes a descriptor without checking its contents.
    pub fn set_descriptor(&self, index: u16, buffer: Buffer, flags: u16, next: u16) {
        let at = self.descriptors + 16 * u64::from(index);
        self.ram.write(at, &descriptor(buffer, flags, next));
    }

    /// Puts a head on the available ring without checking it. The device sees it after
    /// [`publish`](Self::publish).
    pub fn offer(&mut self, head: u16) {
        let at = u64::from(self.next_available % self.size);
        self.ram.store(self.available + 4 + 2 * at, head);
        self.next_available = self.next_available.wrapping_add(1);
    }

    /// Adds a chain of buffers to the available ring. Returns its head, or `None` if there are too few
    /// free descriptors.
    pub fn add(&mut self, buffers: &[Buffer]) -> Option<u16> {
        if buffers.is_empty() || buffers.len() > self.free.len() {
            return None;
        }
        let chain = self.free.split_off(self.free.len() - buffers.len());
        for (place, buffer) in buffers.iter().enumerate() {
            let next = chain.get(place + 1);
            let flags = self.flags | if next.is_some() { NEXT } else { 0 };
            self.set_descriptor(chain[place], *buffer, flags, next.copied().unwrap_or(0));
        }
        Some(self.offer_chain(chain))
    }

    /// Adds a chain of buffers to the available ring through an indirect table at a guest-physical
    /// address.
    pub fn add_indirect(&mut self, table: u64, buffers: &[Buffer]) -> Option<u16> {
        let head = self.free.pop()?;
        for (place, buffer) in buffers.iter().enumerate() {
            let last = place + 1 == buffers.len();
            let flags = self.flags | if last { 0 } else { NEXT };
            let bytes = descriptor(*buffer, flags, place as u16 + 1);
            self.ram.write(table + 16 * place as u64, &bytes);
        }
        let length = 16 * buffers.len() as u32;
        self.set_descriptor(
            head,
            Buffer {
                address: table,
                length,
            },
            INDIRECT,
            0,
        );
        Some(self.offer_chain(vec![head]))
    }

    fn offer_chain(&mut self, chain: Vec<u16>) -> u16 {
        let head = chain[0];
        self.chains[usize::from(head)] = chain;
        self.offered.push_back(head);
        self.offer(head);
        head
    }

    /// Publishes the available index. Returns whether the device requests a kick (virtio 1.3, section
    /// 2.7.10).
    #[must_use]
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_available);
        self.ram.store(self.available + 2, new);
        self.published = new;
        fence(Ordering::SeqCst);
        if self.event_idx {
            let event = self.ram.load(self.used + 4 + 8 * u64::from(self.size));
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            self.ram.load(self.used) & 1 == 0
        }
    }

    /// Publishes the available index, and kicks the device if the device requests it.
    pub fn publish_and_kick(&mut self) {
        if self.publish() {
            self.kick();
        }
    }

    /// Kicks the device.
    pub fn kick(&self) {
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).expect("a kick");
    }

    /// Publishes an available index that may be wrong.
    pub fn publish_wrong_index(&self, index: u16) {
        self.ram.store(self.available + 2, index);
    }

    /// Takes the next chain that the device has returned, and frees its descriptors. Returns its head
    /// and the number of bytes written.
    pub fn take_used(&mut self) -> Option<(u16, u32)> {
        let index = self.ram.load(self.used + 2);
        let ahead = index.wrapping_sub(self.next_used);
        if ahead == 0 {
            return None;
        }
        assert!(ahead <= self.size, "the used index ran {ahead} ahead");
        let (head, length) = self.returned();
        let chain = std::mem::take(&mut self.chains[usize::from(head)]);
        assert!(!chain.is_empty(), "chain {head} was handed back twice");
        self.free.extend(chain);
        self.next_used = self.next_used.wrapping_add(1);
        Some((head, length))
    }

    /// Returns the next returned chain. Panics if the back-end returns chains out of order. Vicinity's
    /// back-end returns chains in order even if `VIRTIO_F_IN_ORDER` was not negotiated: then the used
    /// index says where another back-end can continue.
    fn returned(&mut self) -> (u16, u32) {
        let mut length = 0;
        if self.batch == 0 {
            let mut element = [0; 8];
            let at = u64::from(self.next_used % self.size);
            self.ram.read(self.used + 4 + 8 * at, &mut element);
            let id = u32::from_le_bytes(element[..4].try_into().unwrap());
            length = u32::from_le_bytes(element[4..].try_into().unwrap());
            let place = |head: &u16| u32::from(*head) == id;
            let place = self.offered.iter().position(place);
            let place = place.unwrap_or_else(|| panic!("chain {id} was not on offer"));
            assert!(place == 0 || self.in_order, "chain {id} overtook {place}");
            self.batch = place + 1;
        }
        self.batch -= 1;
        (self.offered.pop_front().expect("a chain"), length)
    }

    /// Requests a call when the device returns more chains than the driver has taken. Returns whether
    /// the device already has.
    pub fn ask_for_call(&self) -> bool {
        self.call_after(0)
    }

    /// Requests a call when the device returns more than `more` chains beyond those that the driver has
    /// taken. Returns whether the device already has.
    pub fn call_after(&self, more: u16) -> bool {
        let event = self.next_used.wrapping_add(more);
        self.ram
            .store(self.available + 4 + 2 * u64::from(self.size), event);
        if !self.event_idx {
            self.ram.store(self.available, 0);
        }
        fence(Ordering::SeqCst);
        self.ram.load(self.used + 2).wrapping_sub(self.next_used) > more
    }

    /// Suppresses calls. This has an effect only if `EVENT_IDX` was not negotiated.
    pub fn suppress_calls(&self) {
        self.ram.store(self.available, 1);
    }

    /// Reads the call descriptor. Returns the number of calls since the last read.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.call, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    /// Waits for a call.
    pub fn wait_for_call(&self) {
        wait_for_any(&[self]);
        let _ = self.calls();
    }

    /// Returns the kick descriptor.
    #[must_use]
    pub fn kick_fd(&self) -> &OwnedFd {
        &self.kick
    }

    /// Returns the call descriptor.
    #[must_use]
    pub fn call_fd(&self) -> &OwnedFd {
        &self.call
    }

    /// Restarts the ring where a stopped device left it: frees the chains that the device has not
    /// returned, and sets both indices to `base`.
    pub fn restart(&mut self, base: u16) {
        for chain in &mut self.chains {
            self.free.append(chain);
        }
        self.offered.clear();
        self.batch = 0;
        self.begin_at(base);
    }
}

/// Waits for a call on one of these rings.
pub fn wait_for_any(queues: &[&Queue]) {
    let mut fds: Vec<PollFd<'_>> = queues
        .iter()
        .map(|queue| PollFd::from_borrowed_fd(queue.call.as_fd(), PollFlags::IN))
        .collect();
    let guard = Timespec {
        tv_sec: TEST_TIMEOUT.as_secs() as i64,
        tv_nsec: 0,
    };
    let ready = poll(&mut fds, Some(&guard)).expect("poll");
    assert!(ready > 0, "no call from the device");
}
