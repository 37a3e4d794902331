//! The output queues of a node: frames and events.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use crate::buffers::Buffers;
use crate::counters::Counters;
use crate::event::{Code, Event};
use crate::limits::{
    MAX_FRAME, PULL_BLOCKS_LARGE, REPLIES_PER_REQUEST, SEND_QUEUE, SEND_QUEUE_TOTAL,
};
use crate::outgoing_datagram::{DataOfReply, OutgoingDatagram};
use crate::wire::{Frame, Mac, Packet, Reply};

/// The output of a node: frames and events.
#[derive(Debug)]
pub(crate) struct Output {
    mac: Mac,
    frames: VecDeque<Vec<u8>>,
    pub(crate) datagrams: VecDeque<OutgoingDatagram>,
    /// Number of queued frames for each host, in datagrams or not.
    queued: BTreeMap<Mac, usize>,
    /// Memory of sent frames, for the next frames.
    spare: Vec<Vec<u8>>,
    pub(crate) buffers: Buffers,
    /// Memory of messages that were acknowledged, for the next ones.
    pub(crate) message_buffers: Buffers,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
}

/// Number of frames whose memory is kept: those of the blocks of one pull in flight.
const MAX_RETAINED_FRAMES: usize = REPLIES_PER_REQUEST as usize * PULL_BLOCKS_LARGE;

/// Number of hosts whose entries stay although no frame to them is queued.
const MAX_RETAINED_HOSTS: usize = 64;

/// The destination of frames to a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) mac: Mac,
    /// This node's index in the host's table.
    pub(crate) index: u16,
    /// Where the frames go in datagrams, if all frames to this destination do.
    pub(crate) datagrams: Option<SocketAddr>,
}

impl Output {
    pub(crate) fn new(mac: Mac) -> Self {
        Self {
            mac,
            frames: VecDeque::new(),
            datagrams: VecDeque::new(),
            queued: BTreeMap::new(),
            spare: Vec::new(),
            buffers: Buffers::default(),
            message_buffers: Buffers::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Queues a packet, with this node as its source. If too many frames are queued, the packet is
    /// dropped as a network might drop it: a request is small and its answer is large, so without a
    /// limit a host could fill the memory.
    ///
    /// A connect in a datagram has the length of the longest frame: its answer proves that the path carries all others.
    pub(crate) fn send(&mut self, to: Route, packet: Packet<'_>) {
        let length = match (to.datagrams, &packet) {
            (Some(_), Packet::Connect(_)) => MAX_FRAME,
            _ => 0,
        };
        self.send_padded(to, packet, length);
    }

    /// The same with a frame of at least this length.
    pub(crate) fn send_padded(&mut self, to: Route, packet: Packet<'_>, length: usize) {
        let Some(head) = self.padded(to, packet, length) else {
            return;
        };
        match to.datagrams {
            None => self.frames.push_back(head),
            Some(to) => self.datagrams.push_back(OutgoingDatagram {
                to,
                head,
                data: None,
            }),
        }
    }

    /// Queues a reply that travels in a datagram to an address. Its data stays where it is.
    pub(crate) fn send_reply_datagram(
        &mut self,
        address: SocketAddr,
        to: Route,
        reply: &Reply<'_>,
        data: DataOfReply,
    ) {
        if let Some(mut head) = self.buffer(to) {
            let frame = self.frame(to, Packet::Reply(*reply));
            frame.encode_before_data(reply, &mut head);
            self.datagrams.push_back(OutgoingDatagram {
                to: address,
                head,
                data: Some(data),
            });
        }
    }

    fn frame<'a>(&self, to: Route, packet: Packet<'a>) -> Frame<'a> {
        Frame {
            destination: to.mac,
            source: self.mac,
            index: to.index,
            packet,
        }
    }

    fn padded(&mut self, to: Route, packet: Packet<'_>, length: usize) -> Option<Vec<u8>> {
        let mut bytes = self.buffer(to)?;
        self.frame(to, packet).encode_into(&mut bytes);
        if bytes.len() < length {
            bytes.resize(length, 0);
        }
        Some(bytes)
    }

    /// Returns an empty buffer for a frame, and counts the frame. `None` if too many frames are queued.
    fn buffer(&mut self, to: Route) -> Option<Vec<u8>> {
        let queued = self.queued.entry(to.mac).or_default();
        let total = self.frames.len() + self.datagrams.len();
        if *queued >= SEND_QUEUE || total >= SEND_QUEUE_TOTAL {
            return None;
        }
        *queued += 1;
        self.counters.sent += 1;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        Some(bytes)
    }

    /// Reports the end of a send, if the program wants to know it.
    pub(crate) fn end_send(&mut self, token: Option<u64>, code: Code, taken: u32) {
        if let Some(token) = token {
            self.events.push_back(Event::Sent { token, code, taken });
        }
    }

    /// Returns the next frame to be sent.
    pub(crate) fn transmit(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.pop_front()?;
        self.count_transmitted(&frame);
        Some(frame)
    }

    /// Removes the first frame that travels in a datagram.
    pub(crate) fn drop_datagram(&mut self) {
        if let Some(datagram) = self.datagrams.pop_front() {
            self.count_transmitted(&datagram.head);
            self.reuse(datagram.head);
        }
    }

    fn count_transmitted(&mut self, frame: &[u8]) {
        let to = frame.first_chunk().copied().map(Mac);
        if let Some(queued) = to.and_then(|to| self.queued.get_mut(&to)) {
            *queued = queued.saturating_sub(1);
        }
        // Usually the next frame goes to one of the same hosts.
        let is_empty = self.frames.is_empty() && self.datagrams.is_empty();
        if is_empty && self.queued.len() > MAX_RETAINED_HOSTS {
            self.queued.clear();
        }
    }

    pub(crate) fn reuse(&mut self, frame: Vec<u8>) {
        if self.spare.len() < MAX_RETAINED_FRAMES {
            self.spare.push(frame);
        }
    }
}
