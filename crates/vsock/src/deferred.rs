//! Packets of one sender that were copied out of its transmit ring, because their receiver has no buffers and
//! packets for other receivers wait behind them.

use std::collections::{BTreeMap, VecDeque};

use vhost::copy::Cursor;

use crate::header::Header;
use crate::limits::{MAX_DEFERRED_BYTES, MAX_DEFERRED_PACKETS};

/// A packet of this device, or one that was copied out of a ring.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) header: Header,
    /// The payload that is not delivered yet begins at `delivered`.
    pub(crate) payload: Vec<u8>,
    pub(crate) delivered: u32,
}

impl Copied {
    /// Returns a packet without payload.
    pub(crate) fn control(header: Header) -> Self {
        Self {
            header,
            payload: Vec::new(),
            delivered: 0,
        }
    }
}

/// The deferred packets of one sender.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// By the number of their receiver, in order.
    queues: BTreeMap<usize, VecDeque<Copied>>,
    packets: usize,
    bytes: usize,
}

impl Deferred {
    /// Returns whether packets wait for this receiver, so that others must wait behind them.
    pub(crate) fn waits_for(&self, receiver: usize) -> bool {
        self.queues.contains_key(&receiver)
    }

    /// Returns the receivers for which packets wait.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = usize> + '_ {
        self.queues.keys().copied()
    }

    /// Returns whether there is room for a packet with so many bytes.
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        let bytes = self.bytes.saturating_add(bytes as usize);
        self.packets < MAX_DEFERRED_PACKETS && bytes <= MAX_DEFERRED_BYTES
    }

    /// Copies the rest of a packet: all but the first `delivered` bytes, which the cursor has passed.
    pub(crate) fn push(
        &mut self,
        receiver: usize,
        header: Header,
        delivered: u32,
        mut from: Cursor<'_, '_>,
    ) {
        let mut payload = vec![0; header.len as usize];
        if let Some(rest) = payload.get_mut(delivered as usize..) {
            from.read(rest);
        }
        self.bytes += payload.len();
        self.packets += 1;
        self.queues.entry(receiver).or_default().push_back(Copied {
            header,
            payload,
            delivered,
        });
    }

    /// Returns the first packet for a receiver.
    pub(crate) fn first_for(&mut self, receiver: usize) -> Option<&mut Copied> {
        self.queues.get_mut(&receiver)?.front_mut()
    }

    /// Removes the first packet for a receiver.
    pub(crate) fn remove_first_for(&mut self, receiver: usize) {
        let Some(queue) = self.queues.get_mut(&receiver) else {
            return;
        };
        if let Some(copied) = queue.pop_front() {
            self.packets -= 1;
            self.bytes -= copied.payload.len();
        }
        if queue.is_empty() {
            self.queues.remove(&receiver);
        }
    }

    /// Removes all packets for a receiver.
    pub(crate) fn remove_for(&mut self, receiver: usize) {
        while self.waits_for(receiver) {
            self.remove_first_for(receiver);
        }
    }
}
