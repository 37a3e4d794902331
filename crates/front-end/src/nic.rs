//! A guest's NIC: a front-end and a driver together.

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::features::{self, MRG_RXBUF, VERSION_1};
use crate::queue::{Buffer, Queue, wait_for_any};
use crate::ram::Ram;
use crate::wire::{Wire, addresses, number, request, state};

/// How the buffers of a frame are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Header and frame in one descriptor.
    One,
    /// The header in a descriptor of its own.
    HeaderApart,
    /// In descriptors of so many bytes.
    Pieces(u32),
    /// In pieces of so many bytes, behind one indirect descriptor.
    Indirect(u32),
}

/// What a NIC is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Features its driver takes.
    pub features: u64,
    /// Size of both rings.
    pub size: u16,
    /// Bytes of a receive buffer, header included.
    pub receive_bytes: u32,
    /// How receive buffers are laid out.
    pub receive_layout: Layout,
    /// Regions the memory is presented in.
    pub regions: u64,
    /// Post receive buffers at the start, and again once they are read.
    pub post: bool,
    /// Where both rings begin.
    pub base: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            features: features::PLAIN,
            size: 256,
            receive_bytes: 1600,
            receive_layout: Layout::One,
            regions: 1,
            post: true,
            base: 0,
        }
    }
}

/// A frame as the guest finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The network header.
    pub header: Vec<u8>,
    /// The frame.
    pub frame: Vec<u8>,
    /// Receive buffers it took.
    pub buffers: u16,
}

/// A guest's NIC.
#[derive(Debug)]
pub struct Nic {
    /// The vhost-user socket.
    pub wire: Wire,
    /// The guest's memory.
    pub ram: Arc<Ram>,
    /// Ring 0.
    pub rx: Queue,
    /// Ring 1.
    pub tx: Queue,
    /// What it is like.
    pub options: Options,
    /// Unused pieces of memory for receive buffers, and for frames to send.
    receive_slots: Vec<u64>,
    send_slots: Vec<u64>,
    /// The slot of each chain, by head.
    receive_at: Vec<u64>,
    send_at: Vec<u64>,
}

/// Room for a frame to send and, behind it, for an indirect table.
const SEND_SLOT: u64 = 96 * 1024;
const TABLE_AT: u64 = 80 * 1024;
/// Frames under way at a time.
const SEND_SLOTS: u64 = 64;

impl Nic {
    /// A NIC whose back-end is at the other end of `wire`. Nothing is said yet.
    #[must_use]
    pub fn new(wire: Wire, options: Options) -> Self {
        let rings = Queue::bytes(options.size).next_multiple_of(4096);
        let (send_from, _) = places(&options)[1];
        let bytes = send_from + SEND_SLOT * SEND_SLOTS;
        let region = bytes.div_ceil(options.regions).next_multiple_of(4096);
        // A ring must lie in one region.
        let region = region.max(2 * rings);
        let ram = Arc::new(Ram::in_regions(region, options.regions));
        let ring = |at, writable| {
            let mut queue = Queue::new(
                Arc::clone(&ram),
                at,
                options.size,
                writable,
                options.features,
            );
            queue.begin_at(options.base);
            queue
        };
        let (rx, tx) = (ring(0, true), ring(rings, false));
        let mut nic = Self {
            wire,
            rx,
            tx,
            ram,
            options,
            receive_slots: Vec::new(),
            send_slots: Vec::new(),
            receive_at: vec![0; usize::from(options.size)],
            send_at: vec![0; usize::from(options.size)],
        };
        nic.fill_slots();
        if options.post {
            nic.post(u16::MAX);
            let _ = nic.rx.publish();
        }
        nic
    }

    /// All memory for buffers is unused.
    fn fill_slots(&mut self) {
        let slots = |(from, step): (u64, u64), count: u64| {
            (0..count).rev().map(|i| from + step * i).collect()
        };
        let [receive, send] = places(&self.options);
        self.receive_slots = slots(receive, u64::from(self.options.size));
        self.send_slots = slots(send, SEND_SLOTS);
    }

    /// Set the device up and start both rings, in QEMU's order. `pump` is called after each
    /// message, for a back-end that runs on this thread.
    pub fn start(&mut self, mut pump: impl FnMut()) {
        self.set_up(&mut pump);
        self.start_rings([self.options.base; 2], &mut pump);
    }

