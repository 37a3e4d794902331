//! The virtio driver of the benchmark's own generator: one queue pair over vhost-user with split
//! rings. Every descriptor has a buffer of its own that is written once, so that the driver writes only a stamp and an
//! available entry for a frame, and reads one used element.
//!
//! Rings and buffers are shared memory, which the driver reads and writes as atomic words.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use front_end::wire::{addresses, number, request, state};
use front_end::{Ram, Wire, features};
use rustix::event::{EventfdFlags, eventfd};

use vm_harness::error::{Context, Result};

/// Descriptors of a ring.
pub(crate) const RING: u16 = 256;

/// Bytes of the network header before a frame.
const HEADER: usize = 12;

/// Place of a stamp: the first words after the TCP header, in words from the buffer's start.
const STAMP: usize = 17;

/// The value of `VIRTQ_AVAIL_F_NO_INTERRUPT` and of `VIRTQ_USED_F_NO_NOTIFY`.
const SUPPRESS: u32 = 1;

/// Vhost-user protocol feature `MQ`; without it DPDK does not report how many rings it has.
const PROTOCOL_MQ: u64 = 1;

/// Properties of a NIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Features that the driver negotiates, beside those of every NIC.
    pub(crate) features: u64,
    /// The longest frame, in bytes.
    pub(crate) longest: usize,
}

/// The driver's side of one ring (virtio 1.3, section 2.7).
struct Ring {
    /// Offsets in the memory, in words.
    available: usize,
    used: usize,
    /// The first buffer, and the step to the next.
    buffers: usize,
    step: usize,
    next_available: u16,
    next_used: u16,
    /// Flags of the available ring.
    flags: u32,
    kick: OwnedFd,
    call: OwnedFd,
}

/// A NIC that is connected to a switch.
pub(crate) struct Driver {
    _wire: Wire,
    ram: Arc<Ram>,
    receive: Ring,
    transmit: Ring,
    /// Transmit buffers that the driver owns.
    free: Vec<u16>,
}

impl Driver {
    /// Sets up a NIC whose switch is at the other end of `socket`. All frames that it sends begin with
    /// `frame`, after the network header `header`.
    pub(crate) fn start(
        socket: OwnedFd,
        kind: Kind,
        header: [u8; HEADER],
        frame: &[u8],
    ) -> Result<Self> {
        let step = (HEADER + kind.longest).next_multiple_of(64);
        let rings = ring_bytes().next_multiple_of(4096);
        let buffers = step * usize::from(RING);
        let ram = Arc::new(Ram::new((2 * (rings + buffers)) as u64));
        let receive = Ring::new(0, 2 * rings, step)?;
        let transmit = Ring::new(rings, 2 * rings + buffers, step)?;
        let longest = (HEADER + kind.longest) as u64;
        receive.write_descriptors(&ram, longest, front_end::queue::WRITE);
        transmit.write_descriptors(&ram, (HEADER + frame.len()) as u64, 0);
        let bytes = [&header, frame].concat();
        for buffer in 0..usize::from(RING) {
            ram.write((4 * transmit.buffers + step * buffer) as u64, &bytes);
        }
        let wire = Wire::new(socket);
        set_up(&wire, &ram, kind.features, &[&receive, &transmit]);
        let mut driver = Self {
            _wire: wire,
            ram,
            receive,
            transmit,
            free: (0..RING).collect(),
        };
        let words = driver.ram.words();
        for buffer in 0..RING {
            driver.receive.offer(words, buffer);
        }
        driver.receive.publish(words);
        Ok(driver)
    }

    /// Returns the number of free transmit buffers.
    pub(crate) fn room(&mut self) -> usize {
        let words = self.ram.words();
        while let Some((buffer, _)) = self.transmit.take_used(words) {
            self.free.push(buffer);
        }
        self.free.len()
    }

