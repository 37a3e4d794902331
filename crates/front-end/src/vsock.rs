//! A guest's socket device: a vhost-user front-end and a virtio driver together (virtio 1.3, section 5.10).

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::features::{EVENT_IDX, PROTOCOL_FEATURES, VERSION_1};
use crate::queue::{Buffer, Queue, wait_for_any};
use crate::ram::Ram;
use crate::wire::{Wire, addresses, number, request, state};

/// `VHOST_USER_PROTOCOL_F_CONFIG`.
const CONFIG: u64 = 1 << 9;

/// `VHOST_USER_GET_CONFIG`.
const GET_CONFIG: u32 = 24;

/// The features that a driver negotiates here: those of Linux with SEQPACKET.
pub const FEATURES: u64 = VERSION_1 | PROTOCOL_FEATURES | EVENT_IDX | 1 << 1;

/// The sizes of a device.
#[derive(Clone, Copy, Debug)]
pub struct VsockOptions {
    /// Size of both rings.
    pub size: u16,
    /// Bytes of a receive buffer, header included. Linux's have about 3.8 KB.
    pub receive_bytes: u32,
    /// Bytes of the place for each packet that the driver sends.
    pub send_bytes: u32,
    /// The features that the driver acknowledges.
    pub features: u64,
}

impl Default for VsockOptions {
    fn default() -> Self {
        Self {
            size: 128,
            receive_bytes: 3776,
            send_bytes: 44 + (64 << 10),
            features: FEATURES,
        }
    }
}

/// A guest's socket device.
#[derive(Debug)]
pub struct VsockDevice {
    /// The vhost-user socket.
    pub wire: Wire,
    /// The guest's memory.
    pub ram: Arc<Ram>,
    /// The receive ring.
    pub rx: Queue,
    /// The transmit ring.
    pub tx: Queue,
    options: VsockOptions,
    receive_at: u64,
    send_at: u64,
    next_send: u64,
    /// The buffer of each posted chain, by its head.
    posted: Vec<u64>,
    unposted: Vec<u64>,
}

impl VsockDevice {
    /// Creates a device whose back-end is at the other end of `wire`. Sends no message.
    #[must_use]
    pub fn new(wire: Wire, options: VsockOptions) -> Self {
        let ring = Queue::bytes(options.size).next_multiple_of(4096);
        let count = u64::from(options.size);
        let receive_at = 2 * ring;
        let send_at = receive_at + count * u64::from(options.receive_bytes);
        let bytes = send_at + count * u64::from(options.send_bytes);
        let ram = Arc::new(Ram::new(bytes.next_multiple_of(4096)));
        let queue = |at, writable| {
            Queue::new(
                Arc::clone(&ram),
                at,
                options.size,
                writable,
                options.features,
            )
        };
        Self {
            wire,
            rx: queue(0, true),
            tx: queue(ring, false),
            ram,
            options,
            receive_at,
            send_at,
            next_send: 0,
            posted: vec![0; usize::from(options.size)],
            unposted: (0..count).rev().collect(),
        }
    }

    /// Sets the device up in QEMU's order (`vuv_device_realize`, `vhost_vsock_common_start`), and returns the
    /// CID in its configuration space. Calls `pump` after each message.
    pub fn start(&mut self, mut pump: impl FnMut()) -> u64 {
        let mut say = |request, payload: &[u8], fds: &[_]| {
            assert!(
                self.wire.send(request, payload, fds),
                "the back-end hung up"
            );
            pump();
        };
        say(request::GET_FEATURES, &[], &[]);
        let offered = self.wire.number(request::GET_FEATURES);
        assert_eq!(self.options.features & !offered, 0, "features not offered");
        say(request::GET_PROTOCOL_FEATURES, &[], &[]);
        let protocol = self.wire.number(request::GET_PROTOCOL_FEATURES);
        assert!(protocol & CONFIG != 0, "QEMU needs the configuration space");
        say(request::SET_PROTOCOL_FEATURES, &number(protocol), &[]);
        say(request::SET_OWNER, &[], &[]);
        let space = [0, 8, 0].into_iter().flat_map(u32::to_ne_bytes);
        let space: Vec<u8> = space.chain([0; 8]).collect();
        say(GET_CONFIG, &space, &[]);
        let (to, config) = self.wire.reply().expect("a reply");
        assert_eq!((to, config.len()), (GET_CONFIG, 20));
        say(request::SET_FEATURES, &number(self.options.features), &[]);
        let regions = self.ram.regions();
        let mut table = state(regions.len() as u32, 0);
        regions
            .iter()
            .for_each(|region| table.extend(region.to_bytes()));
        say(
            request::SET_MEM_TABLE,
            &table,
            &vec![self.ram.fd(); regions.len()],
        );
        self.start_rings([0, 0], pump);
        u64::from_le_bytes(config[12..].try_into().unwrap())
    }

