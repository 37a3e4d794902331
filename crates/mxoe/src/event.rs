//! What comes out of a node.

use crate::wire::Mac;

/// An endpoint on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The host.
    pub host: Mac,
    /// Its endpoint.
    pub endpoint: u8,
}

impl Address {
    /// Before and after all others, for ranges.
    pub(crate) const FIRST: Self = Self {
        host: Mac([0; 6]),
        endpoint: 0,
    };
    /// See [`Self::FIRST`].
    pub(crate) const LAST: Self = Self {
        host: Mac([0xff; 6]),
        endpoint: u8::MAX,
    };
}

/// How a connect, send or pull ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// As it should.
    Success,
    /// There is no endpoint of that number there.
    BadEndpoint,
    /// The endpoint is closed.
    Closed,
    /// The endpoint was opened again since, or the connection was given up.
    BadSession,
    /// The key is wrong.
    BadKey,
    /// The offered message is not there any more.
    BadRegion,
    /// Nobody answered for long.
    Unreachable,
}

/// A message that can be pulled, see [`Node::pull`](crate::Node::pull).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    pub(crate) partner: Partner,
    /// The opening of the partner's endpoint that it is from.
    pub(crate) session: u32,
    pub(crate) region: u8,
    pub(crate) generation: u8,
    pub(crate) offset: u16,
    pub(crate) length: u32,
}

/// A pull that was begun, see [`Node::piece`](crate::Node::piece).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull(pub(crate) u32);

/// A message that is sent piece by piece, see [`Node::space`](crate::Node::space).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    pub(crate) region: u8,
    pub(crate) generation: u8,
}

/// Who a partner is: a place in the table of hosts, and an endpoint there.
pub(crate) type Partner = (u16, u8);

/// A message, taken by [`Node::take`](crate::Node::take) in the order it was sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// All of it.
    Whole {
        /// Its match value.
        value: u64,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// It is offered.
    Offered {
        /// Its match value.
        value: u64,
        /// Its bytes.
        length: u32,
        /// For [`Node::pull`](crate::Node::pull).
        offer: Offer,
    },
}

/// Something happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A host's name is known now.
    Host {
        /// Its address.
        host: Mac,
        /// Its name.
        name: String,
    },
    /// A connect ended.
    Connected {
        /// Which.
        token: u64,
        /// How.
        code: Code,
    },
    /// Somebody connects to an endpoint that is not open. It waits for
    /// [`Node::open`](crate::Node::open) or [`Node::refuse`](crate::Node::refuse), and asks again.
    Asked {
        /// The endpoint.
        endpoint: u8,
        /// Who connects.
        from: Address,
        /// Which opening of its endpoint that is.
        session: u32,
        /// The key that it thinks the endpoint has.
        key: u32,
    },
    /// Somebody connected who was not connected before.
    Met {
        /// To which endpoint.
        endpoint: u8,
        /// Who.
        from: Address,
    },
    /// A partner is not connected any more: it began anew, refused what it was sent, or is silent.
    Lost {
        /// Of which endpoint.
        endpoint: u8,
        /// Who.
        from: Address,
        /// Why.
        code: Code,
    },
    /// A message that is sent piece by piece is pulled: feed it.
    Wanted {
        /// The endpoint it is sent from.
        endpoint: u8,
        /// The send's.
        token: u64,
        /// For [`Node::space`](crate::Node::space).
        source: Source,
        /// So many bytes of it, from its first.
        total: u32,
    },
    /// A send ended: it was acknowledged, or pulled if it is large or synchronous.
    Sent {
        /// Which.
        token: u64,
        /// How.
        code: Code,
        /// Bytes that the receiver has.
        taken: u32,
    },
    /// A pull ended: every piece was taken, or no more will come.
    Pulled {
        /// Which.
        token: u64,
        /// How.
        code: Code,
    },
}

/// A call that was refused. Nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no such endpoint here.
    #[error("the endpoint is not open here")]
    NotOpen,
    /// The peer is not connected, or not any more.
    #[error("the peer is not connected: connect to it first")]
    NotConnected,
    /// No host has this address, or the table of hosts or partners is full.
    #[error("no host has this address, or too many hosts or endpoints are known already")]
    NoHost,
    /// A message is longer than its length can say.
    #[error("a message has at most 4 GiB")]
    TooLong,
    /// Too many messages are pulled at the same time.
    #[error("too many messages are pulled at the same time")]
    Busy,
}
