//! Connects of an endpoint that have no link yet.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use window::Window;
use window::attach::Channel;

use crate::address::Address;
use crate::ids::Request;

/// Connections on the way to becoming links.
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
    /// None while the other side's offer is waited for.
    pub(crate) offer: Option<Offer>,
    /// Then: when this side's is made again.
    pub(crate) again: Option<Instant>,
    /// Who waits for it, and with which key: only one of them can be right.
    pub(crate) requests: Vec<(Request, u32)>,
}

/// The socket of an offer, and the window. Without a window, the answer brings it.
pub(crate) type Offer = (Channel, Option<Window>);

impl Handshakes {
    pub(crate) fn id(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// The connect to an address that is going on.
    pub(crate) fn towards(&self, address: Address) -> Option<u32> {
        let mut all = self.outgoing.iter();
        all.find(|(_, outgoing)| outgoing.address == address)
            .map(|(id, _)| *id)
    }
}
