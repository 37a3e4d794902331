//! Parses the headers of a GSO frame and determines the offsets of its parts.

use super::wire::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, TCP, UDP, ether_type, u8_at, u16_at};
use super::{Gso, Untranslatable};

/// Most header bytes a GSO frame may have, from the Ethernet header to the transport header.
///
/// Every segment repeats the headers, so this limit bounds the work for a frame. IPv4 needs 142 bytes at
/// most (two VLAN tags, all options). IPv6 with two tags and a full TCP header leaves 390 bytes for
/// extension headers, which is enough for a routing header of 23 addresses.
pub const MAX_HEADERS: usize = 512;

/// Largest value of the 16-bit length in an IP header.
const MAX_IP_LENGTH: usize = 65_535;

/// Bytes of an IPv6 header without extension headers.
const IPV6_HEADER: usize = 40;

/// IPv6 extension headers that every packet of a flow may have (RFC 8200, 4.1).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Transport protocol of a GSO frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
        }
    }
}

/// The offsets of the parts of a GSO frame, in bytes from its start. All parts are inside the frame: `ip <
/// transport < payload <= end <= frame.len()`, and `payload <= MAX_HEADERS`. The part that the length field
/// of the IP header counts has at most 65,535 bytes, so every length of a segment fits into its field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) ipv4: bool,
    pub(super) protocol: Transport,
    pub(super) ip: usize,
    pub(super) transport: usize,
    pub(super) payload: usize,
    /// End of the IP packet; the bytes behind it are link padding.
    pub(super) end: usize,
}

impl Layout {
    /// Parses the headers of `frame`, whose network header has the GSO kind `gso`.
    pub(super) fn of(frame: &[u8], gso: Gso) -> Result<Self, Untranslatable> {
        let (ipv4, protocol) = match gso {
            Gso::None => return Err(Untranslatable::NotGso),
            Gso::Tcp4 => (true, Transport::Tcp),
            Gso::Tcp6 => (false, Transport::Tcp),
            Gso::Udp4 => (true, Transport::Udp),
            Gso::Udp6 => (false, Transport::Udp),
        };
        let (kind, ip) = ether_type(frame).ok_or(Untranslatable::ShortEthernet)?;
        let expected = if ipv4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
        if kind != expected {
            return Err(Untranslatable::WrongEtherType);
        }
        let (counted, (transport, length)) = if ipv4 {
            (ip, ipv4_header(frame, ip, protocol)?)
        } else {
            (ip + IPV6_HEADER, ipv6_headers(frame, ip, protocol)?)
        };
        let end = packet_end(frame, counted, length, transport)?;
        let packet = frame.get(..end).unwrap_or(frame);
        let payload = payload_start(packet, transport, protocol)?;
        if payload > MAX_HEADERS {
            return Err(Untranslatable::HeadersTooLong);
        }
        Ok(Self {
            ipv4,
            protocol,
            ip,
            transport,
            payload,
            end,
        })
    }
}

/// Checks an IPv4 header (RFC 791, 3.1); returns the offset of the transport header and the length in the
/// IP header.
fn ipv4_header(
    frame: &[u8],
    ip: usize,
    protocol: Transport,
) -> Result<(usize, usize), Untranslatable> {
    let short = Untranslatable::ShortIp;
    let first = u8_at(frame, ip).ok_or(short)?;
    if first >> 4 != 4 {
        return Err(Untranslatable::WrongIpVersion);
    }
    let header = usize::from(first & 0x0f) * 4;
    if header < 20 {
        return Err(Untranslatable::BadIpHeaderLength);
    }
    let transport = ip + header;
    if transport > frame.len() {
        return Err(short);
    }
    // More fragments to come, or not the first one.
    if u16_at(frame, ip + 6).ok_or(short)? & 0x3fff != 0 {
        return Err(Untranslatable::Fragment);
    }
    if u8_at(frame, ip + 9).ok_or(short)? != protocol.number() {
        return Err(Untranslatable::WrongProtocol);
    }
    let total = usize::from(u16_at(frame, ip + 2).ok_or(short)?);
    Ok((transport, total))
}

