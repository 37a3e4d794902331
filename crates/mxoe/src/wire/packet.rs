//! Packets: the part of a frame after its header.

use std::net::SocketAddr;

/// Source and destination endpoint of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The destination endpoint.
    pub to: u8,
    /// The source endpoint.
    pub from: u8,
}

/// A connect request, or the reply to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Source and destination endpoint.
    pub ends: Ends,
    /// The destination's index in the sender's table.
    pub index: u16,
    /// The session of the endpoint that sent the request, in requests and in replies.
    pub session: u32,
    /// In a request, the key; in a reply, the session of the endpoint that sends the reply.
    pub key_or_session: u32,
    /// The sequence number that the sender expects next from the destination.
    pub expected_seq: u16,
    /// Number of the request, which the reply repeats.
    pub number: u8,
    /// In a reply, 0 for success, [`BAD_KEY`](super::BAD_KEY) or [`INTRODUCED`](super::INTRODUCED). A request has `None`.
    pub status: Option<u8>,
    /// In a request, the key of the endpoint that sends it, behind the 16 bytes of MX. Open-MX ignores these bytes and sends
    /// none.
    pub own_key: Option<u32>,
    /// Binary logarithm of the longest fragment that the sender takes, if the packet has it behind the key. In a reply, the
    /// place of the key is empty.
    pub pipeline: Option<u8>,
    /// Where the sender takes replies to its pulls by UDP, if the packet has it behind the pipeline.
    pub udp: Option<SocketAddr>,
    /// Where the program of the sending endpoint takes all frames in datagrams, and where its own come from. It has the place of
    /// [`udp`](Self::udp), so a connect has at most one of both.
    pub program: Option<SocketAddr>,
}

/// A message in one packet, or the common header of packets that belong to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small<'a> {
    /// Source and destination endpoint.
    pub ends: Ends,
    /// The sequence number.
    pub seq: u16,
    /// The acknowledgement: the number that the sender expects next.
    pub ack: u16,
    /// The match value.
    pub value: u64,
    /// The session of the destination endpoint.
    pub session: u32,
    /// The message: up to 128 bytes, or a fragment in a medium packet.
    pub data: &'a [u8],
}

/// A fragment of a medium message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium<'a> {
    /// The common header; its data is the fragment.
    pub head: Small<'a>,
    /// Bytes of the whole message.
    pub total: u16,
    /// Offset of the fragment in the message, in bytes.
    pub offset: u16,
    /// Binary logarithm of the bytes of each fragment but the last.
    pub pipeline: u8,
}

/// The offer of a large message (a rendezvous packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// The common header, without data.
    pub head: Small<'a>,
    /// Bytes of the message.
    pub length: u32,
    /// The sender's region that holds the message.
    pub region: u8,
    /// The generation of that region.
    pub generation: u8,
    /// Offset of the data in the sender's first page.
    pub offset: u16,
}

/// A request for a block of a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Source and destination endpoint.
    pub ends: Ends,
    /// The session of the destination endpoint.
    pub session: u32,
    /// Bytes that the receiver pulls in total.
    pub total: u32,
    /// The region, from the offer.
    pub region: u8,
    /// The generation of the region, from the offer.
    pub generation: u8,
    /// The offset in the sender's first page, from the offer.
    pub offset: u16,
    /// Identifies the pull; each reply repeats it.
    pub handle: u32,
    /// Identifies the pulling endpoint; each reply repeats it.
    pub magic: u32,
    /// Offset of the block in its first frame.
    pub first: u16,
    /// Bytes of the block.
    pub length: u16,
    /// Number of the block's first frame.
    pub frame: u32,
}

/// A reply to a pull: one frame of a block, or two that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Number of the first frame, modulo 256.
    pub frame: u8,
    /// Offset of the data in the message.
    pub offset: u32,
    /// The handle, from the request.
    pub handle: u32,
    /// The magic, from the request.
    pub magic: u32,
    /// The bytes of the message.
    pub data: &'a [u8],
}

/// A notification: the sender of this packet has pulled a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// Source and destination endpoint.
    pub ends: Ends,
    /// The session of the destination endpoint.
    pub session: u32,
    /// Bytes that were pulled.
    pub total: u32,
    /// The region, from the offer.
    pub region: u8,
    /// The generation of the region, from the offer.
    pub generation: u8,
    /// The sequence number.
    pub seq: u16,
    /// The acknowledgement: the number that the sender expects next.
    pub ack: u16,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// An announcement of a host, to the broadcast address.
    Announce {
        /// The host's NIC id.
        nic: u64,
        /// Changes each time the host starts.
        serial: u32,
    },
    /// A query for the name of another host.
    HostQuery {
        /// The destination's index in the sender's table.
        index: u16,
        /// Identifies the query; the reply repeats it.
        magic: u32,
    },
    /// The reply to a query.
    HostReply {
        /// The destination's index in the sender's table.
        index: u16,
        /// The magic, from the query.
        magic: u32,
        /// The name without its NUL.
        name: &'a [u8],
    },
    /// A connect request or its reply.
    Connect(Connect),
    /// A message of up to 128 bytes.
    Small(Small<'a>),
    /// A fragment of a medium message.
    Medium(Medium<'a>),
    /// The offer of a large message.
    Offer(Offer<'a>),
    /// A request for a block of a large message.
    Pull(Pull),
    /// The bytes of one frame of a block, or of two.
    Reply(Reply<'a>),
    /// The notification that a large message was pulled.
    Notify(Notify),
    /// An acknowledgement of all sequence numbers below `seq`.
    Ack {
        /// Source and destination endpoint.
        ends: Ends,
        /// The session of the destination endpoint.
        session: u32,
        /// The number that the sender expects next.
        seq: u16,
        /// Number of the acknowledgement, which increases with each.
        number: u32,
    },
    /// The refusal of a connect, message or notification.
    Nack {
        /// The endpoint that sent the refused packet is the destination; the endpoint that the
        /// packet was for is the source.
        ends: Ends,
        /// 1: no such endpoint; 2: the endpoint is closed; 3: wrong session.
        code: u8,
        /// The destination's index in the sender's table.
        index: u16,
        /// The sequence number of the refused packet.
        seq: u16,
    },
    /// The refusal of a pull.
    PullNack {
        /// The endpoint that refuses.
        from: u8,
        /// As in [`Packet::Nack`], or 4: no such region.
        code: u8,
        /// The handle, from the request.
        handle: u32,
        /// The magic, from the request.
        magic: u32,
    },
}

impl<'a> Packet<'a> {
    /// Returns the bytes of the message in the packet.
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        match self {
            Self::Small(small) => small.data,
            Self::Medium(medium) => medium.head.data,
            Self::Reply(reply) => reply.data,
            Self::HostReply { name, .. } => name,
            _ => &[],
        }
    }
}