    /// Go on with another back-end where the last one left off, as QEMU does when that died
    /// without a word: at the used indices.
    pub fn resume(&mut self, wire: Wire, mut pump: impl FnMut()) {
        self.wire = wire;
        self.set_up(&mut pump);
        let bases = [self.rx.used_index(), self.tx.used_index()];
        self.start_rings(bases, &mut pump);
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
        assert!(self.wire.number(request::GET_QUEUE_NUM) >= 1);
        say(request::SET_OWNER, &[], &[]);
        for ring in 0..2 {
            say(request::SET_VRING_ENABLE, &state(ring, 1), &[]);
        }
        assert_eq!(self.options.features & !offered, 0, "features not offered");
        say(request::SET_FEATURES, &number(self.options.features), &[]);
        let (table, fds) = self.memory_table();
        say(request::SET_MEM_TABLE, &table, &fds);
    }

    /// Describe both rings, which begin at these places, and start them.
    pub fn start_rings(&self, bases: [u16; 2], mut pump: impl FnMut()) {
        for (ring, base) in (0..).zip(bases) {
            self.start_ring(ring, base, &mut pump);
        }
    }

    /// Describe a ring, which begins at this place, and start it.
    pub fn start_ring(&self, ring: u32, base: u16, mut pump: impl FnMut()) {
        let queue = if ring == 0 { &self.rx } else { &self.tx };
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
            (request::SET_VRING_CALL, &itself, call),
            (request::SET_VRING_KICK, &itself, kick),
        ];
        for (request, payload, fd) in messages {
            let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
            self.wire.send(request, payload, &fds);
            pump();
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
                (request::SET_VRING_CALL, queue.call_fd()),
                (request::SET_VRING_KICK, queue.kick_fd()),
                (request::SET_VRING_ERR, queue.call_fd()),
            ] {
                assert!(self.wire.send(request, &ring, &[fd.as_fd()]));
            }
        }
    }

    /// Stop both rings and go on where they stopped, as a driver that is reset does: receive
    /// buffers that were not used are posted again, frames not handed back are forgotten.
    pub fn restart(&mut self) {
        let bases = [0, 1].map(|ring| self.stop_ring(ring));
        self.rx.restart(bases[0]);
        self.tx.restart(bases[1]);
        self.fill_slots();
        if self.options.post {
            self.post(u16::MAX);
            let _ = self.rx.publish();
        }
        self.start_rings(bases, || {});
        self.sync();
    }

    /// Bytes of the network header.
    #[must_use]
    pub fn header_size(&self) -> usize {
        if self.options.features & (VERSION_1 | MRG_RXBUF) == 0 {
            10
        } else {
            12
        }
    }

    /// Post up to `most` receive buffers without publishing them; how many.
    pub fn post(&mut self, most: u16) -> u16 {
        let mut count = 0;
        while count < most {
            let Some(slot) = self.receive_slots.last().copied() else {
                break;
            };
            let (bytes, layout) = (self.options.receive_bytes, self.options.receive_layout);
            let buffers = lay_out(slot, bytes, layout, self.header_size() as u32);
            let head = match layout {
                Layout::Indirect(_) => {
                    let table = (slot + u64::from(bytes)).next_multiple_of(16);
                    self.rx.add_indirect(table, &buffers)
                }
                _ => self.rx.add(&buffers),
            };
            let Some(head) = head else { break };
            self.receive_at[usize::from(head)] = slot;
            self.receive_slots.pop();
            count += 1;
        }
        count
    }

    /// Send a frame under an empty header; false when there is no room.
    pub fn send(&mut self, frame: &[u8], layout: Layout) -> bool {
        self.send_with(&vec![0; self.header_size()], frame, layout)
    }

    /// Send a frame under this header; false when there is no room.
    pub fn send_with(&mut self, header: &[u8], frame: &[u8], layout: Layout) -> bool {
        let sent = self.queue_up(header, frame, layout);
        if sent {
            self.tx.publish_and_kick();
        }
        sent
    }

    /// As [`send_with`](Self::send_with), but not published.
    pub fn queue_up(&mut self, header: &[u8], frame: &[u8], layout: Layout) -> bool {
        self.reclaim();
        let Some(slot) = self.send_slots.last().copied() else {
            return false;
        };
        self.ram.write(slot, header);
        self.ram.write(slot + header.len() as u64, frame);
        let bytes = (header.len() + frame.len()) as u32;
        let buffers = lay_out(slot, bytes, layout, header.len() as u32);
        let head = match layout {
            Layout::Indirect(_) => self.tx.add_indirect(slot + TABLE_AT, &buffers),
            _ => self.tx.add(&buffers),
        };
        let Some(head) = head else { return false };
        self.send_slots.pop();
        self.send_at[usize::from(head)] = slot;
        true
    }

    /// Take back the buffers of frames that are sent; how many.
    pub fn reclaim(&mut self) -> usize {
        let mut count = 0;
        while let Some((head, written)) = self.tx.take_used() {
            assert_eq!(written, 0, "nothing is written to a transmit chain");
            self.send_slots.push(self.send_at[usize::from(head)]);
            count += 1;
        }
        count
    }

    /// Frames on their way: handed to the device and not handed back.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        SEND_SLOTS as usize - self.send_slots.len()
    }

    /// The next frame received, if there is one. Its buffers are posted again if the NIC posts.
    pub fn receive(&mut self) -> Option<Received> {
        let (head, written) = self.rx.take_used()?;
        let mut bytes = self.read_buffer(head, written);
        let frame = bytes.split_off(self.header_size());
        let mut received = Received {
            header: bytes,
            frame,
            buffers: 1,
        };
        if self.options.features & MRG_RXBUF != 0 {
            received.buffers = u16::from_le_bytes([received.header[10], received.header[11]]);
            assert!(received.buffers >= 1, "num_buffers is zero");
        }
        for _ in 1..received.buffers {
            // 5.1.6.4.1: the buffers of a frame are handed back together.
            let (head, written) = self.rx.take_used().expect("all buffers of a frame");
            let more = self.read_buffer(head, written);
            received.frame.extend(more);
        }
        if self.options.post {
            self.post(u16::MAX);
            self.rx.publish_and_kick();
        }
        Some(received)
    }

    fn read_buffer(&mut self, head: u16, written: u32) -> Vec<u8> {
        assert!(
            written <= self.options.receive_bytes,
            "written past a buffer"
        );
        let slot = self.receive_at[usize::from(head)];
        let mut bytes = vec![0; written as usize];
        self.ram.read(slot, &mut bytes);
        self.receive_slots.push(slot);
        bytes
    }

    /// Wait for the next frame.
    pub fn wait_to_receive(&mut self) -> Received {
        loop {
            if let Some(received) = self.receive() {
                return received;
            }
            if !self.rx.ask_for_call() {
                self.rx.wait_for_call();
            }
        }
    }

    /// Send a frame, waiting for room.
    pub fn wait_to_send(&mut self, frame: &[u8], layout: Layout) {
        while !self.send(frame, layout) {
            if !self.tx.ask_for_call() {
                self.tx.wait_for_call();
            }
        }
    }

    /// Wait until the device has handed back everything sent.
    pub fn wait_until_sent(&mut self) {
        while self.in_flight() > 0 {
            if self.reclaim() == 0 && !self.tx.ask_for_call() {
                self.tx.wait_for_call();
            }
        }
    }
}

