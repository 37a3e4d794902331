//! What comes out of a node.

use crate::wire::Mac;

/// An endpoint on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The host.
    pub host: Mac,
    /// Its endpoint.
    pub endpoint: u8,
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

/// Who a partner is: a place in the table of hosts, and an endpoint there.
pub(crate) type Partner = (u16, u8);

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
    /// A message arrived, after all that its sender sent before.
    Message {
        /// The endpoint it is for.
        endpoint: u8,
        /// Who sent it.
        from: Address,
        /// Its match value.
        value: u64,
        /// All of it.
        data: Vec<u8>,
    },
    /// A message is offered, in its place among the sender's messages.
    Offer {
        /// The endpoint it is for.
        endpoint: u8,
        /// Who offers it.
        from: Address,
        /// Its match value.
        value: u64,
        /// Its bytes.
        length: u32,
        /// For [`Node::pull`](crate::Node::pull).
        offer: Offer,
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
    /// A pull ended.
    Pulled {
        /// Which.
        token: u64,
        /// How.
        code: Code,
        /// What was asked for; less is of no use.
        data: Vec<u8>,
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
