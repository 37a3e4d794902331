//! A guest's NIC: a front-end and a driver together.

use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::options::Options;
use crate::pair::Pair;
use crate::queue::{Queue, wait_for_any};
use crate::ram::Ram;
use crate::wire::{Wire, addresses, number, request, state};

/// A guest's NIC. Stands for its first pair where a pair is meant.
#[derive(Debug)]
pub struct Nic {
    /// The vhost-user socket.
    pub wire: Wire,
    /// Its queue pairs.
    pub pairs: Vec<Pair>,
}

impl Deref for Nic {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pairs[0]
    }
}

impl DerefMut for Nic {
    fn deref_mut(&mut self) -> &mut Pair {
        &mut self.pairs[0]
    }
}

impl Nic {
    /// A NIC whose back-end is at the other end of `wire`. Nothing is said yet.
    #[must_use]
    pub fn new(wire: Wire, options: Options) -> Self {
        let rings = Queue::bytes(options.size).next_multiple_of(4096);
        let step = Pair::bytes(&options);
        let bytes = step * u64::from(options.pairs);
        let region = bytes.div_ceil(options.regions).next_multiple_of(4096);
        // A ring must lie in one region.
        let region = region.max(2 * rings);
        let ram = Arc::new(Ram::in_regions(region, options.regions));
        let pairs = (0..u64::from(options.pairs)).map(|pair| Pair::new(&ram, pair * step, options));
        Self {
            wire,
            pairs: pairs.collect(),
        }
    }

    /// Set the device up and start all rings, in QEMU's order. `pump` is called after each
    /// message, for a back-end that runs on this thread.
    pub fn start(&mut self, mut pump: impl FnMut()) {
        self.set_up(&mut pump);
        for pair in 0..self.pairs.len() {
            self.start_pair(pair, [self.options.base; 2], &mut pump);
        }
    }

    /// Go on with another back-end where the last one left off, as QEMU does when that died
    /// without a word: at the used indices.
    pub fn resume(&mut self, wire: Wire, mut pump: impl FnMut()) {
        self.wire = wire;
        self.set_up(&mut pump);
        for (number, pair) in self.pairs.iter().enumerate() {
            let bases = [pair.rx.used_index(), pair.tx.used_index()];
            self.start_pair(number, bases, &mut pump);
        }
    }

    /// Set the device up, but for its rings.
    fn set_up(&mut self, mut pump: impl FnMut()) {
        let mut say = |request, payload: &[u8], fds: &[_]| {
            assert!(
                self.wire.send(request, payload, fds),
                "the back-end hung up"
            );
            pump();
        };
        say(request::GET_FEATURES, &[], &[]);
        let offered = self.wire.number(request::GET_FEATURES);
        say(request::GET_PROTOCOL_FEATURES, &[], &[]);
        let protocol = self.wire.number(request::GET_PROTOCOL_FEATURES);
        say(request::SET_PROTOCOL_FEATURES, &number(protocol), &[]);
        say(request::GET_QUEUE_NUM, &[], &[]);
        assert!(self.wire.number(request::GET_QUEUE_NUM) >= self.pairs.len() as u64);
        say(request::SET_OWNER, &[], &[]);
        for ring in 0..2 * self.pairs.len() as u32 {
            say(request::SET_VRING_ENABLE, &state(ring, 1), &[]);
        }
        assert_eq!(self.options.features & !offered, 0, "features not offered");
        say(request::SET_FEATURES, &number(self.options.features), &[]);
        let (table, fds) = self.memory_table();
        say(request::SET_MEM_TABLE, &table, &fds);
    }

    /// Describe the first pair's rings, which begin at these places, and start them.
    pub fn start_rings(&self, bases: [u16; 2], pump: impl FnMut()) {
        self.start_pair(0, bases, pump);
    }

    /// Describe a pair's rings, which begin at these places, and start them.
    pub fn start_pair(&self, pair: usize, bases: [u16; 2], mut pump: impl FnMut()) {
        for (ring, base) in (2 * pair as u32..).zip(bases) {
            self.start_ring(ring, base, &mut pump);
        }
    }

