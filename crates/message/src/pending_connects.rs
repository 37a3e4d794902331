//! The connects of an endpoint that have no link yet.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use window::Window;
use window::attach::Channel;

use crate::address::Address;
use crate::ids::Request;

/// Connections during the handshake.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    pub(crate) incoming: BTreeMap<u32, Channel>,
    pub(crate) outgoing: HashMap<u32, Outgoing>,
    next: u32,
}

/// A connect of this side that is not answered yet.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) address: Address,
    pub(crate) key: u32,
    /// `None` while this side waits for the other side's offer.
    pub(crate) offer: Option<Offer>,
    /// In that case: when this side sends its offer again.
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

    /// Returns the pending connect to an address.
    pub(crate) fn outgoing_to(&self, address: Address) -> Option<u32> {
        let mut all = self.outgoing.iter();
        all.find(|(_, outgoing)| outgoing.address == address)
            .map(|(id, _)| *id)
    }
}
