//! Sends: completed at once where there is room, and to the endpoint itself.

use crate::endpoint::Endpoint;
use crate::engine::{Arrival, Body, Posted};
use crate::error::{Code, Error};
use crate::ids::{Peer, Request, SELF};
use crate::memory::Memory;
use crate::peer::Fault;
use crate::request::State;

impl Endpoint {
    /// Starts a send. Up to 32 KiB, it may end before the receiver posts a receive; a larger
    /// message ends when it is received.
    ///
    /// # Errors
    /// `peer` is no peer of this endpoint. If the peer is gone, the request ends with that.
    #[inline(always)]
    pub fn isend(
        &mut self,
        peer: Peer,
        value: u64,
        memory: impl Into<Memory>,
    ) -> Result<Request, Error> {
        let memory = memory.into();
        if let Some(link) = self.peers.link(peer) {
            if link.can_send_inline(memory.length()) {
                let request = self.engine.send_now(link, peer, value, memory);
                self.poll_plane();
                return Ok(request);
            }
        }
        self.send(peer, value, memory, false)
    }

    /// Starts a synchronous send, which ends when the message is received.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    pub fn issend(
        &mut self,
        peer: Peer,
        value: u64,
        memory: impl Into<Memory>,
    ) -> Result<Request, Error> {
        self.send(peer, value, memory.into(), true)
    }

    #[inline(never)]
    fn send(
        &mut self,
        peer: Peer,
        value: u64,
        memory: Memory,
        synchronous: bool,
    ) -> Result<Request, Error> {
        if let Some(link) = self.peers.link(peer) {
            let sent = self.engine.send(link, peer, value, memory, synchronous);
            self.poll_plane();
            return Ok(sent.unwrap_or_else(|fault| self.failed_send(peer, value, fault)));
        }
        self.peers.get(peer).ok_or(Error::BadPeer)?;
        let requests = &mut self.engine.requests;
        let request = requests.add(State::Offered, memory, Some(peer), value);
        match peer == SELF {
            true => self.send_own(request, value),
            false => {
                let code = self.failure_code(peer);
                self.engine.requests.end(request, code, 0);
            }
        }
        Ok(request)
    }

    /// The peer's fault was detected while sending to it. The memory is lost with the link.
    #[cold]
    fn failed_send(&mut self, peer: Peer, value: u64, _fault: Fault) -> Request {
        self.fail_peer(peer, Code::Unreachable);
        let requests = &mut self.engine.requests;
        let request = requests.add(State::Offered, Memory::Empty, Some(peer), value);
        requests.end(request, Code::Unreachable, 0);
        request
    }

    fn send_own(&mut self, request: Request, value: u64) {
        let engine = &mut self.engine;
        let fits = |posted: &Posted| posted.pattern.fits(value);
        if let Some(posted) = engine.posted.take(value, fits) {
            engine.receive_from_self(posted.request, value, request);
            return;
        }
        let length = engine.requests.get(request).map_or(0, |e| e.status.length);
        let arrival = Arrival {
            peer: SELF,
            value,
            length,
            body: Body::Own(request),
        };
        engine.add_unexpected(arrival);
    }
}
