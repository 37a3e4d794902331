//! Connects that gave way to the other side's.
//!
//! Two endpoints connect to each other at the same time. The one with the lower address keeps its own offer, and
//! the other one waits for that. It may never come: somebody between them refuses it, or its maker ends. So who
//! gave way asks retry_at after a pause, until there is a link or the other side says that there is none.

use std::time::Instant;

use crate::connect::Handshakes;
use crate::endpoint::Endpoint;
use crate::limits::SIMULTANEOUS_RETRY;
use crate::request::State;
use crate::status::{Code, Error};

impl Handshakes {
    /// When the next connect that gave way is made retry_at.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        let all = self.outgoing.values();
        all.filter_map(|outgoing| outgoing.retry_at).min()
    }
}

impl Endpoint {
    /// The other side's own offer is on the way; the requests wait for that.
    pub(crate) fn await_peer_offer(&mut self, id: u32) {
        if let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) {
            outgoing.retry_at = Some(Instant::now() + SIMULTANEOUS_RETRY);
        }
    }

    /// Ask retry_at where the other side's offer did not come.
    pub(crate) fn retry_connects(&mut self) {
        if self.handshakes.next_retry().is_none() {
            return;
        }
        let now = Instant::now();
        let all = self.handshakes.outgoing.iter();
        let next_retry =
            all.filter(|(_, outgoing)| outgoing.retry_at.is_some_and(|retry_at| retry_at <= now));
        let next_retry: Vec<u32> = next_retry.map(|(id, _)| *id).collect();
        for id in next_retry {
            self.retry_connect(id);
        }
    }

    fn retry_connect(&mut self, id: u32) {
        let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) else {
            return;
        };
        let (address, key) = (outgoing.address, outgoing.key);
        let requests = &mut self.engine.requests;
        outgoing.retry_at = None;
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
            Err(Error::Connection(code)) => self.fail_connect(id, code),
            // There is no gateway any more.
            Err(Error::UnknownNic(_)) => self.fail_connect(id, Code::Closed),
            Err(_) => self.fail_connect(id, Code::NoResources),
        }
    }
}
