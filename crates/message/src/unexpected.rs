//! The unexpected handler: messages that match no receive are passed to the program before they are
//! queued, as with `mx_register_unexp_handler`.
//!
//! The program sees each message once, in the order of arrival. It may post the receive for it
//! then, or consume the message.

use std::collections::VecDeque;

use crate::endpoint::Endpoint;
use crate::engine::{Arrival, Body, Engine};
use crate::error::Code;
use crate::limits::MEDIUM;
use crate::reading::Unexpected;
use crate::wire::Control;

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
                return Some(Unexpected { arrival, own });
            }
        }
    }

    /// Passes a message back: it completes a receive posted meanwhile, or is queued for a later
    /// one.
    pub fn keep(&mut self, unexpected: Unexpected) {
        self.match_or_store(unexpected.arrival);
    }

    /// Drops a message: a synchronous sender's request ends with 0 bytes taken.
    pub fn consume(&mut self, unexpected: Unexpected) {
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
            Ok(()) => link.wake_for_published(),
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
