//! An endpoint of a gateway's board, and the state of its link.

use window::attach::Channel;
use window::waiter::Token;

/// An endpoint of this board that has a link, or is about to.
#[derive(Debug)]
pub(super) struct LocalLink {
    pub(super) channel: Channel,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It connects; the host has not answered yet.
    Asked,
    /// A remote endpoint connects to it; it has not answered yet.
    Offered,
    /// The link is up.
    Up,
    /// The other end is closed; this endpoint has not closed its socket yet.
    Closing,
}

/// Tokens of connections, and of links.
pub(super) const CONNECTING: Token = 1 << 32;
pub(super) const LOCAL_LINK: Token = 2 << 32;
