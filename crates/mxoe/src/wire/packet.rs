//! Packets: what follows the header.

/// The endpoints that a packet goes between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Whom it is for.
    pub to: u8,
    /// Whom it is from.
    pub from: u8,
}

/// A request to connect, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// From whom to whom.
    pub ends: Ends,
    /// The destination's index in the sender's table.
    pub index: u16,
    /// The session of the endpoint that connects; of an answer, too.
    pub session: u32,
    /// A request: the key. An answer: the session of the endpoint that was connected to.
    pub word: u32,
    /// The number that the sender expects of the destination's next message.
    pub start: u16,
    /// Which request of the endpoint it is, or answers.
    pub number: u8,
    /// Of an answer: 0, or 11 for a wrong key. A request has none.
    pub status: Option<u8>,
}

/// A message in one packet, or what all packets of a message have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small<'a> {
    /// From whom to whom.
    pub ends: Ends,
    /// Its number.
    pub seq: u16,
    /// The number that the sender expects next.
    pub ack: u16,
    /// The match value.
    pub value: u64,
    /// The session of the destination.
    pub session: u32,
    /// The message: up to 128 bytes, in a medium packet up to 4096.
    pub data: &'a [u8],
}

/// A fragment of a message of several packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium<'a> {
    /// What it has in common with small ones; the data is the fragment.
    pub head: Small<'a>,
    /// Bytes of the whole message.
    pub total: u16,
    /// Where the fragment belongs, in bytes.
    pub offset: u16,
}

/// The offer of a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// What it has in common with small ones; no data.
    pub head: Small<'a>,
    /// Bytes of the message.
    pub length: u32,
    /// The sender's region, and its generation.
    pub region: u8,
    /// See `region`.
    pub generation: u8,
    /// Where the data begins in the sender's first page.
    pub offset: u16,
}

/// A request for a block of a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// From whom to whom.
    pub ends: Ends,
    /// The session of the destination.
    pub session: u32,
    /// Bytes that are pulled in all.
    pub total: u32,
    /// As in the offer.
    pub region: u8,
    /// As in the offer.
    pub generation: u8,
    /// As in the offer.
    pub offset: u16,
    /// What the answers are to have.
    pub handle: u32,
    /// What the answers are to have.
    pub magic: u32,
    /// Bytes of the block's first frame that are left out.
    pub first: u16,
    /// Bytes of the block.
    pub length: u16,
    /// Which frame of the message the block begins with.
    pub frame: u32,
}

/// A piece of a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Which frame of the message it is, modulo 256.
    pub frame: u8,
    /// Where it belongs.
    pub offset: u32,
    /// As in the request.
    pub handle: u32,
    /// As in the request.
    pub magic: u32,
    /// The piece.
    pub data: &'a [u8],
}

/// A large message was pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// From whom to whom.
    pub ends: Ends,
    /// The session of the destination.
    pub session: u32,
    /// Bytes that were pulled.
    pub total: u32,
    /// As in the offer.
    pub region: u8,
    /// As in the offer.
    pub generation: u8,
    /// Its number.
    pub seq: u16,
    /// The number that the sender expects next.
    pub ack: u16,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A host says that it is there.
    Announce {
        /// Its NIC id.
        nic: u64,
        /// Changes each time that it starts.
        serial: u32,
    },
    /// A host asks for the name of another.
    HostQuery {
        /// The destination's index in the sender's table.
        index: u16,
        /// To be said in the reply.
        magic: u32,
    },
    /// A host's name.
    HostReply {
        /// The destination's index in the sender's table.
        index: u16,
        /// From the query.
        magic: u32,
        /// Without the NUL.
        name: &'a [u8],
    },
    /// An endpoint connects, or is connected to.
    Connect(Connect),
    /// A message of up to 128 bytes.
    Small(Small<'a>),
    /// A fragment of a message.
    Medium(Medium<'a>),
    /// A large message is offered.
    Offer(Offer<'a>),
    /// A block of it is asked for.
    Pull(Pull),
    /// A piece of it.
    Reply(Reply<'a>),
    /// It was pulled.
    Notify(Notify),
    /// Everything below a number has arrived.
    Ack {
        /// From whom to whom.
        ends: Ends,
        /// The session of the destination.
        session: u32,
        /// The number that the sender expects next.
        seq: u16,
        /// Grows with each.
        number: u32,
    },
    /// A connect, message or notification was refused.
    Nack {
        /// To the endpoint that sent what was refused, from the one that was meant.
        ends: Ends,
        /// 1 no such endpoint, 2 it is closed, 3 another session.
        code: u8,
        /// The destination's index in the sender's table.
        index: u16,
        /// The number of what was refused.
        seq: u16,
    },
    /// A pull was refused.
    PullNack {
        /// The endpoint that refused.
        from: u8,
        /// As in a nack; 4 no such region.
        code: u8,
        /// From the request.
        handle: u32,
        /// From the request.
        magic: u32,
    },
}

impl<'a> Packet<'a> {
    /// The bytes of a message in it.
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
