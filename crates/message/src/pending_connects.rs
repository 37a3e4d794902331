//! The connects of an endpoint that have no link yet.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use window::Window;
use window::attach::Channel;

use crate::address::Address;
use crate::ids::Request;
use crate::limits::EXPECTED;
use crate::program_address::ProgramAddress;

/// Connections during the handshake.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    pub(crate) incoming: BTreeMap<u32, Channel>,
    pub(crate) outgoing: HashMap<u32, Outgoing>,
    /// Peers whose connects by datagrams are expected, or whose answers, and where their programs take datagrams.
    pub(crate) expected: BTreeMap<Address, ProgramAddress>,
    next: u32,
}

/// What an offer is for, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A link by the endpoint's own socket, or by the gateway to its NIC.
    Link,
    /// The address of the peer's program, from the gateway to its NIC: with the address of this one. A peer whose program takes no
    /// datagrams makes the link.
    Introduction,
    /// A link by datagrams, from the gateway of this program's plane.
    Datagrams,
}

/// A connect of this side that is not answered yet.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) address: Address,
    pub(crate) key: u32,
    pub(crate) stage: Stage,
    /// `None` while this side waits for the other side's offer.
    pub(crate) offer: Option<Offer>,
    /// In that case: when this side sends its offer again. With an offer: when this side gives it up, and has the daemons carry the link.
    pub(crate) retry_at: Option<Instant>,
    /// The requests that wait for this connect, each with its key: at most one key is right.
    pub(crate) requests: Vec<(Request, u32)>,
}

/// The socket of an offer, and the window. Without a window, the answer brings one.
pub(crate) type Offer = (Channel, Option<Window>);

impl Handshakes {
    pub(crate) fn id(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// Expects a peer. One that was expected before makes room.
    pub(crate) fn expect(&mut self, peer: Address, program: ProgramAddress) {
        if self.expected.len() >= EXPECTED {
            self.expected.pop_first();
        }
        self.expected.insert(peer, program);
    }

    /// Returns the pending connect to an address.
    pub(crate) fn outgoing_to(&self, address: Address) -> Option<u32> {
        let mut all = self.outgoing.iter();
        all.find(|(_, outgoing)| outgoing.address == address)
            .map(|(id, _)| *id)
    }
}
