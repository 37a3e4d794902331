//! The epoll user data of an endpoint's sockets.

/// The role of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The listening socket.
    Listener,
    /// An accepted connection without an offer so far.
    Incoming(u32),
    /// A connect that is not answered yet.
    Outgoing(u32),
    /// A link to a peer.
    Peer(u32),
    /// The plane of this process.
    Plane,
}

impl Token {
    pub(crate) fn encode(self) -> u64 {
        let (kind, id) = match self {
            Self::Listener => (0, 0),
            Self::Incoming(id) => (1, id),
            Self::Outgoing(id) => (2, id),
            Self::Peer(id) => (3, id),
            Self::Plane => (4, 0),
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
            4 => Some(Self::Plane),
            _ => None,
        }
    }
}
