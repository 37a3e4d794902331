//! Checks the source addresses of frames: in Ethernet, ARP, IP and neighbour discovery. Also checks services
//! that the rules restrict.
//!
//! The input is a snapshot of the first bytes of an untagged frame. On a port with restricted addresses, a
//! frame that the guard cannot understand is refused: an unknown EtherType, a truncated header, or a
//! partial checksum that would be written over checked bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use vhost::net_header::{NEEDS_CSUM, NetHeader};

use super::headers::{self, Ip, Neighbour, Payload, Service};
use super::rules::{Prefix, SourceRules};
use crate::control::DropReason;
use crate::mac::Mac;

/// Enforces the [`SourceRules`] of a port.
#[derive(Debug)]
pub(super) struct Sources {
    rules: SourceRules,
}

impl Sources {
    pub(super) fn new(rules: &SourceRules) -> Option<Self> {
        let rules = rules.clone();
        (rules != SourceRules::default()).then_some(Self { rules })
    }

    /// Returns whether the rules concern bytes behind the Ethernet header.
    pub(super) fn needs_payload(&self) -> bool {
        self.rules.ips.is_some() || !self.rules.router || !self.rules.dhcp_server
    }

    /// Checks the source address of the Ethernet header.
    pub(super) fn check_mac(&self, source: Mac) -> Result<(), DropReason> {
        let any = self.rules.macs.is_empty();
        let known = any || self.rules.macs.contains(&source);
        known.then_some(()).ok_or(DropReason::MacSpoofed)
    }

    /// Checks the payload behind the Ethernet header; `bytes` are its first bytes.
    pub(super) fn check(
        &self,
        source: Mac,
        kind: u16,
        bytes: &[u8],
        header: NetHeader,
    ) -> Result<(), DropReason> {
        let restricted = self.rules.ips.is_some();
        match headers::read(kind, bytes).ok_or(DropReason::NotUnderstood)? {
            Payload::Arp(arp) if restricted => {
                let own = arp.sender == source && (arp.probe() || self.has4(arp.address));
                (own && header.flags & NEEDS_CSUM == 0)
                    .then_some(())
                    .ok_or(DropReason::ArpSpoofed)
            }
            Payload::Rarp(sender) if restricted => {
                let own = sender == source && header.flags & NEEDS_CSUM == 0;
                own.then_some(()).ok_or(DropReason::ArpSpoofed)
            }
            Payload::Ip(ip) => self.check_ip(source, &ip, header),
            Payload::Tagged => Err(DropReason::NotUnderstood),
            Payload::Other if restricted => Err(DropReason::NotUnderstood),
            Payload::Arp(_) | Payload::Rarp(_) | Payload::Other => Ok(()),
        }
    }

    fn check_ip(&self, source: Mac, ip: &Ip, header: NetHeader) -> Result<(), DropReason> {
        if header.flags & NEEDS_CSUM != 0 && !checksum_is_the_transports(ip, header) {
            return Err(DropReason::NotUnderstood);
        }
        match ip.service {
            Some(Service::Router) if !self.rules.router => return Err(DropReason::RogueService),
            Some(Service::Dhcp) if !self.rules.dhcp_server => return Err(DropReason::RogueService),
            _ => {}
        }
        if self.rules.ips.is_none() {
            return Ok(());
        }
        let own = match ip.source {
            headers::Address::V4(address) => self.has4(address) || ip.without_address,
            headers::Address::V6(address) => self.has6(source, address) || ip.without_address,
        };
        if !own {
            return Err(DropReason::IpSpoofed);
        }
        match &ip.neighbour {
            Some(neighbour) => self.check_neighbour(source, neighbour),
            None => Ok(()),
        }
    }

    fn check_neighbour(&self, source: Mac, neighbour: &Neighbour) -> Result<(), DropReason> {
        let link = neighbour.link.is_none_or(|link| link == source);
        let target = neighbour
            .claims
            .is_none_or(|target| self.has6(source, target));
        (link && target).then_some(()).ok_or(DropReason::NdSpoofed)
    }

    fn has4(&self, address: Ipv4Addr) -> bool {
        let ips = self.rules.ips.iter().flatten();
        let mut ips = ips.filter_map(Prefix::v4);
        ips.any(|(prefix, bits)| same(address.to_bits().into(), prefix.to_bits().into(), 32 - bits))
    }

    fn has6(&self, source: Mac, address: Ipv6Addr) -> bool {
        let ips = self.rules.ips.iter().flatten();
        let mut ips = ips.filter_map(Prefix::v6);
        address == link_local(source)
            || ips.any(|(prefix, bits)| same(address.to_bits(), prefix.to_bits(), 128 - bits))
    }
}

/// Returns whether two numbers are equal except for their lowest `free` bits.
fn same(a: u128, b: u128, free: u32) -> bool {
    (a ^ b).checked_shr(free).unwrap_or(0) == 0
}

/// Returns the link-local address that is derived from a MAC address (RFC 4291, appendix A).
pub(super) fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.octets();
    let word = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        word(a ^ 2, b),
        word(c, 0xff),
        word(0xfe, d),
        word(e, f),
    )
}

/// Returns whether a partial checksum is the transport header's. The device writes a partial checksum where the
/// network header says; another place would let the sender overwrite a checked address.
fn checksum_is_the_transports(ip: &Ip, header: NetHeader) -> bool {
    let offset = match ip.protocol {
        headers::TCP => 16,
        headers::UDP => 6,
        headers::ICMPV6 => 2,
        headers::SCTP => 8,
        _ => return false,
    };
    let transport = ip.transport.map(|at| at + headers::ETHERNET);
    Some(usize::from(header.csum_start)) == transport && header.csum_offset == offset
}
