//! An endpoint of a gateway's board, and the state of its link.

use window::attach::Channel;
use window::waiter::Token;

/// An endpoint of this board that has a link.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) channel: Channel,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It wants to connect; the host has not answered yet.
    Asked,
    /// Somebody wants to connect to it; it has not answered yet.
    Offered,
    /// It has its link.
    Up,
    /// The other end is closed; it has not let go yet.
    Closing,
}

/// Tokens of connections, and of links.
pub(super) const CONNECTING: Token = 1 << 32;
pub(super) const LOCAL: Token = 2 << 32;