/// Checks an IPv6 header and its extension headers (RFC 8200, 3 and 4); returns the offset of the transport
/// header and the length in the IP header.
fn ipv6_headers(
    frame: &[u8],
    ip: usize,
    protocol: Transport,
) -> Result<(usize, usize), Untranslatable> {
    let short = Untranslatable::ShortIp;
    if u8_at(frame, ip).ok_or(short)? >> 4 != 6 {
        return Err(Untranslatable::WrongIpVersion);
    }
    let mut next = u8_at(frame, ip + 6).ok_or(short)?;
    let mut at = ip + IPV6_HEADER;
    if at > frame.len() {
        return Err(short);
    }
    while next != protocol.number() {
        let length = extension_length(frame, at, next)?;
        next = u8_at(frame, at).ok_or(short)?;
        at += length;
        if at > frame.len() {
            return Err(short);
        }
        // Checked here too, to bound the walk over a long chain of headers.
        if at > MAX_HEADERS {
            return Err(Untranslatable::HeadersTooLong);
        }
    }
    let length = usize::from(u16_at(frame, ip + 4).ok_or(short)?);
    Ok((at, length))
}

/// Returns the length of the extension header of type `kind` at `at`, if segments may repeat it.
fn extension_length(frame: &[u8], at: usize, kind: u8) -> Result<usize, Untranslatable> {
    let short = Untranslatable::ShortIp;
    match kind {
        HOP_BY_HOP | DESTINATION => {}
        // RFC 8200, 8.1: while segments are left, the pseudo header has the final destination, which is not in
        // the IPv6 header.
        ROUTING => match u8_at(frame, at + 3).ok_or(short)? {
            0 => {}
            _ => return Err(Untranslatable::SourceRouted),
        },
        FRAGMENT => return Err(Untranslatable::Fragment),
        _ => return Err(Untranslatable::WrongProtocol),
    }
    Ok((usize::from(u8_at(frame, at + 1).ok_or(short)?) + 1) * 8)
}

/// Returns the end of an IP packet whose header counts `length` bytes from `counted`.
///
/// A length of 0 leaves the length to the segmentation, as Windows does for large sends and Linux for
/// packets above 64 KB: then the packet extends to the end of the frame. Otherwise the length in the header
/// applies, within the frame, so that link padding never becomes payload.
fn packet_end(
    frame: &[u8],
    counted: usize,
    length: usize,
    transport: usize,
) -> Result<usize, Untranslatable> {
    if frame.len() > counted + MAX_IP_LENGTH {
        return Err(Untranslatable::FrameTooLong);
    }
    if length == 0 {
        return Ok(frame.len());
    }
    let end = counted + length;
    if end > frame.len() {
        return Err(Untranslatable::IpLengthBeyondFrame);
    }
    if end < transport {
        return Err(Untranslatable::IpLengthInsideHeaders);
    }
    Ok(end)
}

/// Returns the offset of the payload behind the transport header at `transport`.
fn payload_start(
    packet: &[u8],
    transport: usize,
    protocol: Transport,
) -> Result<usize, Untranslatable> {
    let length = match protocol {
        // The UDP length is not read, because it is computed for every segment.
        Transport::Udp => 8,
        Transport::Tcp => {
            let offset = u8_at(packet, transport + 12).ok_or(Untranslatable::ShortTransport)?;
            usize::from(offset >> 4) * 4
        }
    };
    if protocol == Transport::Tcp && length < 20 {
        return Err(Untranslatable::BadTcpHeaderLength);
    }
    let payload = transport + length;
    if payload > packet.len() {
        return Err(Untranslatable::ShortTransport);
    }
    Ok(payload)
}
