//! A guest's NIC: a vhost-user front-end and a virtio driver together.

use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::options::Options;
use crate::pair::Pair;
use crate::queue::{Queue, wait_for_any};
use crate::ram::Ram;
use crate::wire::{Wire, addresses, number, request, state};

/// A guest's NIC. It dereferences to its first queue pair.
#[derive(Debug)]
pub struct Nic {
    /// The vhost-user socket.
    pub wire: Wire,
    /// The NIC's queue pairs.
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
    /// Creates a NIC whose back-end is at the other end of `wire`. Sends no message.
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

    /// Sets the device up and starts all rings, in QEMU's order. Calls `pump` after each message: a
    /// back-end that runs on this thread handles the message there.
    pub fn start(&mut self, mut pump: impl FnMut()) {
        self.set_up(&mut pump);
        for pair in 0..self.pairs.len() {
            self.start_pair(pair, [self.options.base; 2], &mut pump);
        }
    }

    /// Continues with another back-end at the used indices, as QEMU does when the last back-end ended
    /// without a reply to `GET_VRING_BASE`.
    pub fn resume(&mut self, wire: Wire, mut pump: impl FnMut()) {
        self.wire = wire;
        self.set_up(&mut pump);
        for (number, pair) in self.pairs.iter().enumerate() {
            let bases = [pair.rx.used_index(), pair.tx.used_index()];
            self.start_pair(number, bases, &mut pump);
        }
    }

    /// Sets the device up, without its rings.
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

    /// Sets up the first pair's rings, which begin at the indices `bases`, and starts them.
    pub fn start_rings(&self, bases: [u16; 2], pump: impl FnMut()) {
        self.start_pair(0, bases, pump);
    }

    /// Sets up a pair's rings, which begin at the indices `bases`, and starts them.
    pub fn start_pair(&self, pair: usize, bases: [u16; 2], mut pump: impl FnMut()) {
        for (ring, base) in (2 * pair as u32..).zip(bases) {
            self.start_ring(ring, base, &mut pump);
        }
    }

    /// Sets up a ring, which begins at the index `base`, and starts it. The messages and their order
    /// are those of QEMU's `vhost_virtqueue_start` and, for vhost-user NICs, of the
    /// `vhost_virtqueue_mask` at its end, which sends the call descriptor.
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

    /// Returns the payload and the descriptors of `SET_MEM_TABLE`.
    #[must_use]
    pub fn memory_table(&self) -> (Vec<u8>, Vec<std::os::fd::BorrowedFd<'_>>) {
        let regions = self.ram.regions();
        let mut table = state(regions.len() as u32, 0);
        for region in regions {
            table.extend(region.to_bytes());
        }
        (table, vec![self.ram.fd(); regions.len()])
    }

    /// Waits until the back-end has handled all messages sent so far.
    pub fn sync(&self) {
        assert!(self.wire.send(request::GET_FEATURES, &[], &[]));
        let _ = self.wire.number(request::GET_FEATURES);
    }

    /// Stops a ring. Returns the available index at which the ring can continue.
    pub fn stop_ring(&self, ring: u32) -> u16 {
        assert!(
            self.wire
                .send(request::GET_VRING_BASE, &state(ring, 0), &[])
        );
        self.wire.state(request::GET_VRING_BASE).1 as u16
    }

    /// Sends the kick, call and error descriptors of running rings to the back-end again.
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

    /// Enables or disables a pair's rings, as `ethtool -L` in the guest does.
    pub fn enable_pair(&self, pair: usize, enabled: bool) {
        for ring in [2 * pair as u32, 2 * pair as u32 + 1] {
            let payload = state(ring, u32::from(enabled));
            assert!(self.wire.send(request::SET_VRING_ENABLE, &payload, &[]));
        }
        self.sync();
    }

    /// Stops the first pair's rings and starts them again where they stopped, as a driver does after a
    /// reset. The driver posts unused receive buffers again, and discards frames that the device has
    /// not returned.
    pub fn restart(&mut self) {
        let bases = [0, 1].map(|ring| self.stop_ring(ring));
        self.pairs[0].restart(bases);
        self.start_rings(bases, || {});
        self.sync();
    }
}

/// Waits until the device may have returned buffers on one of these NICs.
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
