//! The unexpected handler: messages that match no receive are passed to the program before they are
//! queued, as with `mx_register_unexp_handler`.
//!
//! The program sees each message once, in the order of arrival. It may post the receive for it
//! then, or consume the message.

use std::collections::VecDeque;

use crate::endpoint::Endpoint;
use crate::engine::{Arrival, Body, Engine};
use crate::error::Code;
use crate::ids::Peer;
use crate::limits::MEDIUM;
use crate::wire::Control;

/// A message that matched no receive. The program must pass it back, to [`keep`](Endpoint::keep) or
/// to [`consume`](Endpoint::consume). If it drops the message instead, a synchronous sender waits
/// without a limit.
#[derive(Debug)]
#[must_use]
pub struct Unexpected {
    pub(crate) arrival: Arrival,
    /// A copy of a message that this endpoint sent to itself.
    own: Vec<u8>,
    /// The offset in the lane's data area, if the message is still there.
    pub(crate) place: Option<u32>,
}

impl Unexpected {
    pub(crate) fn new(arrival: Arrival, place: Option<u32>) -> Self {
        let own = Vec::new();
        Self {
            arrival,
            own,
            place,
        }
    }

    /// Returns the sender.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.arrival.peer
    }

    /// Returns the match value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.arrival.value
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.arrival.length
    }

    /// Returns the message, if it has arrived: a buffered message, or one of up to 32 KiB that the
    /// endpoint sent to itself. `None` for a message that is read [in place](Endpoint::next_in_place).
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.place.is_some() {
            return None;
        }
        let length = usize::try_from(self.arrival.length).ok()?;
        match &self.arrival.body {
            Body::Eager(bytes) => bytes.get(..length),
            Body::Bytes(bytes, None) => Some(bytes),
            Body::Own(_) => (self.own.len() == length).then_some(&self.own[..]),
            Body::Bytes(_, Some(_)) | Body::Offer(_) => None,
        }
    }
}

impl Engine {
    /// Copies a message of this endpoint to itself, if it is not large; empty for any other
    /// message.
    fn copy_of_own(&mut self, arrival: &Arrival) -> Vec<u8> {
        let mut copy = Vec::new();
        let Body::Own(request) = arrival.body else {
            return copy;
        };
        if let (true, Some(entry)) = (arrival.length <= MEDIUM, self.requests.get(request)) {
            // The closure always continues.
            let _all = entry.memory.read(0, arrival.length, |piece| {
                copy.extend_from_slice(piece);
                Some(())
            });
        }
        copy
    }

    /// Queues a message that no receive matches, for the handler or for later receives.
    pub(crate) fn add_unexpected(&mut self, arrival: Arrival) {
        match &mut self.handler_queue {
            Some(handler_queue) => handler_queue.push_back(arrival),
            None => self.unexpected.push(arrival.value, arrival),
        }
    }
}

impl Endpoint {
    /// Sets whether unexpected messages go to [`next_unexpected`](Self::next_unexpected) first.
    /// Until the program has taken them from there, no receive matches them.
    pub fn show_unexpected(&mut self, show: bool) {
        let before = match show {
            true => self.engine.handler_queue.replace(VecDeque::new()),
            false => self.engine.handler_queue.take(),
        };
        for arrival in before.into_iter().flatten() {
            self.match_or_store(arrival);
        }
    }

    /// Returns whether there is an unexpected message for the handler.
    #[must_use]
    pub fn has_unexpected(&self) -> bool {
        let handler_queue = self.engine.handler_queue.as_ref();
        handler_queue.is_some_and(|handler_queue| !handler_queue.is_empty())
    }

    /// Returns the next unexpected message. A message that matches a receive posted meanwhile
    /// completes that receive instead.
    pub fn next_unexpected(&mut self) -> Option<Unexpected> {
        loop {
            let arrival = self.engine.handler_queue.as_mut()?.pop_front()?;
            if let Some(arrival) = self.receive(arrival) {
                let own = self.engine.copy_of_own(&arrival);
                return Some(Unexpected {
                    own,
                    ..Unexpected::new(arrival, None)
                });
            }
        }
    }

    /// Passes a message back: it completes a receive posted meanwhile, or is queued for a later
    /// one.
    pub fn keep(&mut self, mut unexpected: Unexpected) {
        if unexpected.place.is_some() {
            self.copy_out(&mut unexpected);
        }
        self.match_or_store(unexpected.arrival);
    }

    /// Drops a message: a synchronous sender's request ends with 0 bytes taken.
    #[inline]
    pub fn consume(&mut self, unexpected: Unexpected) {
        if unexpected.place.is_some() {
            self.release_place(unexpected.arrival.peer);
        }
        let arrival = unexpected.arrival;
        let sender = match arrival.body {
            Body::Own(sender) => return self.engine.requests.end_with(sender, 0),
            Body::Bytes(_, sender) => sender,
            Body::Offer(offered) => Some(offered.sender),
            Body::Eager(_) => None,
        };
        let Some(link) = self.peers.link(arrival.peer) else {
            return;
        };
        link.unexpected = link.unexpected.saturating_sub(arrival.cost());
        let sent = match sender {
            Some(sender) => link.send_control(Control::Done { sender, taken: 0 }),
            None => Ok(()),
        };
        match sent {
            Ok(()) if link.published => link.wake(),
            Ok(()) => {}
            Err(_) => self.fail_peer(arrival.peer, Code::Unreachable),
        }
    }

    fn match_or_store(&mut self, arrival: Arrival) {
        let Some(arrival) = self.receive(arrival) else {
            return;
        };
        let is_unavailable =
            matches!(arrival.body, Body::Offer(_)) && self.peers.link(arrival.peer).is_none();
        if !is_unavailable {
            self.engine.unexpected.push(arrival.value, arrival);
        }
    }

    /// Completes a matching receive, or returns the message.
    fn receive(&mut self, arrival: Arrival) -> Option<Arrival> {
        let Some(request) = self.engine.match_posted(arrival.value) else {
            return Some(arrival);
        };
        self.deliver(request, arrival);
        None
    }
}
