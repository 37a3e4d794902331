//! Simultaneous connects.
//!
//! Two endpoints connect to each other at the same time. The one with the lower address keeps its
//! own offer, and the other one waits for that offer. It may never arrive: a relay in between may
//! refuse it, or the peer may end. So the waiting endpoint sends its own offer again after a pause,
//! until there is a link or the peer refuses.
//!
//! In the same way, an endpoint repeats an offer of a link by datagrams that the peer has not answered, for a link by the daemons
//! ([`crate::introductions`]).

use std::time::Instant;

use crate::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::limits::{DATAGRAMS_TIMEOUT, SIMULTANEOUS_RETRY};
use crate::pending_connects::{Handshakes, Stage};
use crate::request::State;

impl Handshakes {
    /// Returns the earliest time at which an offer is sent again.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        let all = self.outgoing.values();
        all.filter_map(|outgoing| outgoing.retry_at).min()
    }
}

impl Endpoint {
    /// Makes the requests wait for the offer that the peer has sent.
    pub(crate) fn await_peer_offer(&mut self, id: u32) {
        if let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) {
            outgoing.retry_at = Some(Instant::now() + SIMULTANEOUS_RETRY);
        }
    }

    /// Sends offers again where the peer's did not arrive in time.
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

    pub(crate) fn retry_connect(&mut self, id: u32) {
        let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) else {
            return;
        };
        if let Some((channel, _)) = outgoing.offer.take() {
            // The peer has not answered by datagrams.
            self.waiter.remove(&channel);
            outgoing.stage = Stage::Link;
        }
        let (address, key, stage) = (outgoing.address, outgoing.key, outgoing.stage);
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
        match self.offer(id, address, key, stage) {
            Ok(offer) => {
                if let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) {
                    outgoing.offer = Some(offer);
                    let gives_up = stage == Stage::Datagrams;
                    outgoing.retry_at = gives_up.then(|| Instant::now() + DATAGRAMS_TIMEOUT);
                }
            }
            Err(Error::Connection(code)) => self.fail_connect(id, code),
            // The gateway has ended.
            Err(Error::UnknownNic(_)) => self.fail_connect(id, Code::Closed),
            Err(_) => self.fail_connect(id, Code::NoResources),
        }
    }
}
