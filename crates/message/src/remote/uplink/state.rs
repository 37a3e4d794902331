//! The states of a link, and connects that have no link yet.

use super::link::{EndpointPair, Link};
use crate::handshake::Hello;
use crate::remote::control_message::LinkId;

/// The state of a link.
#[derive(Debug)]
pub(super) enum State {
    /// An endpoint here, of this session, connects; the other host has not answered yet.
    Dialing {
        pair: EndpointPair,
        session: u64,
        window: u32,
    },
    /// An endpoint of another host connects; the endpoint here has not answered yet. With whether
    /// the two are connected on the wire already, and the key that the peer gave.
    Offered {
        pair: EndpointPair,
        is_connected: bool,
        key: u32,
    },
    /// The link is up.
    Up(Box<Link>),
}

impl State {
    /// Returns the endpoints of the link.
    pub(super) fn pair(&self) -> EndpointPair {
        match self {
            Self::Dialing { pair, .. } | Self::Offered { pair, .. } => *pair,
            Self::Up(link) => link.pair,
        }
    }
}

/// A connect of an endpoint here, as the host has asked for it. It waits because the peer has not acknowledged yet what the last
/// program with this endpoint sent, or because its host is not known yet.
#[derive(Debug)]
pub(super) struct WaitingDial {
    pub(super) id: LinkId,
    pub(super) window: u32,
    pub(super) hello: Hello,
}
