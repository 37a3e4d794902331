//! Builds the packets that hosts and routers send about multicast groups: IGMP and MLD packets, without
//! an Ethernet header.

use std::net::Ipv6Addr;

use crate::frame::internet_checksum;

/// Returns an IGMP packet (RFC 3376, section 4) with a router alert option and valid checksums.
#[must_use]
pub fn igmp(source: [u8; 4], destination: [u8; 4], message: &[u8]) -> Vec<u8> {
    let [high, low] = (24 + message.len() as u16).to_be_bytes();
    let fixed = [0x46, 0xc0, high, low, 0, 0, 0, 0, 1, 2, 0, 0];
    let mut ip = [&fixed[..], &source, &destination, &[0x94, 4, 0, 0]].concat();
    fill(&mut ip, 0, 10);
    let mut message = message.to_vec();
    fill(&mut message, 0, 2);
    [ip, message].concat()
}

/// Returns an MLD packet (RFC 3810, section 5) after a router alert option, with a valid checksum.
#[must_use]
pub fn mld(source: &str, destination: &str, message: &[u8]) -> Vec<u8> {
    let [source, destination] = [source, destination].map(|text| {
        let address: Ipv6Addr = text.parse().unwrap();
        address.octets()
    });
    let [high, low] = (8 + message.len() as u16).to_be_bytes();
    let header = [0x60, 0, 0, 0, high, low, 0, 1];
    let alert = [58, 0, 5, 2, 0, 0, 1, 0];
    // The pseudo header of RFC 8200, section 8.1.
    let pseudo = [
        &source[..],
        &destination,
        &[0, 0, high, low - 8],
        &[0, 0, 0, 58],
    ]
    .concat();
    let mut message = message.to_vec();
    let before = u32::from(!internet_checksum(0, &pseudo));
    fill(&mut message, before, 2);
    [&header[..], &source, &destination, &alert, &message].concat()
}

/// Returns a general query of IGMP version 2 with a maximum response time of one second.
#[must_use]
pub fn igmp_query() -> Vec<u8> {
    igmp(
        [10, 0, 0, 254],
        [224, 0, 0, 1],
        &[0x11, 10, 0, 0, 0, 0, 0, 0],
    )
}

/// Returns a report of IGMP version 2 if `join`, or else a leave message.
#[must_use]
pub fn igmp_report(join: bool, group: [u8; 4]) -> Vec<u8> {
    let (kind, to) = match join {
        true => (0x16, group),
        false => (0x17, [224, 0, 0, 2]),
    };
    igmp([10, 0, 0, 1], to, &[&[kind, 0, 0, 0][..], &group].concat())
}

fn fill(bytes: &mut [u8], before: u32, at: usize) {
    let sum = internet_checksum(before, bytes);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}
