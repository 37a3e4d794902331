//! The codec of MXoE frames, in native MX's dialect. The decoder checks every length.
//!
//! All numbers are big endian. Checksums and unused bytes are sent as zero and ignored. The lengths
//! that count are those in the packets: a frame may be longer, because it is padded to 60 bytes,
//! but not shorter.

mod bytes;
mod coding;
mod destination;
#[cfg(test)]
mod offsets;
mod packet;
#[cfg(test)]
pub(crate) mod tests;
mod udp_address;

use std::fmt;

use crate::limits::MIN_FRAME;
use bytes::{Reader, Writer};
pub use destination::{Destination, destination};
pub(crate) use destination::{Place, place};
pub use packet::{Connect, Ends, Medium, Notify, Offer, Packet, Pull, Reply, Small};

/// The EtherType of MXoE.
pub const ETHERTYPE: u16 = 0x86df;

/// Bytes before a packet's type: the MAC header and the index.
pub const HEADER: usize = 16;

/// The index of a sender that does not know its index yet.
pub const NO_INDEX: u16 = 0xffff;

/// The status of a reply to a connect with a wrong key.
pub const BAD_KEY: u8 = 11;

/// The status of a reply that introduces the program of the endpoint instead of connecting it: [`Connect::program`] is its address.
/// MX numbers its statuses upwards from 0, and a node sends no others in replies than 0 and [`BAD_KEY`], so this one is far above them. An earlier
/// release would take it for a wrong key, but gets it only in reply to an introduction, which it does not send.
pub const INTRODUCED: u8 = 200;

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns the address as a NIC id.
    #[must_use]
    pub fn nic(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// Returns the address of a NIC id, of which the upper 16 bits must be zero.
    #[must_use]
    pub fn from_nic(nic: u64) -> Option<Self> {
        let [0, 0, mac @ ..] = nic.to_be_bytes() else {
            return None;
        };
        Some(Self(mac))
    }

    /// Whether this is the unicast address of a host.
    #[must_use]
    pub fn is_host(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(to, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// A frame, which borrows the bytes of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The destination address.
    pub destination: Mac,
    /// The source address.
    pub source: Mac,
    /// The sender's index in the destination's table, or [`NO_INDEX`].
    pub index: u16,
    /// The packet.
    pub packet: Packet<'a>,
}

impl<'a> Frame<'a> {
    /// Decodes a frame. Returns `None` if it is no MXoE frame or shorter than its lengths say.
    #[must_use]
    pub fn decode(frame: &'a [u8]) -> Option<Self> {
        let (header, body) = frame.split_first_chunk::<HEADER>()?;
        let [
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            i,
            j,
            k,
            l,
            type_high,
            type_low,
            high,
            low,
        ] = *header;
        if u16::from_be_bytes([type_high, type_low]) != ETHERTYPE {
            return None;
        }
        Some(Self {
            destination: Mac([a, b, c, d, e, f]),
            source: Mac([g, h, i, j, k, l]),
            index: u16::from_be_bytes([high, low]),
            packet: Packet::decode(Reader(body))?,
        })
    }

    /// Encodes the frame, with padding.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        self.encode_into(&mut frame);
        frame
    }

    /// Encodes the frame into an empty buffer.
    pub(crate) fn encode_into(&self, frame: &mut Vec<u8>) {
        frame.reserve(MIN_FRAME + self.packet.data().len());
        frame.resize(MIN_FRAME, 0);
        self.encode_header(frame);
        self.packet.encode(&mut Writer(frame, HEADER));
        if frame.len() < MIN_FRAME {
            frame.resize(MIN_FRAME, 0);
        }
    }

    fn encode_header(&self, frame: &mut Vec<u8>) {
        let mut header = Writer(frame, 0);
        header.array(0, self.destination.0);
        header.array(6, self.source.0);
        header.u16(12, ETHERTYPE);
        header.u16(14, self.index);
    }

    /// Encodes the frame of a reply into an empty buffer, without the reply's data, which follows, and without padding.
    pub(crate) fn encode_before_data(&self, reply: &Reply<'_>, frame: &mut Vec<u8>) {
        frame.resize(HEADER + coding::HEAD_OF_REPLY, 0);
        self.encode_header(frame);
        coding::put_reply(&mut Writer(frame, HEADER), reply);
    }
}