/// Wait until something may have happened on one of these NICs.
pub fn wait(nics: &[&Nic]) {
    let queues: Vec<&Queue> = nics.iter().flat_map(|nic| [&nic.rx, &nic.tx]).collect();
    if queues.iter().any(|queue| queue.ask_for_call()) {
        return;
    }
    wait_for_any(&queues);
    for queue in queues {
        let _ = queue.calls();
    }
}

/// Where receive buffers and frames to send begin, and the step from one to the next.
fn places(options: &Options) -> [(u64, u64); 2] {
    let rings = Queue::bytes(options.size).next_multiple_of(4096);
    let bytes = u64::from(options.receive_bytes);
    let step = match options.receive_layout {
        // A table may take sixteen bytes for each byte.
        Layout::Indirect(_) => 16 * (bytes + 2),
        _ => bytes,
    };
    let step = step.next_multiple_of(16);
    let send = 2 * rings + step * u64::from(options.size);
    [(2 * rings, step), (send, SEND_SLOT)]
}

fn lay_out(at: u64, bytes: u32, layout: Layout, header: u32) -> Vec<Buffer> {
    let pieces = |from: u32, step: u32| {
        let starts = (from..bytes).step_by(step as usize);
        starts.map(move |start| Buffer {
            address: at + u64::from(start),
            length: step.min(bytes - start),
        })
    };
    match layout {
        Layout::One => pieces(0, bytes).collect(),
        Layout::HeaderApart => {
            let header = header.min(bytes);
            let first = Buffer {
                address: at,
                length: header,
            };
            let rest = pieces(header, (bytes - header).max(1));
            std::iter::once(first).chain(rest).collect()
        }
        Layout::Pieces(step) | Layout::Indirect(step) => pieces(0, step).collect(),
    }
}
