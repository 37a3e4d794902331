//! Parses the headers behind an untagged Ethernet header: ARP (RFC 826), IPv4 (RFC 791), IPv6
//! (RFC 8200), neighbour discovery (RFC 4861), and the ports of DHCP.
//!
//! The input is a private snapshot of the first bytes. A header that reaches outside the snapshot is not
//! understood, and the result is `None`.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::mac::Mac;

pub(super) const ETHERNET: usize = 14;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
pub(super) const SCTP: u8 = 132;
const IGMP: u8 = 2;

/// The payload of an Ethernet frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// ARP for IPv4.
    Arp(Arp),
    /// RARP, with the sender's hardware address.
    Rarp(Mac),
    /// IPv4 or IPv6.
    Ip(Ip),
    /// A VLAN tag.
    Tagged,
    /// Something else.
    Other,
}

/// The claims of an ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// The sender's hardware address.
    pub sender: Mac,
    /// The sender's protocol address.
    pub address: Ipv4Addr,
    request: bool,
}

impl Arp {
    /// Returns whether this is a probe, which asks whether an address is free and claims none (RFC 5227,
    /// 2.1.1).
    #[must_use]
    pub fn probe(&self) -> bool {
        self.request && self.address == Ipv4Addr::UNSPECIFIED
    }
}

/// An address of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4.
    V4(Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr),
}

/// The claims of an IP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Source address.
    pub source: Address,
    /// The source is the unspecified address, which this kind of packet may have.
    pub without_address: bool,
    /// The transport protocol.
    pub protocol: u8,
    /// Offset of the transport header, unless the packet is a later fragment.
    pub transport: Option<usize>,
    /// The service that the sender offers with this packet.
    pub service: Option<Service>,
    /// The claims of a neighbour discovery message.
    pub neighbour: Option<Neighbour>,
}

/// Services that the rules can restrict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Router advertisements, redirects, and group membership queries.
    Router,
    /// Answers of a DHCP server.
    Dhcp,
}

/// The claims of a neighbour discovery message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The sender's link-layer address.
    pub link: Option<Mac>,
    /// The address that the message claims for the sender.
    pub claims: Option<Ipv6Addr>,
}

/// Parses the payload behind an Ethernet header with this EtherType; `bytes` are its first bytes.
#[must_use]
pub fn read(kind: u16, bytes: &[u8]) -> Option<Payload> {
    match kind {
        0x0806 => arp(bytes).map(Payload::Arp),
        0x8035 => mac_at(bytes, 8).map(Payload::Rarp),
        0x0800 => ipv4(bytes).map(Payload::Ip),
        0x86dd => ipv6(bytes).map(Payload::Ip),
        0x8100 | 0x88a8 | 0x9100 | 0x9200 => Some(Payload::Tagged),
        _ => Some(Payload::Other),
    }
}

