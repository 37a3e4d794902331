//! What the sockets of an endpoint are watched as.

/// Whose socket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The one that others connect to.
    Listener,
    /// Of somebody who connected and has not said more yet.
    Incoming(u32),
    /// Of a connect that is not answered yet.
    Outgoing(u32),
    /// Of a peer.
    Peer(u32),
}

impl Token {
    pub(crate) fn encode(self) -> u64 {
        let (kind, id) = match self {
            Self::Listener => (0, 0),
            Self::Incoming(id) => (1, id),
            Self::Outgoing(id) => (2, id),
            Self::Peer(id) => (3, id),
        };
        kind << 32 | u64::from(id)
    }

    #[allow(clippy::cast_possible_truncation, reason = "picking half of a word")]
    pub(crate) fn decode(token: u64) -> Option<Self> {
        let id = token as u32;
        match token >> 32 {
            0 => Some(Self::Listener),
            1 => Some(Self::Incoming(id)),
            2 => Some(Self::Outgoing(id)),
            3 => Some(Self::Peer(id)),
            _ => None,
        }
    }
}
