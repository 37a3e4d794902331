//! A split ring, from the driver's side (virtio 1.3, section 2.7).

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::GUARD;
use crate::features::{EVENT_IDX, IN_ORDER};
use crate::ram::{Ram, USER_BASE};

/// Descriptor flag: another follows.
pub const NEXT: u16 = 1;
/// Descriptor flag: the device writes.
pub const WRITE: u16 = 2;
/// Descriptor flag: a table of descriptors.
pub const INDIRECT: u16 = 4;

/// A piece of memory in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Guest-physical address.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
}

/// A descriptor's bytes.
#[must_use]
pub fn descriptor(buffer: Buffer, flags: u16, next: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&buffer.address.to_le_bytes());
    bytes[8..12].copy_from_slice(&buffer.length.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}

/// A driver's ring.
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
    /// For each head: the descriptors of its chain.
    chains: Vec<Vec<u16>>,
    /// The heads the device has, in the order they were offered.
    offered: VecDeque<u16>,
    /// Of those, how many have come back by an element that stands for them (2.7.9).
    batch: usize,
    next_available: u16,
    published: u16,
    next_used: u16,
    kick: OwnedFd,
    call: OwnedFd,
}

impl Queue {
    /// A ring of `size` at a guest-physical address. `writable`: the device writes its buffers.
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

    /// Bytes a ring of this size takes.
    #[must_use]
    pub fn bytes(size: u16) -> u64 {
        26 * u64::from(size) + 16
    }

    /// Let both indices begin elsewhere, before the ring is started.
    pub fn begin_at(&mut self, index: u16) {
        (self.next_available, self.published, self.next_used) = (index, index, index);
        self.ram.store(self.available + 2, index);
        self.ram.store(self.used + 2, index);
        self.ask_for_call();
    }

    /// Descriptors.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Descriptors that are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The available index the device can see.
    #[must_use]
    pub fn published(&self) -> u16 {
        self.published
    }

    /// The used index as the device published it.
    #[must_use]
    pub fn used_index(&self) -> u16 {
        self.ram.load(self.used + 2)
    }

    /// The addresses of descriptors, used and available ring, as the front-end's.
    #[must_use]
    pub fn user_addresses(&self) -> [u64; 3] {
        [self.descriptors, self.used, self.available].map(|address| USER_BASE + address)
    }

    /// Write a descriptor, whatever it says.
    pub fn set_descriptor(&self, index: u16, buffer: Buffer, flags: u16, next: u16) {
        let at = self.descriptors + 16 * u64::from(index);
        self.ram.write(at, &descriptor(buffer, flags, next));
    }

    /// Put a head on the available ring, whatever it is; [`publish`](Self::publish) shows it.
    pub fn offer(&mut self, head: u16) {
        let at = u64::from(self.next_available % self.size);
        self.ram.store(self.available + 4 + 2 * at, head);
        self.next_available = self.next_available.wrapping_add(1);
    }

    /// Make a chain of buffers available; `None` when there are too few free descriptors.
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

    /// Make a chain of buffers available through a table at a guest-physical address.
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

    /// Let the device see what was offered; says whether it wants a kick for it (2.7.10).
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

    /// Publish, and kick if that is wanted.
    pub fn publish_and_kick(&mut self) {
        if self.publish() {
            self.kick();
        }
    }

    /// Kick the device.
    pub fn kick(&self) {
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).expect("a kick");
    }

    /// Show an available index that need not be true.
    pub fn lie(&self, index: u16) {
        self.ram.store(self.available + 2, index);
    }

    /// The next chain the device has handed back: head and bytes written. Its descriptors are
    /// free again.
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

    /// The next chain to come back. Ours are handed back in order even where that was not
    /// negotiated: the used index says where another back-end can go on.
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

    /// Ask to be called when the device hands back more than has been seen; says whether it
    /// already has.
    pub fn ask_for_call(&self) -> bool {
        self.call_after(0)
    }

    /// Ask to be called when the device hands back more than `more` beyond what has been seen.
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

    /// Ask, without `EVENT_IDX`, not to be called.
    pub fn suppress_calls(&self) {
        self.ram.store(self.available, 1);
    }

    /// Take the calls that have come: their number.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.call, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    /// Wait for a call.
    pub fn wait_for_call(&self) {
        wait_for_any(&[self]);
        let _ = self.calls();
    }

    /// The descriptor that kicks.
    #[must_use]
    pub fn kick_fd(&self) -> &OwnedFd {
        &self.kick
    }

    /// The descriptor that calls.
    #[must_use]
    pub fn call_fd(&self) -> &OwnedFd {
        &self.call
    }

    /// The same ring where a stopped device left it: chains it has not handed back are free
    /// again, and both indices begin at `base`.
    pub fn restart(&mut self, base: u16) {
        for chain in &mut self.chains {
            self.free.append(chain);
        }
        self.offered.clear();
        self.batch = 0;
        self.begin_at(base);
    }
}

/// Wait until one of these rings is called.
pub fn wait_for_any(queues: &[&Queue]) {
    let mut fds: Vec<PollFd<'_>> = queues
        .iter()
        .map(|queue| PollFd::from_borrowed_fd(queue.call.as_fd(), PollFlags::IN))
        .collect();
    let guard = Timespec {
        tv_sec: GUARD.as_secs() as i64,
        tv_nsec: 0,
    };
    let ready = poll(&mut fds, Some(&guard)).expect("poll");
    assert!(ready > 0, "no call from the device");
}