    /// Describe a ring, which begins at this place, and start it: the messages and the order are
    /// those of QEMU's `vhost_virtqueue_start` and, for vhost-user NICs, the `vhost_virtqueue_mask` at
    /// its end, which sends the call descriptor.
    pub fn start_ring(&self, ring: u32, base: u16, mut pump: impl FnMut()) {
        let pair = &self.pairs[ring as usize / 2];
        let queue = if ring % 2 == 0 { &pair.rx } else { &pair.tx };
        let [descriptors, used, available] = queue.user_addresses();
        let place = addresses(ring, descriptors, used, available);
        let size = state(ring, u32::from(queue.size()));
        let base = state(ring, u32::from(base));
        let (call, kick) = (Some(queue.call_fd()), Some(queue.kick_fd()));
        let itself = number(u64::from(ring));
        let messages: [(u32, &[u8], Option<_>); 5] = [
            (request::SET_VRING_NUM, &size, None),
            (request::SET_VRING_BASE, &base, None),
            (request::SET_VRING_ADDR, &place, None),
            (request::SET_VRING_KICK, &itself, kick),
            (request::SET_VRING_CALL, &itself, call),
        ];
        for (request, payload, fd) in messages {
            let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
            let waits = pair.options.replies && fd.is_some();
            if waits {
                self.wire.send_for_reply(request, payload, &fds);
            } else {
                self.wire.send(request, payload, &fds);
            }
            pump();
            if waits {
                assert_eq!(
                    self.wire.number(request),
                    0,
                    "the back-end refused {request}"
                );
            }
        }
    }

    /// Payload and descriptors of `SET_MEM_TABLE`.
    #[must_use]
    pub fn memory_table(&self) -> (Vec<u8>, Vec<std::os::fd::BorrowedFd<'_>>) {
        let regions = self.ram.regions();
        let mut table = state(regions.len() as u32, 0);
        for region in regions {
            table.extend(region.to_bytes());
        }
        (table, vec![self.ram.fd(); regions.len()])
    }

    /// Wait until the back-end has handled everything said so far.
    pub fn sync(&self) {
        assert!(self.wire.send(request::GET_FEATURES, &[], &[]));
        let _ = self.wire.number(request::GET_FEATURES);
    }

    /// Stop a ring; where it can go on.
    pub fn stop_ring(&self, ring: u32) -> u16 {
        assert!(
            self.wire
                .send(request::GET_VRING_BASE, &state(ring, 0), &[])
        );
        self.wire.state(request::GET_VRING_BASE).1 as u16
    }

    /// Give the back-end kick and call descriptors of running rings anew.
    pub fn start_rings_again(&self) {
        for (ring, queue) in [(0, &self.rx), (1, &self.tx)] {
            let ring = number(ring);
            for (request, fd) in [
                (request::SET_VRING_KICK, queue.kick_fd()),
                (request::SET_VRING_CALL, queue.call_fd()),
                (request::SET_VRING_ERR, queue.call_fd()),
            ] {
                assert!(self.wire.send(request, &ring, &[fd.as_fd()]));
            }
        }
    }

    /// Enable or disable a pair's rings, as `ethtool -L` in the guest does.
    pub fn enable_pair(&self, pair: usize, enabled: bool) {
        for ring in [2 * pair as u32, 2 * pair as u32 + 1] {
            let payload = state(ring, u32::from(enabled));
            assert!(self.wire.send(request::SET_VRING_ENABLE, &payload, &[]));
        }
        self.sync();
    }

    /// Stop the first pair's rings and go on where they stopped, as a driver that is reset does:
    /// receive buffers that were not used are posted again, frames not handed back are forgotten.
    pub fn restart(&mut self) {
        let bases = [0, 1].map(|ring| self.stop_ring(ring));
        self.pairs[0].restart(bases);
        self.start_rings(bases, || {});
        self.sync();
    }
}

/// Wait until something may have happened on one of these NICs.
pub fn wait(nics: &[&Nic]) {
    let queues: Vec<&Queue> = {
        let pairs = nics.iter().flat_map(|nic| &nic.pairs);
        pairs.flat_map(|pair| [&pair.rx, &pair.tx]).collect()
    };
    if queues.iter().any(|queue| queue.ask_for_call()) {
        return;
    }
    wait_for_any(&queues);
    for queue in queues {
        let _ = queue.calls();
    }
}