    /// Starts both rings at these indices, and enables them.
    pub fn start_rings(&self, bases: [u16; 2], mut pump: impl FnMut()) {
        for (ring, base) in (0..).zip(bases) {
            let queue = if ring == 0 { &self.rx } else { &self.tx };
            let [descriptors, used, available] = queue.user_addresses();
            let itself = number(u64::from(ring));
            let size = state(ring, u32::from(queue.size()));
            let place = addresses(ring, descriptors, used, available);
            let base = state(ring, u32::from(base));
            let messages: [(u32, &[u8], Option<_>); 6] = [
                (request::SET_VRING_NUM, &size, None),
                (request::SET_VRING_BASE, &base, None),
                (request::SET_VRING_ADDR, &place, None),
                (request::SET_VRING_KICK, &itself, Some(queue.kick_fd())),
                (request::SET_VRING_CALL, &itself, Some(queue.call_fd())),
                (request::SET_VRING_ENABLE, &state(ring, 1), None),
            ];
            for (request, payload, fd) in messages {
                let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
                assert!(self.wire.send(request, payload, &fds));
                pump();
            }
        }
    }

    /// Waits until the back-end has handled all messages sent so far.
    pub fn sync(&self) {
        assert!(self.wire.send(request::GET_FEATURES, &[], &[]));
        let _ = self.wire.number(request::GET_FEATURES);
    }

    /// Stops a ring; `pump` runs the back-end. Returns the index at which the ring can continue.
    pub fn stop_ring(&self, ring: u32, mut pump: impl FnMut()) -> u16 {
        assert!(
            self.wire
                .send(request::GET_VRING_BASE, &state(ring, 0), &[])
        );
        pump();
        self.wire.state(request::GET_VRING_BASE).1 as u16
    }

    /// Posts up to `count` receive buffers.
    pub fn post(&mut self, count: usize) {
        for _ in 0..count {
            let Some(buffer) = self.unposted.pop() else {
                break;
            };
            let length = self.options.receive_bytes;
            let address = self.receive_at + buffer * u64::from(length);
            let head = self
                .rx
                .add(&[Buffer { address, length }])
                .expect("a free descriptor");
            self.posted[usize::from(head)] = buffer;
        }
        self.rx.publish_and_kick();
    }

    /// Sends a packet if the ring has room: header and payload in two descriptors, as Linux does. Returns
    /// whether it had room.
    pub fn send(&mut self, header: &[u8], payload: &[u8]) -> bool {
        self.take_sent();
        let count = u64::from(self.options.size);
        let at = self.send_at + self.next_send % count * u64::from(self.options.send_bytes);
        let buffer = |address, bytes: &[u8]| Buffer {
            address,
            length: bytes.len() as u32,
        };
        let body = at + header.len() as u64;
        let both = [buffer(at, header), buffer(body, payload)];
        let used = if payload.is_empty() { 1 } else { 2 };
        if self.tx.free() < used || self.tx.outstanding() >= usize::from(self.options.size) {
            return false;
        }
        self.ram.write(at, header);
        self.ram.write(body, payload);
        self.tx.add(&both[..used]).expect("free descriptors");
        self.tx.publish_and_kick();
        self.next_send += 1;
        true
    }

    /// Takes back the chains that the device has returned.
    pub fn take_sent(&mut self) {
        while self.tx.take_used().is_some() {}
    }

    /// Returns the next received packet piece: header and payload. Posts no buffer again.
    pub fn receive(&mut self) -> Option<([u8; 44], Vec<u8>)> {
        let (head, written) = self.rx.take_used()?;
        let buffer = self.posted[usize::from(head)];
        self.unposted.push(buffer);
        let address = self.receive_at + buffer * u64::from(self.options.receive_bytes);
        let mut bytes = vec![0; written as usize];
        self.ram.read(address, &mut bytes);
        let payload = bytes.split_off(44);
        Some((bytes.try_into().unwrap(), payload))
    }

    /// Waits for a received packet piece.
    pub fn wait_to_receive(&mut self) -> ([u8; 44], Vec<u8>) {
        loop {
            if let Some(received) = self.receive() {
                return received;
            }
            if !self.rx.ask_for_call() {
                wait_for_any(&[&self.rx]);
                let _ = self.rx.calls();
            }
        }
    }
}
