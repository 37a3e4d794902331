//! Which peers are on other hosts, and by what processes their messages go: for programs that have another network, as MPI libraries do.

use crate::endpoint::Endpoint;
use crate::ids::Peer;
use crate::peer::Link;

impl Endpoint {
    /// Returns whether the daemon's uplink carries messages to other hosts, unless a peer [is reached by datagrams](Self::is_reached_by_datagrams), and
    /// the user may not use its interface. A program that polls takes the processor that the uplink needs. `false` in a VM, without an
    /// uplink, and if the user has left the interface to the daemon.
    #[must_use]
    pub fn needs_uplink(&self) -> bool {
        self.board.needs_uplink
    }

    /// Returns whether a connected peer is on another host.
    #[must_use]
    pub fn is_on_other_host(&self, peer: Peer) -> bool {
        self.link_to(peer).is_some_and(|link| link.other_host)
    }

    /// Returns whether this program and that of a connected peer on another host send each other datagrams.
    #[must_use]
    pub fn is_reached_by_datagrams(&self, peer: Peer) -> bool {
        self.link_to(peer).is_some_and(|link| link.by_datagrams)
    }

    fn link_to(&self, peer: Peer) -> Option<&Link> {
        self.peers.get(peer)?.link.as_deref()
    }
}