    /// Makes a frame to `to` available, with this stamp; does nothing if there is no
    /// [`room`](Self::room).
    pub(crate) fn send(&mut self, to: [u8; 6], stamp: u64) {
        let Some(buffer) = self.free.pop() else {
            return;
        };
        let words = self.ram.words();
        let at = self.transmit.buffer(buffer);
        let [a, b, c, d, e, f] = to;
        // The frame begins at the fourth word, and its source address in the middle of the fifth.
        let source = load(words, at + 4) & 0xffff_0000;
        store(words, at + 3, u32::from_le_bytes([a, b, c, d]));
        store(
            words,
            at + 4,
            source | u32::from(u16::from_le_bytes([e, f])),
        );
        store(words, at + STAMP, low(stamp));
        store(words, at + STAMP + 1, low(stamp >> 32));
        self.transmit.offer(words, buffer);
    }

    /// Publishes the available entries of both rings.
    pub(crate) fn publish(&mut self) {
        let words = self.ram.words();
        self.transmit.publish(words);
        self.receive.publish(words);
    }

    /// Takes up to `most` received frames, and calls `seen` with the stamp of each.
    pub(crate) fn receive(&mut self, most: usize, mut seen: impl FnMut(u64)) -> usize {
        let words = self.ram.words();
        for count in 0..most {
            let Some((buffer, _)) = self.receive.take_used(words) else {
                return count;
            };
            let at = self.receive.buffer(buffer) + STAMP;
            seen(u64::from(load(words, at)) | u64::from(load(words, at + 1)) << 32);
            self.receive.offer(words, buffer);
        }
        most
    }

    /// Like [`send`](Self::send), with another source address.
    pub(crate) fn send_from(&mut self, from: [u8; 6], to: [u8; 6]) {
        let Some(buffer) = self.free.last() else {
            return;
        };
        let words = self.ram.words();
        let at = self.transmit.buffer(*buffer);
        let [a, b, c, d, e, f] = from;
        let to_end = load(words, at + 4) & 0xffff;
        store(
            words,
            at + 4,
            to_end | u32::from(u16::from_le_bytes([a, b])) << 16,
        );
        store(words, at + 5, u32::from_le_bytes([c, d, e, f]));
        self.send(to, 0);
    }

    /// Enables or disables calls for received frames; a sleeping guest enables them.
    pub(crate) fn set_interrupts(&mut self, calls: bool) {
        self.receive.flags = if calls { 0 } else { SUPPRESS };
    }
}

impl Ring {
    /// Makes a ring at `at` whose buffers are at `buffers`, all in bytes.
    fn new(at: usize, buffers: usize, step: usize) -> Result<Self> {
        let event = || {
            let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            made.context(|| "make an event descriptor".to_owned())
        };
        let size = usize::from(RING);
        let available = at + 16 * size;
        Ok(Self {
            available: available / 4,
            used: (available + 8 + 2 * size).next_multiple_of(64) / 4,
            buffers: buffers / 4,
            step: step / 4,
            next_available: 0,
            next_used: 0,
            flags: SUPPRESS,
            kick: event()?,
            call: event()?,
        })
    }

    /// Returns the guest-physical addresses of descriptors, used and available ring.
    fn places(&self) -> [u64; 3] {
        let descriptors = self.available * 4 - 16 * usize::from(RING);
        [descriptors, self.used * 4, self.available * 4].map(|at| at as u64)
    }

    /// Writes the descriptors: number `n` is buffer `n`, `length` bytes of it.
    fn write_descriptors(&self, ram: &Ram, length: u64, flags: u16) {
        let [descriptors, ..] = self.places();
        for buffer in 0..RING {
            let piece = front_end::Buffer {
                address: (self.buffer(buffer) * 4) as u64,
                length: low(length),
            };
            let bytes = front_end::queue::descriptor(piece, flags, 0);
            ram.write(descriptors + 16 * u64::from(buffer), &bytes);
        }
    }

    /// Returns the offset of a buffer, in words.
    fn buffer(&self, number: u16) -> usize {
        self.buffers + self.step * usize::from(number)
    }

