//! Peers that are gone, or have to go.

use window::attach::Channel;

use crate::endpoint::Endpoint;
use crate::engine::{Arrival, Body};
use crate::error::{Code, Error};
use crate::ids::Peer;
use crate::limits::REMEMBERED;

impl Endpoint {
    /// Cut a peer off. What is pending with it ends with [`Code::Closed`].
    ///
    /// # Errors
    /// It is no peer.
    pub fn disconnect(&mut self, peer: Peer) -> Result<(), Error> {
        self.peers.get(peer).ok_or(Error::BadPeer)?;
        self.lose(peer, Code::Closed);
        Ok(())
    }

    /// A peer that was lost since the last time this was asked: closed, dead or cut off.
    pub fn lost(&mut self) -> Option<Peer> {
        self.lost.pop_front()
    }

    /// Why a peer without a link cannot be sent to: whether its address is in use again.
    #[cold]
    pub(crate) fn gone(&self, peer: Peer) -> Code {
        let Some(known) = self.peers.get(peer) else {
            return Code::Closed;
        };
        let far = known.address.nic != self.address.nic;
        let again = match self.peers.linked(known.address) {
            // Only its own board can tell.
            None if far => false,
            Some(now) => self.session_of(now) != Some(known.session),
            None => Channel::connect(&self.board.socket(known.address.endpoint)).is_ok(),
        };
        match again {
            true => Code::BadSession,
            false => Code::Closed,
        }
    }

    /// A peer on another host does not answer any more. What arrived before is received.
    #[cold]
    pub(crate) fn abandon(&mut self, peer: Peer) {
        if let Some(link) = self.peers.link(peer) {
            let _end = self.engine.drain(link, peer);
        }
        self.lose(peer, Code::Unreachable);
    }

    /// A peer is gone or has to go: everything that waits for it ends.
    #[cold]
    pub(crate) fn lose(&mut self, peer: Peer, code: Code) {
        let Some(mut link) = self.peers.unlink(peer) else {
            return;
        };
        self.waiter.remove(&link.channel);
        if code == Code::Closed {
            // What it sent completely before its end is received. Nonsense ends that.
            let _end = self.engine.drain(&mut link, peer);
        }
        for request in self.engine.requests.bound_to(peer) {
            self.engine.requests.end(request, code, 0);
        }
        let offered =
            |arrival: &Arrival| arrival.peer == peer && matches!(arrival.body, Body::Offer(_));
        self.engine.unexpected.retain(|arrival| !offered(arrival));
        if let Some(shown) = &mut self.engine.shown {
            shown.retain(|arrival| !offered(arrival));
        }
        if self.lost.len() >= REMEMBERED {
            self.lost.pop_front();
        }
        self.lost.push_back(peer);
    }
}
