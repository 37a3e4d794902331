//! Events and other values that a node returns.

use std::net::SocketAddr;

use crate::wire::Mac;

/// An endpoint on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The host's MAC address.
    pub host: Mac,
    /// The number of the endpoint on that host.
    pub endpoint: u8,
}

impl Address {
    /// Lower bound of all addresses, for ranges.
    pub(crate) const FIRST: Self = Self {
        host: Mac([0; 6]),
        endpoint: 0,
    };
    /// Upper bound of all addresses, for ranges.
    pub(crate) const LAST: Self = Self {
        host: Mac([0xff; 6]),
        endpoint: u8::MAX,
    };
}

/// The result of a connect, send or pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It completed.
    Success,
    /// The host has no endpoint of that number.
    BadEndpoint,
    /// The endpoint is closed.
    Closed,
    /// The endpoint was opened again in the meantime, or the peer gave the connection up.
    BadSession,
    /// The key is wrong.
    BadKey,
    /// The peer does not offer the message any more.
    BadRegion,
    /// The peer did not answer for [`Config::peer_timeout`](crate::Config::peer_timeout).
    Unreachable,
}

/// An offered message, for [`Node::pull`](crate::Node::pull).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    pub(crate) partner: PartnerId,
    /// Session of the partner's endpoint at the time of the offer.
    pub(crate) session: u32,
    pub(crate) region: u8,
    pub(crate) generation: u8,
    pub(crate) offset: u16,
    pub(crate) length: u32,
}

/// A running pull, for [`Node::next_piece`](crate::Node::next_piece).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull(pub(crate) u32);

/// A message that the program supplies in pieces, for [`Node::send_buffer`](crate::Node::send_buffer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamedSend {
    pub(crate) region: u8,
    pub(crate) generation: u8,
}

/// Identifies a partner: the host's index in this node's table, and an endpoint on that host.
pub(crate) type PartnerId = (u16, u8);

/// A message. [`Node::next_message`](crate::Node::next_message) returns messages in the order of their sends.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// A complete message.
    Whole {
        /// The match value.
        value: u64,
        /// The bytes of the message.
        data: Vec<u8>,
    },
    /// An offer of a large or synchronous message, which the program pulls.
    Offered {
        /// The match value.
        value: u64,
        /// Bytes of the message.
        length: u32,
        /// The argument for [`Node::pull`](crate::Node::pull).
        offer: Offer,
    },
}

/// An event of a node.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A host reported its name for the first time, or a new name.
    Host {
        /// The host's address.
        host: Mac,
        /// The host's name.
        name: String,
    },
    /// A connect ended.
    Connected {
        /// The token of the connect.
        token: u64,
        /// The result.
        code: Code,
    },
    /// An introduction ended, because the other node has introduced the program of its endpoint instead of connecting the endpoint.
    Introduced {
        /// The token of the introduction.
        token: u64,
        /// Where the program of the remote endpoint takes all frames in datagrams.
        program: SocketAddr,
    },
    /// A remote endpoint connects to an endpoint that is not open, or introduces its program. The request waits until the
    /// program calls [`Node::open`](crate::Node::open) or [`Node::refuse`](crate::Node::refuse), or, if it is an introduction,
    /// [`Node::answer_introduction`](crate::Node::answer_introduction) or [`Node::accept`](crate::Node::accept).
    /// The remote side repeats its request meanwhile.
    ConnectRequest {
        /// The local endpoint.
        endpoint: u8,
        /// The remote endpoint.
        from: Address,
        /// Session of the remote endpoint.
        session: u32,
        /// The key in the request.
        key: u32,
        /// The key of the remote endpoint itself, unless its host does not send it.
        peer_key: Option<u32>,
        /// In an introduction, where the program of the remote endpoint takes all frames in datagrams. The endpoint may be open then.
        program: Option<SocketAddr>,
    },
    /// A remote endpoint connected that was not connected before.
    PeerConnected {
        /// The local endpoint.
        endpoint: u8,
        /// The remote endpoint.
        from: Address,
        /// The key of the remote endpoint, unless its host does not send it.
        peer_key: Option<u32>,
    },
    /// A connection ended: the partner has a new session, refused a packet, or did not answer.
    Disconnected {
        /// The local endpoint.
        endpoint: u8,
        /// The remote endpoint.
        from: Address,
        /// The reason.
        code: Code,
    },
    /// A receiver pulls a message that the program supplies in pieces: the program fills
    /// [`Node::send_buffer`](crate::Node::send_buffer) now.
    PullRequest {
        /// The endpoint that sends the message.
        endpoint: u8,
        /// The token of the send.
        token: u64,
        /// The argument for [`Node::send_buffer`](crate::Node::send_buffer).
        source: StreamedSend,
        /// Number of bytes that the receiver pulls, counted from the first byte of the message.
        total: u32,
    },
    /// A send ended: the receiver acknowledged the message, or pulled it if it is large or
    /// synchronous.
    Sent {
        /// The token of the send.
        token: u64,
        /// The result.
        code: Code,
        /// Number of bytes that the receiver took.
        taken: u32,
    },
    /// A pull ended: the program took the last piece, or no more pieces will arrive.
    Pulled {
        /// The token of the pull.
        token: u64,
        /// The result.
        code: Code,
    },
}

/// A refused call. It changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The node has no such endpoint.
    #[error("the endpoint is not open on this host")]
    NotOpen,
    /// The peer is not connected, or the connection ended.
    #[error("the peer is not connected; connect to it first")]
    NotConnected,
    /// The address is not a host's, or the table of hosts or partners is full.
    #[error("no known host has this address, or the tables of hosts and endpoints are full")]
    NoHost,
    /// The length of the message does not fit into 32 bits.
    #[error("a message has at most 4 GiB")]
    TooLong,
    /// The endpoint already pulls [`PULLS`](crate::limits::PULLS) messages.
    #[error("too many pulls are in progress")]
    Busy,
}