pub(super) fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn mac_at(bytes: &[u8], at: usize) -> Option<Mac> {
    Some(Mac::from_octets(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn v4_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = *bytes.get(at..)?.first_chunk()?;
    Some(Ipv4Addr::from(octets))
}

pub(super) fn v6_at(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
    Some(Ipv6Addr::from(octets))
}

/// Parses ARP for Ethernet and IPv4 (RFC 826).
fn arp(bytes: &[u8]) -> Option<Arp> {
    let fixed: [u8; 6] = *bytes.first_chunk()?;
    let address = v4_at(bytes, 14)?;
    // The target's addresses must be present too, although they are not checked.
    bytes.get(..28)?;
    (fixed == [0, 1, 8, 0, 6, 4]).then_some(Arp {
        sender: mac_at(bytes, 8)?,
        address,
        request: u16_at(bytes, 6)? == 1,
    })
}

/// Returns the bytes of a packet of this length without the padding behind it, which could be taken for a
/// transport header. A GSO packet may have the length 0.
fn within(bytes: &[u8], length: usize) -> &[u8] {
    match length {
        0 => bytes,
        _ => bytes.get(..length).unwrap_or(bytes),
    }
}

/// Parses an IPv4 header (RFC 791, 3.1).
fn ipv4(bytes: &[u8]) -> Option<Ip> {
    let first = u8_at(bytes, 0)?;
    let header = usize::from(first & 0xf) * 4;
    let source = v4_at(bytes, 12)?;
    let bytes = within(bytes, usize::from(u16_at(bytes, 2)?));
    if first >> 4 != 4 || header < 20 || bytes.len() < header {
        return None;
    }
    let protocol = u8_at(bytes, 9)?;
    let later_fragment = u16_at(bytes, 6)? & 0x1fff != 0;
    let ports = match protocol {
        UDP if !later_fragment => Some((u16_at(bytes, header)?, u16_at(bytes, header + 2)?)),
        _ => None,
    };
    let service = match protocol {
        // RFC 2131, 4.1: clients check the destination port only, so an answer may come from any port.
        UDP => ports
            .filter(|(from, to)| *from == 67 || *to == 68)
            .map(|_| Service::Dhcp),
        IGMP if !later_fragment => (u8_at(bytes, header)? == 0x11).then_some(Service::Router),
        _ => None,
    };
    // RFC 2131, 4.1: a client without an address sends from 0.0.0.0. Hosts that join groups before they have
    // an address do the same.
    let may_lack_one = ports == Some((68, 67)) || protocol == IGMP;
    Some(Ip {
        source: Address::V4(source),
        without_address: source == Ipv4Addr::UNSPECIFIED && may_lack_one,
        protocol,
        transport: (!later_fragment).then_some(header),
        service,
        neighbour: None,
    })
}

/// Parses an IPv6 header and its extension headers (RFC 8200, 3 and 4).
fn ipv6(bytes: &[u8]) -> Option<Ip> {
    if u8_at(bytes, 0)? >> 4 != 6 {
        return None;
    }
    let source = v6_at(bytes, 8)?;
    let bytes = match usize::from(u16_at(bytes, 4)?) {
        0 => bytes,
        payload => within(bytes, 40 + payload),
    };
    let (mut protocol, mut at) = (u8_at(bytes, 6)?, 40);
    let (mut fragment, mut later_fragment) = (false, false);
    // Each extension header has eight bytes at least, so the end of the snapshot bounds this loop.
    while !later_fragment {
        let length = match protocol {
            0 | 43 | 60 => (usize::from(u8_at(bytes, at + 1)?) + 1) * 8,
            44 => {
                fragment = true;
                later_fragment = u16_at(bytes, at + 2)? & 0xfff8 != 0;
                8
            }
            // RFC 4302, 2.2.
            51 => (usize::from(u8_at(bytes, at + 1)?) + 2) * 4,
            _ => break,
        };
        protocol = u8_at(bytes, at)?;
        at += length;
    }
    let mut ip = Ip {
        source: Address::V6(source),
        without_address: false,
        protocol,
        transport: (!later_fragment).then_some(at),
        service: None,
        neighbour: None,
    };
    let unspecified = source.is_unspecified();
    match protocol {
        // A later fragment is useless to its receiver without the first fragment, which was checked.
        _ if later_fragment => {}
        UDP => {
            let (from, to) = (u16_at(bytes, at)?, u16_at(bytes, at + 2)?);
            // RFC 8415, 7.2, and RFC 7610, 3: a message to a client's port is an answer.
            ip.service = (from == 547 || to == 546).then_some(Service::Dhcp);
        }
        ICMPV6 => {
            let kind = u8_at(bytes, at)?;
            // RFC 6980, 5: these messages must not be fragmented.
            if fragment && (133..=137).contains(&kind) {
                return None;
            }
            let end = 40 + usize::from(u16_at(bytes, 4)?);
            ip.service = matches!(kind, 130 | 134 | 137).then_some(Service::Router);
            if let 133 | 135 | 136 = kind {
                let neighbour = neighbour(kind, bytes.get(at..end)?)?;
                // RFC 4861, 4.1 and 4.3: the source may be :: only without a link-layer address option.
                ip.without_address = unspecified && kind != 136 && neighbour.link.is_none();
                ip.neighbour = Some(neighbour);
            }
            // RFC 3590, 4: a host may join groups before it has an address.
            ip.without_address |= unspecified && matches!(kind, 131 | 132 | 143);
        }
        _ => {}
    }
    Some(ip)
}

/// Parses a neighbour discovery message (RFC 4861, 4.1, 4.3 and 4.4).
fn neighbour(kind: u8, message: &[u8]) -> Option<Neighbour> {
    let mut found = Neighbour {
        claims: match kind {
            136 => Some(v6_at(message, 8)?),
            _ => None,
        },
        link: None,
    };
    let mut at = if kind == 133 { 8 } else { 24 };
    message.get(..at)?;
    while at < message.len() {
        let length = usize::from(u8_at(message, at + 1)?) * 8;
        if length == 0 || at + length > message.len() {
            return None;
        }
        // Source and target link-layer address (4.6.1).
        if let 1 | 2 = u8_at(message, at)? {
            let link = mac_at(message, at + 2)?;
            if found.link.is_some_and(|other| other != link) {
                return None;
            }
            found.link = Some(link);
        }
        at += length;
    }
    Some(found)
}
