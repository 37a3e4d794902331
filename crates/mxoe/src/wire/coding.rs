//! Encodes and decodes packets. Offsets count from the type byte.

use super::bytes::{Reader, Writer};
use super::packet::{Connect, Ends, Medium, Notify, Offer, Packet, Pull, Reply, Small};
use super::udp_address;
use crate::limits::{
    LARGE_FRAGMENT, LARGE_PIPELINE, MAX_MEDIUM, MAX_SMALL, MAX_TINY, NAME_BYTES, PIPELINE,
};

pub(super) const RAW: u8 = 1;
pub(super) const HOST_QUERY: u8 = 3;
pub(super) const HOST_REPLY: u8 = 4;
pub(super) const TRUC: u8 = 35;
pub(super) const CONNECT: u8 = 36;
pub(super) const TINY_TYPE: u8 = 37;
pub(super) const SMALL_TYPE: u8 = 38;
pub(super) const MEDIUM_TYPE: u8 = 39;
pub(super) const RNDV: u8 = 40;
pub(super) const PULL: u8 = 41;
pub(super) const PULL_REPLY: u8 = 42;
pub(super) const NOTIFY: u8 = 43;
pub(super) const NACK_LIB: u8 = 44;
pub(super) const NACK_MCP: u8 = 45;

/// Bytes of a connect's data, without and with the key of the endpoint that sends it. Open-MX takes all lengths from 16 bytes
/// on. The unused bytes of the 16 cannot have the key, because Open-MX sends them without setting them.
const CONNECT_OF_MX: u8 = 16;
const CONNECT_WITH_KEY: u8 = 20;
/// The same with the length of fragments that the sender takes.
const CONNECT_WITH_PIPELINE: u8 = 24;
/// The same with an address of UDP.
const CONNECT_WITH_UDP: u8 = 44;

/// Bytes of a reply before its data.
pub(super) const HEAD_OF_REPLY: usize = 16;

/// The kind of an acknowledgement, which is the only TRUC packet that MX sends.
const ACK_KIND: u8 = 0x55;

impl<'a> Packet<'a> {
    pub(super) fn decode(body: Reader<'a>) -> Option<Self> {
        Some(match body.u8(0)? {
            RAW => Self::Announce {
                nic: u64::from(body.u32(16)?) << 32 | u64::from(body.u32(20)?),
                serial: body.u32(24)?,
            },
            HOST_QUERY => Self::HostQuery {
                index: body.u16(2)?,
                magic: body.u32(8)?,
            },
            HOST_REPLY => Self::HostReply {
                index: body.u16(2)?,
                magic: body.u32(8)?,
                name: name(body)?,
            },
            CONNECT => Self::Connect(connect(body)?),
            TINY_TYPE => Self::Small(small(body, MAX_TINY)?),
            SMALL_TYPE => Self::Small(small(body, MAX_SMALL)?),
            MEDIUM_TYPE => Self::Medium(medium(body)?),
            RNDV => Self::Offer(offer(body)?),
            PULL => Self::Pull(pull(body)?),
            PULL_REPLY => Self::Reply(reply(body)?),
            NOTIFY => Self::Notify(notify(body)?),
            TRUC => ack(body)?,
            NACK_LIB => Self::Nack {
                ends: Ends {
                    to: body.u8(9)?,
                    from: body.u8(1)?,
                },
                code: body.u8(3)?,
                index: body.u16(10)?,
                seq: body.u16(12)?,
            },
            NACK_MCP => Self::PullNack {
                from: body.u8(1)?,
                code: body.u8(3)?,
                handle: body.u32(8)?,
                magic: body.u32(12)?,
            },
            _ => return None,
        })
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the halves of a word; lengths are the encoder's own"
    )]
    pub(super) fn encode(&self, to: &mut Writer<'_>) {
        match *self {
            Self::Announce { nic, serial } => {
                to.u8(0, RAW);
                to.u32(16, (nic >> 32) as u32);
                to.u32(20, nic as u32);
                to.u32(24, serial);
                // Fills the frame up to 64 bytes.
                to.bytes(28, &[0; 20]);
            }
            Self::HostQuery { index, magic } => {
                to.u8(0, HOST_QUERY);
                to.u16(2, index);
                to.u32(8, magic);
            }
            Self::HostReply { index, magic, name } => {
                let name = name.get(..NAME_BYTES - 1).unwrap_or(name);
                to.u8(0, HOST_REPLY);
                to.u8(1, name.len() as u8 + 1);
                to.u16(2, index);
                to.u32(8, magic);
                to.bytes(16, name);
                to.u8(16 + name.len(), 0);
            }
            Self::Connect(connect) => put_connect(to, &connect),
            Self::Small(small) => {
                let kind = if small.data.len() <= MAX_TINY {
                    TINY_TYPE
                } else {
                    SMALL_TYPE
                };
                put_head(to, kind, &small, small.data.len() as u16);
                to.bytes(24, small.data);
            }
            Self::Medium(medium) => {
                put_head(to, MEDIUM_TYPE, &medium.head, medium.total);
                to.u16(24, medium.head.data.len() as u16);
                to.u8(26, (medium.offset >> medium.pipeline) as u8);
                to.u8(27, medium.pipeline);
                to.bytes(32, medium.head.data);
            }
            Self::Offer(offer) => {
                put_head(to, RNDV, &offer.head, 8);
                to.u32(24, offer.length);
                to.u8(28, offer.region);
                to.u8(29, offer.generation);
                to.u16(30, offer.offset);
            }
            Self::Pull(pull) => put_pull(to, &pull),
            Self::Reply(reply) => {
                put_reply(to, &reply);
                to.bytes(HEAD_OF_REPLY, reply.data);
            }
            Self::Notify(notify) => {
                put_ends(to, NOTIFY, notify.ends);
                to.u32(4, notify.session);
                to.u32(8, notify.total);
                to.u8(12, notify.region);
                to.u8(13, notify.generation);
                to.u16(18, notify.seq);
                to.u16(20, notify.ack);
            }
            Self::Ack {
                ends,
                session,
                seq,
                number,
            } => {
                put_ends(to, TRUC, ends);
                to.u8(4, 16);
                to.u32(8, session);
                to.u8(12, ACK_KIND);
                to.u16(14, seq);
                to.u32(16, session);
                to.u32(20, number);
                to.u16(24, seq);
            }
            Self::Nack {
                ends,
                code,
                index,
                seq,
            } => {
                to.u8(0, NACK_LIB);
                to.u8(1, ends.from);
                to.u8(3, code);
                to.u8(9, ends.to);
                to.u16(10, index);
                to.u16(12, seq);
            }
            Self::PullNack {
                from,
                code,
                handle,
                magic,
            } => {
                to.u8(0, NACK_MCP);
                to.u8(1, from);
                to.u8(3, code);
                to.u32(8, handle);
                to.u32(12, magic);
            }
        }
    }
}

