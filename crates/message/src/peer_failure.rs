//! Peers that have ended, or are disconnected.

use window::attach::Channel;

use crate::endpoint::Endpoint;
use crate::engine::{Arrival, Body};
use crate::error::{Code, Error};
use crate::ids::Peer;
use crate::limits::MAX_LOST_PEERS;

impl Endpoint {
    /// Disconnects a peer. Its pending requests end with [`Code::Closed`].
    ///
    /// # Errors
    /// `peer` is no peer of this endpoint.
    pub fn disconnect(&mut self, peer: Peer) -> Result<(), Error> {
        self.peers.get(peer).ok_or(Error::BadPeer)?;
        self.fail_peer(peer, Code::Closed);
        Ok(())
    }

    /// Returns a peer that was lost since the last call: closed, ended or disconnected.
    pub fn lost(&mut self) -> Option<Peer> {
        self.lost.pop_front()
    }

    /// Returns why a peer without a link cannot be sent to: whether its address is in use again.
    #[cold]
    pub(crate) fn failure_code(&self, peer: Peer) -> Code {
        let Some(known) = self.peers.get(peer) else {
            return Code::Closed;
        };
        let remote = known.address.nic != self.address.nic;
        let again = match self.peers.find_linked(known.address) {
            // Only the peer's own board knows.
            None if remote => false,
            Some(now) => self.session_of(now) != Some(known.session),
            None => Channel::connect(&self.board.socket(known.address.endpoint)).is_ok(),
        };
        match again {
            true => Code::BadSession,
            false => Code::Closed,
        }
    }

    /// Handles a peer on another host that does not answer any more. What arrived before is
    /// received.
    #[cold]
    pub(crate) fn fail_unreachable(&mut self, peer: Peer) {
        if let Some(link) = self.peers.link(peer) {
            let _end = self.engine.drain(link, peer);
        }
        self.fail_peer(peer, Code::Unreachable);
    }

    /// Removes a peer's link, and ends every request that waits for the peer.
    #[cold]
    pub(crate) fn fail_peer(&mut self, peer: Peer, code: Code) {
        let Some(mut link) = self.peers.unlink(peer) else {
            return;
        };
        self.waiter.remove(&link.channel);
        if code == Code::Closed {
            // What the peer sent completely before its end is received. A protocol violation ends
            // that.
            let _end = self.engine.drain(&mut link, peer);
        }
        self.engine.withdraw(&mut link, peer, code == Code::Closed);
        for request in self.engine.requests.bound_to(peer) {
            self.engine.requests.end(request, code, 0);
        }
        let offered =
            |arrival: &Arrival| arrival.peer == peer && matches!(arrival.body, Body::Offer(_));
        self.engine.unexpected.retain(|arrival| !offered(arrival));
        if let Some(handler_queue) = &mut self.engine.handler_queue {
            handler_queue.retain(|arrival| !offered(arrival));
        }
        if self.reading.count > 0 && self.reading.peer == peer {
            self.lost_link = Some(link);
        }
        if self.lost.len() >= MAX_LOST_PEERS {
            self.lost.pop_front();
        }
        self.lost.push_back(peer);
    }
}
