//! Sends of messages above [`MEDIUM`]: with a [credit](crate::credits), or offered.

use crate::copy_choice::Flow;
use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::error::Error;
use crate::ids::{Peer, Request};
use crate::limits::{MEDIUM, MEDIUM_WITH_CREDIT};
use crate::memory::Memory;
use crate::peer::{Fault, Link};
use crate::published::Published;
use crate::request::{Requests, State};
use crate::wire;

impl Link {
    fn flow(&self, requests: &Requests) -> Flow {
        self.credits.flow(requests, self.messages_in.position())
    }

    /// Returns the flow of a message of this length that is to be sent with a credit.
    fn with_credit(&mut self, requests: &Requests, length: u64) -> Option<Flow> {
        let fits = length > MEDIUM && length <= MEDIUM_WITH_CREDIT;
        // Only messages to a process of this host are offered with a flow.
        if !fits || self.process.is_none() {
            return None;
        }
        let flow = self.flow(requests);
        self.credits.decide(flow).then_some(flow)
    }

    /// Uses a credit for a message of this length; false if there is none.
    #[inline(never)]
    pub(crate) fn use_credit(&mut self, requests: &Requests, length: u64) -> bool {
        let Some(flow) = self.with_credit(requests, length) else {
            return false;
        };
        let position = self.messages_in.position();
        self.credits.take(requests, flow, length, position);
        true
    }
}

impl Engine {
    /// Offers a message above [`MEDIUM`]; false if there is no room for the record.
    pub(crate) fn offer(&mut self, link: &mut Link, request: Request) -> Result<bool, Fault> {
        if !link.messages_out.has_room()? {
            return Ok(false);
        }
        let flow = link.flow(&self.requests);
        let Some(entry) = self.requests.get(request) else {
            return Ok(true);
        };
        let source = link.source(&self.heap, &entry.memory, flow);
        let status = &entry.status;
        let record = wire::offer(status.value, status.length, request.handle(), source);
        link.messages_out.push(&record);
        entry.flow = flow;
        entry.state = State::Offered;
        link.published = Published::Records;
        link.awaited_replies += 1;
        let position = link.messages_in.position();
        link.credits.offer(&self.requests, request, position);
        Ok(true)
    }
}

impl Endpoint {
    /// Starts a send for which the peer has granted a credit: the message, above [`MEDIUM`], is sent without an offer, as soon as there is room. `None` if
    /// there is no credit, or the peer is this endpoint or is gone: then nothing is sent.
    ///
    /// # Errors
    /// `peer` is no peer of this endpoint.
    pub fn isend_with_credit(
        &mut self,
        peer: Peer,
        value: u64,
        memory: Memory,
    ) -> Result<Option<Request>, Error> {
        let requests = &self.engine.requests;
        let Some(link) = self.peers.link(peer) else {
            return self.is_known(peer).map(|()| None);
        };
        match link.with_credit(requests, memory.length()) {
            Some(_) => self.isend(peer, value, memory).map(Some),
            None => Ok(None),
        }
    }

    /// Uses a credit for a message of this length that the program sends in pieces of up to [`MEDIUM`] bytes each. Returns false if there is none: then the
    /// program has the receiver ask for the message.
    ///
    /// # Errors
    /// `peer` is no peer of this endpoint.
    pub fn use_credit(&mut self, peer: Peer, length: u64) -> Result<bool, Error> {
        match self.peers.link(peer) {
            Some(link) => Ok(link.use_credit(&self.engine.requests, length)),
            None => self.is_known(peer).map(|()| false),
        }
    }
}