fn ends(body: Reader<'_>) -> Option<Ends> {
    Some(Ends {
        to: body.u8(1)?,
        from: body.u8(2)?,
    })
}

fn put_ends(to: &mut Writer<'_>, kind: u8, ends: Ends) {
    to.u8(0, kind);
    to.u8(1, ends.to);
    to.u8(2, ends.from);
}

/// Returns the name up to its first NUL.
fn name(body: Reader<'_>) -> Option<&[u8]> {
    let length = usize::from(body.u8(1)?);
    let text = body.bytes(16, length).filter(|_| length <= NAME_BYTES)?;
    let end = text.iter().position(|byte| *byte == 0);
    text.get(..end.unwrap_or(length))
}

fn connect(body: Reader<'_>) -> Option<Connect> {
    let status = match body.u8(26)? {
        0 => None,
        _ => Some(body.u8(28)?),
    };
    // A connect has 32 bytes, although the last ones are unused.
    body.bytes(0, 32)?;
    let length = body.u8(4)?;
    let own_key = match status.is_none() && length >= CONNECT_WITH_KEY {
        true => Some(body.u32(32)?),
        false => None,
    };
    let pipeline = match length >= CONNECT_WITH_PIPELINE {
        true => Some(body.u8(36)?),
        false => None,
    };
    let (udp, program) = match length >= CONNECT_WITH_UDP {
        true => udp_address::decode(body.bytes(40, udp_address::BYTES)?),
        false => (None, None),
    };
    Some(Connect {
        ends: ends(body)?,
        index: body.u16(10)?,
        session: body.u32(16)?,
        key_or_session: body.u32(20)?,
        expected_seq: body.u16(24)?,
        number: body.u8(27)?,
        status,
        own_key,
        pipeline,
        udp,
        program,
    })
}

fn put_connect(to: &mut Writer<'_>, connect: &Connect) {
    put_ends(to, CONNECT, connect.ends);
    to.u8(4, CONNECT_OF_MX);
    to.u16(10, connect.index);
    to.u32(16, connect.session);
    to.u32(20, connect.key_or_session);
    to.u16(24, connect.expected_seq);
    to.u8(26, u8::from(connect.status.is_some()));
    to.u8(27, connect.number);
    to.u8(28, connect.status.unwrap_or_default());
    if let Some(key) = connect.own_key {
        to.u8(4, CONNECT_WITH_KEY);
        to.u32(32, key);
    }
    if let Some(pipeline) = connect.pipeline {
        to.u8(4, CONNECT_WITH_PIPELINE);
        to.u8(36, pipeline);
        to.bytes(37, &[0; 3]);
    }
    if let Some(address) = udp_address::encode(connect) {
        to.u8(4, CONNECT_WITH_UDP);
        to.bytes(40, &address);
    }
}