    fn offer(&mut self, words: &[AtomicU32], buffer: u16) {
        let place = usize::from(self.next_available % RING);
        let at = self.available + 1 + place / 2;
        let shift = 16 * (place % 2);
        let other = load(words, at) & !(0xffff << shift);
        store(words, at, other | u32::from(buffer) << shift);
        self.next_available = self.next_available.wrapping_add(1);
    }

    /// Publishes the offered entries, and kicks the switch if it wants that.
    fn publish(&mut self, words: &[AtomicU32]) {
        let shown = self.flags | u32::from(self.next_available) << 16;
        let Some(place) = words.get(self.available) else {
            return;
        };
        if place.load(Ordering::Relaxed) == shown {
            return;
        }
        place.store(shown, Ordering::Release);
        fence(Ordering::SeqCst);
        if load(words, self.used) & SUPPRESS == 0 {
            // A write to a full eventfd fails, but the switch wakes nevertheless.
            let _full = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
        }
    }

    /// Returns the next used buffer, and the number of bytes written into it.
    fn take_used(&mut self, words: &[AtomicU32]) -> Option<(u16, u32)> {
        let index = words.get(self.used)?.load(Ordering::Acquire) >> 16;
        if index == u32::from(self.next_used) {
            return None;
        }
        let at = self.used + 1 + 2 * usize::from(self.next_used % RING);
        self.next_used = self.next_used.wrapping_add(1);
        let buffer = load(words, at) % u32::from(RING);
        Some((u16::try_from(buffer).ok()?, load(words, at + 1)))
    }
}

/// Bytes of a ring's descriptors, available ring and used ring.
fn ring_bytes() -> usize {
    26 * usize::from(RING) + 128
}

fn load(words: &[AtomicU32], at: usize) -> u32 {
    words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
}

fn store(words: &[AtomicU32], at: usize, value: u32) {
    if let Some(word) = words.get(at) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Returns the low 32 bits.
fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default()
}

/// Sends memory and rings to the switch, and waits until it has processed the messages.
fn set_up(wire: &Wire, ram: &Ram, features: u64, rings: &[&Ring; 2]) {
    let ask = |request| {
        wire.send(request, &[], &[]);
        wire.number(request)
    };
    let features = features | features::VERSION_1 | features::MRG_RXBUF;
    let offered = ask(request::GET_FEATURES);
    let wanted = (features | features::PROTOCOL_FEATURES) & offered;
    let protocol = ask(request::GET_PROTOCOL_FEATURES) & PROTOCOL_MQ;
    wire.send(request::SET_PROTOCOL_FEATURES, &number(protocol), &[]);
    wire.send(request::SET_OWNER, &[], &[]);
    wire.send(request::SET_FEATURES, &number(wanted), &[]);
    let table: Vec<u8> = ram
        .regions()
        .iter()
        .flat_map(|region| region.to_bytes())
        .collect();
    let table = [state(1, 0), table].concat();
    wire.send(request::SET_MEM_TABLE, &table, &[ram.fd()]);
    for (index, ring) in (0..).zip(rings) {
        let [descriptors, used, available] =
            ring.places().map(|place| front_end::ram::USER_BASE + place);
        let at = number(u64::from(index));
        wire.send(request::SET_VRING_NUM, &state(index, u32::from(RING)), &[]);
        wire.send(request::SET_VRING_BASE, &state(index, 0), &[]);
        let places = addresses(index, descriptors, used, available);
        wire.send(request::SET_VRING_ADDR, &places, &[]);
        wire.send(request::SET_VRING_KICK, &at, &[ring.kick.as_fd()]);
        wire.send(request::SET_VRING_CALL, &at, &[ring.call.as_fd()]);
        wire.send(request::SET_VRING_ENABLE, &state(index, 1), &[]);
    }
    let _known = ask(request::GET_FEATURES);
}
