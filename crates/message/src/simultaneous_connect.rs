//! Connects that gave way to the other side's.
//!
//! Two endpoints connect to each other at the same time. The one with the lower address keeps its own offer, and
//! the other one waits for that. It may never come: somebody between them refuses it, or its maker ends. So who
//! gave way asks again after a pause, until there is a link or the other side says that there is none.

use std::time::Instant;

use crate::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::limits::GIVEN_WAY;
use crate::pending_connects::Handshakes;
use crate::request::State;

impl Handshakes {
    /// When the next connect that gave way is made again.
    pub(crate) fn due(&self) -> Option<Instant> {
        let all = self.outgoing.values();
        all.filter_map(|outgoing| outgoing.again).min()
    }
}

impl Endpoint {
    /// The other side's own offer is on the way; the requests wait for that.
    pub(crate) fn give_way(&mut self, id: u32) {
        if let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) {
            outgoing.again = Some(Instant::now() + GIVEN_WAY);
        }
    }

    /// Ask again where the other side's offer did not come.
    pub(crate) fn insist(&mut self) {
        if self.handshakes.due().is_none() {
            return;
        }
        let now = Instant::now();
        let all = self.handshakes.outgoing.iter();
        let due = all.filter(|(_, outgoing)| outgoing.again.is_some_and(|again| again <= now));
        let due: Vec<u32> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.ask_again(id);
        }
    }

    fn ask_again(&mut self, id: u32) {
        let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) else {
            return;
        };
        let (address, key) = (outgoing.address, outgoing.key);
        let requests = &mut self.engine.requests;
        outgoing.again = None;
        outgoing.requests.retain(|(request, _)| {
            let entry = requests.get(*request);
            entry.is_some_and(|entry| entry.state == State::Connecting)
        });
        if outgoing.requests.is_empty() {
            self.handshakes.outgoing.remove(&id);
            return;
        }
        match self.offer(id, address, key) {
            Ok(offer) => {
                if let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) {
                    outgoing.offer = Some(offer);
                }
            }
            Err(Error::Connection(code)) => self.fail(id, code),
            // There is no gateway any more.
            Err(Error::UnknownNic(_)) => self.fail(id, Code::Closed),
            Err(_) => self.fail(id, Code::NoResources),
        }
    }
}