fn head<'a>(body: Reader<'a>, data: &'a [u8]) -> Option<Small<'a>> {
    Some(Small {
        ends: ends(body)?,
        seq: body.u16(8)?,
        ack: body.u16(10)?,
        value: u64::from(body.u32(12)?) << 32 | u64::from(body.u32(16)?),
        session: body.u32(20)?,
        data,
    })
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "picking the halves of a word"
)]
fn put_head(to: &mut Writer<'_>, kind: u8, head: &Small<'_>, length: u16) {
    put_ends(to, kind, head.ends);
    to.u16(4, length);
    to.u16(8, head.seq);
    to.u16(10, head.ack);
    to.u32(12, (head.value >> 32) as u32);
    to.u32(16, head.value as u32);
    to.u32(20, head.session);
}

fn small(body: Reader<'_>, most: usize) -> Option<Small<'_>> {
    let length = usize::from(body.u16(4)?);
    let data = body.bytes(24, length).filter(|_| length <= most)?;
    head(body, data)
}

/// A fragment must lie within its message, and only the last one may be short.
fn medium(body: Reader<'_>) -> Option<Medium<'_>> {
    let total = body.u16(4)?;
    let length = usize::from(body.u16(24)?);
    let (number, pipeline) = (body.u8(26)?, body.u8(27)?);
    let data = body.bytes(32, length)?;
    // Before the shifts: a larger number would be too much for them.
    if !(PIPELINE..=LARGE_PIPELINE).contains(&pipeline) {
        return None;
    }
    let offset = usize::from(number) << pipeline;
    let left = usize::from(total).checked_sub(offset)?;
    let sane = usize::from(total) <= MAX_MEDIUM
        && length == left.min(1 << pipeline)
        && (length > 0 || total == 0);
    sane.then_some(Medium {
        head: head(body, data)?,
        total,
        offset: u16::try_from(offset).ok()?,
        pipeline,
    })
}

fn offer(body: Reader<'_>) -> Option<Offer<'_>> {
    Some(Offer {
        head: head(body, &[])?,
        length: body.u32(24)?,
        region: body.u8(28)?,
        generation: body.u8(29)?,
        offset: body.u16(30)?,
    })
}

fn pull(body: Reader<'_>) -> Option<Pull> {
    Some(Pull {
        ends: ends(body)?,
        session: body.u32(4)?,
        total: body.u32(8)?,
        region: body.u8(12)?,
        generation: body.u8(13)?,
        offset: body.u16(14)?,
        handle: body.u32(16)?,
        magic: body.u32(20)?,
        first: body.u16(24)?,
        length: body.u16(26)?,
        frame: body.u32(28)?,
    })
}

fn put_pull(to: &mut Writer<'_>, pull: &Pull) {
    put_ends(to, PULL, pull.ends);
    to.u32(4, pull.session);
    to.u32(8, pull.total);
    to.u8(12, pull.region);
    to.u8(13, pull.generation);
    to.u16(14, pull.offset);
    to.u32(16, pull.handle);
    to.u32(20, pull.magic);
    to.u16(24, pull.first);
    to.u16(26, pull.length);
    to.u32(28, pull.frame);
}

fn reply(body: Reader<'_>) -> Option<Reply<'_>> {
    let length = usize::from(body.u16(2)?);
    let data = body
        .bytes(HEAD_OF_REPLY, length)
        .filter(|_| length <= LARGE_FRAGMENT)?;
    Some(Reply {
        frame: body.u8(1)?,
        offset: body.u32(4)?,
        handle: body.u32(8)?,
        magic: body.u32(12)?,
        data,
    })
}

/// Puts all but the data.
#[allow(
    clippy::cast_possible_truncation,
    reason = "lengths are the encoder's own"
)]
pub(super) fn put_reply(to: &mut Writer<'_>, reply: &Reply<'_>) {
    to.u8(0, PULL_REPLY);
    to.u8(1, reply.frame);
    to.u16(2, reply.data.len() as u16);
    to.u32(4, reply.offset);
    to.u32(8, reply.handle);
    to.u32(12, reply.magic);
}

fn notify(body: Reader<'_>) -> Option<Notify> {
    Some(Notify {
        ends: ends(body)?,
        session: body.u32(4)?,
        total: body.u32(8)?,
        region: body.u8(12)?,
        generation: body.u8(13)?,
        seq: body.u16(18)?,
        ack: body.u16(20)?,
    })
}

fn ack(body: Reader<'_>) -> Option<Packet<'_>> {
    if body.u8(12)? != ACK_KIND {
        return None;
    }
    Some(Packet::Ack {
        ends: ends(body)?,
        session: body.u32(8)?,
        seq: body.u16(14)?,
        number: body.u32(20)?,
    })
}
