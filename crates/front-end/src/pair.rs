//! A queue pair of a NIC with its buffers, and the driver's operations on it.

use std::sync::Arc;

use crate::features::{MRG_RXBUF, VERSION_1};
use crate::options::{Layout, Options, Received};
use crate::queue::{Buffer, Queue};
use crate::ram::Ram;

/// A receive ring, a transmit ring, and memory for buffers.
#[derive(Debug)]
pub struct Pair {
    /// The guest's memory.
    pub ram: Arc<Ram>,
    /// The receive ring.
    pub rx: Queue,
    /// The transmit ring.
    pub tx: Queue,
    /// The NIC's options.
    pub options: Options,
    /// The guest-physical address at which the pair's part of the memory begins.
    at: u64,
    /// The addresses of unused memory slots for receive buffers, and for frames to send.
    receive_slots: Vec<u64>,
    send_slots: Vec<u64>,
    /// The slot of each chain, by the chain's head.
    receive_at: Vec<u64>,
    send_at: Vec<u64>,
}

/// The size of a slot for a frame to send, with an indirect table after the frame.
const SEND_SLOT: u64 = 96 * 1024;
const TABLE_AT: u64 = 80 * 1024;
/// The maximum number of frames in flight.
const SEND_SLOTS: u64 = 64;

impl Pair {
    /// Returns the number of bytes of memory that a pair occupies.
    pub(crate) fn bytes(options: &Options) -> u64 {
        let (send_from, _) = places(options)[1];
        (send_from + SEND_SLOT * SEND_SLOTS).next_multiple_of(4096)
    }

    /// Creates a pair in the memory from address `at` on.
    pub(crate) fn new(ram: &Arc<Ram>, at: u64, options: Options) -> Self {
        let ring = |at, writable| {
            let features = options.features;
            let mut queue = Queue::new(Arc::clone(ram), at, options.size, writable, features);
            queue.begin_at(options.base);
            queue
        };
        let mut pair = Self {
            ram: Arc::clone(ram),
            rx: ring(at, true),
            tx: ring(
                at + Queue::bytes(options.size).next_multiple_of(4096),
                false,
            ),
            options,
            at,
            receive_slots: Vec::new(),
            send_slots: Vec::new(),
            receive_at: vec![0; usize::from(options.size)],
            send_at: vec![0; usize::from(options.size)],
        };
        pair.fill_slots();
        if options.post {
            pair.post(u16::MAX);
            let _ = pair.rx.publish();
        }
        pair
    }

    /// Restarts both rings at the indices `bases`. Posts unused receive buffers again, and discards
    /// frames that the device has not returned.
    pub(crate) fn restart(&mut self, bases: [u16; 2]) {
        self.rx.restart(bases[0]);
        self.tx.restart(bases[1]);
        self.fill_slots();
        if self.options.post {
            self.post(u16::MAX);
            let _ = self.rx.publish();
        }
    }

    /// Marks all memory for buffers as unused.
    fn fill_slots(&mut self) {
        let slots = |(from, step): (u64, u64), count: u64| {
            (0..count)
                .rev()
                .map(|i| self.at + from + step * i)
                .collect()
        };
        let [receive, send] = places(&self.options);
        self.receive_slots = slots(receive, u64::from(self.options.size));
        self.send_slots = slots(send, SEND_SLOTS);
    }

    /// Returns the size of the network header in bytes.
    #[must_use]
    pub fn header_size(&self) -> usize {
        if self.options.features & (VERSION_1 | MRG_RXBUF) == 0 {
            10
        } else {
            12
        }
    }

    /// Adds up to `most` receive buffers without publishing them. Returns their number.
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

    /// Sends a frame with a header of zeros. Returns false if there is no room.
    pub fn send(&mut self, frame: &[u8], layout: Layout) -> bool {
        self.send_with(&vec![0; self.header_size()], frame, layout)
    }

    /// Sends a frame with this header. Returns false if there is no room.
    pub fn send_with(&mut self, header: &[u8], frame: &[u8], layout: Layout) -> bool {
        let sent = self.enqueue(header, frame, layout);
        if sent {
            self.tx.publish_and_kick();
        }
        sent
    }

    /// Adds a frame as [`send_with`](Self::send_with) does, but does not publish it.
    pub fn enqueue(&mut self, header: &[u8], frame: &[u8], layout: Layout) -> bool {
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

    /// Returns the addresses of the unused slots for frames to send. A slot begins with the header.
    pub fn send_places(&self) -> impl Iterator<Item = u64> {
        self.send_slots.iter().copied()
    }

    /// Reclaims the buffers of frames that the device has sent. Returns their number.
    pub fn reclaim(&mut self) -> usize {
        let mut count = 0;
        while let Some((head, written)) = self.tx.take_used() {
            assert_eq!(written, 0, "nothing is written to a transmit chain");
            self.send_slots.push(self.send_at[usize::from(head)]);
            count += 1;
        }
        count
    }

    /// Returns the number of frames in flight: added to the ring, and not reclaimed yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        SEND_SLOTS as usize - self.send_slots.len()
    }

    /// Returns the next received frame, if there is one. If [`Options::post`] is set, posts its buffers
    /// again.
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
            // Virtio 1.3, section 5.1.6.4.1: the device returns all buffers of a frame together.
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

    /// Waits for the next frame and returns it.
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

    /// Sends a frame. Waits until there is room for it.
    pub fn wait_to_send(&mut self, frame: &[u8], layout: Layout) {
        while !self.send(frame, layout) {
            if !self.tx.ask_for_call() {
                self.tx.wait_for_call();
            }
        }
    }

    /// Waits until the device has returned all sent frames.
    pub fn wait_until_sent(&mut self) {
        while self.in_flight() > 0 {
            if self.reclaim() == 0 && !self.tx.ask_for_call() {
                self.tx.wait_for_call();
            }
        }
    }
}

/// Returns the offset of the first slot and the distance between slots, for receive buffers and for
/// frames to send.
fn places(options: &Options) -> [(u64, u64); 2] {
    let rings = Queue::bytes(options.size).next_multiple_of(4096);
    let bytes = u64::from(options.receive_bytes);
    let step = match options.receive_layout {
        // An indirect table has up to one descriptor of 16 bytes for each byte of the buffer.
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
        Layout::SeparateHeader => {
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
