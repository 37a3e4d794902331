//! Messages that nobody waits for, shown to the program before they are kept.
//!
//! Each of them is shown once, in the order of arrival. The program may post the receive for it
//! then, or say that it needs no receive.

use std::collections::VecDeque;

use crate::endpoint::Endpoint;
use crate::engine::{Arrival, Body, Engine};
use crate::error::Code;
use crate::ids::Peer;
use crate::limits::MEDIUM;
use crate::wire::Control;

/// A message that matched no receive. Give it back: [`keep`](Endpoint::keep) it or
/// [`consume`](Endpoint::consume) it. One that is dropped instead leaves a synchronous sender
/// waiting.
#[derive(Debug)]
#[must_use]
pub struct Unexpected {
    arrival: Arrival,
    /// A copy of one that this endpoint sent to itself.
    own: Vec<u8>,
}

impl Unexpected {
    /// Who sent it.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.arrival.peer
    }

    /// Its match value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.arrival.value
    }

    /// Its bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.arrival.length
    }

    /// The message, if it is here already: one that was sent to be buffered, or one of up to
    /// 32 KiB that the endpoint sent to itself.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
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
    /// A message of this endpoint to itself, if it is not large; empty for any other.
    fn copy_of_own(&mut self, arrival: &Arrival) -> Vec<u8> {
        let mut copy = Vec::new();
        let Body::Own(request) = arrival.body else {
            return copy;
        };
        if let (true, Some(entry)) = (arrival.length <= MEDIUM, self.requests.get(request)) {
            // It refuses nothing.
            let _all = entry.memory.read(0, arrival.length, |piece| {
                copy.extend_from_slice(piece);
                Some(())
            });
        }
        copy
    }

    /// Nobody waits for it yet.
    pub(crate) fn put_aside(&mut self, arrival: Arrival) {
        match &mut self.shown {
            Some(shown) => shown.push_back(arrival),
            None => self.unexpected.push(arrival.value, arrival),
        }
    }
}

impl Endpoint {
    /// Whether messages that nobody waits for are shown by
    /// [`next_unexpected`](Self::next_unexpected) first. Until they are asked for there, no
    /// receive finds them.
    pub fn show_unexpected(&mut self, show: bool) {
        let before = match show {
            true => self.engine.shown.replace(VecDeque::new()),
            false => self.engine.shown.take(),
        };
        for arrival in before.into_iter().flatten() {
            self.settle(arrival);
        }
    }

    /// Whether there is something to be shown.
    #[must_use]
    pub fn has_unexpected(&self) -> bool {
        let shown = self.engine.shown.as_ref();
        shown.is_some_and(|shown| !shown.is_empty())
    }

    /// The next one. Those for which a receive was posted meanwhile are received instead.
    pub fn next_unexpected(&mut self) -> Option<Unexpected> {
        loop {
            let arrival = self.engine.shown.as_mut()?.pop_front()?;
            if let Some(arrival) = self.receive(arrival) {
                let own = self.engine.copy_of_own(&arrival);
                return Some(Unexpected { arrival, own });
            }
        }
    }

    /// Give it to a receive that was posted meanwhile, or keep it for one to come.
    pub fn keep(&mut self, unexpected: Unexpected) {
        self.settle(unexpected.arrival);
    }

    /// Nobody needs it any more: a synchronous sender is told that nothing was taken.
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
        let said = match sender {
            Some(sender) => link.say(Control::Done { sender, taken: 0 }),
            None => Ok(()),
        };
        match said {
            Ok(()) if link.told => link.wake(),
            Ok(()) => {}
            Err(_) => self.lose(arrival.peer, Code::Unreachable),
        }
    }

    fn settle(&mut self, arrival: Arrival) {
        let Some(arrival) = self.receive(arrival) else {
            return;
        };
        let hopeless =
            matches!(arrival.body, Body::Offer(_)) && self.peers.link(arrival.peer).is_none();
        if !hopeless {
            self.engine.unexpected.push(arrival.value, arrival);
        }
    }

    /// Give it to a receive, or back.
    fn receive(&mut self, arrival: Arrival) -> Option<Arrival> {
        let Some(request) = self.engine.match_posted(arrival.value) else {
            return Some(arrival);
        };
        self.deliver(request, arrival);
        None
    }
}
