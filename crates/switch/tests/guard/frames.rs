//! Frames of station 1 with every protocol whose addresses the switch checks, and assertions on their delivery.

use front_end::{Layout, frame};
use switch::control::Drops;
use switch::guard::{Prefix, Rules, SourceRules};
use switch::mac::Mac;

use crate::common::Plane;
use crate::{assert_nothing, nics, send};

/// The rules of the port of station 1, whose addresses are 10.0.0.1 and fd00::1.
pub(crate) fn own() -> Rules {
    let prefix = |address: &str, bits| Prefix {
        address: address.parse().unwrap(),
        bits,
    };
    Rules {
        source: SourceRules {
            macs: vec![Mac::from_octets(frame::mac(1))],
            ips: Some(vec![prefix("10.0.0.1", 32), prefix("fd00::1", 128)]),
            router: false,
            dhcp_server: false,
        },
        ..Rules::default()
    }
}

/// Returns a broadcast frame of this EtherType.
pub(crate) fn ethernet(from: [u8; 6], kind: u16, body: &[u8]) -> Vec<u8> {
    [&[0xff; 6][..], &from, &kind.to_be_bytes(), body].concat()
}

/// Returns a broadcast frame from the MAC address of station 1.
pub(crate) fn from_station_1(kind: u16, body: &[u8]) -> Vec<u8> {
    ethernet(frame::mac(1), kind, body)
}

/// Returns an ARP packet of station 1.
pub(crate) fn arp(operation: u8, sender: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4, 0, operation];
    let body = [&fixed[..], &sender, &address, &[0; 6], &[10, 0, 0, 2]].concat();
    from_station_1(0x0806, &body)
}

/// Returns an IPv4 packet of station 1 with this source address.
pub(crate) fn ipv4(
    source: [u8; 4],
    protocol: u8,
    fragment: u16,
    options: usize,
    body: &[u8],
) -> Vec<u8> {
    let length = (20 + options + body.len()) as u16;
    let mut header = vec![0x40 | (5 + options / 4) as u8, 0];
    header.extend(length.to_be_bytes());
    header.extend([0, 1]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(source);
    header.extend([10, 0, 0, 2]);
    header.extend(vec![1; options]);
    from_station_1(0x0800, &[&header, body].concat())
}

/// Returns a UDP datagram.
pub(crate) fn udp(from: u16, to: u16) -> Vec<u8> {
    let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
    [&ports[..], &[0, 16, 0, 0], &[7; 8]].concat()
}

/// The link-local address that is derived from station 1's MAC address.
pub(crate) const LINK_LOCAL: &str = "fe80::5054:ff:fe00:1";

/// Returns an IPv6 packet of station 1 with this source address.
pub(crate) fn ipv6(source: &str, next: u8, body: &[u8]) -> Vec<u8> {
    let source: std::net::Ipv6Addr = source.parse().unwrap();
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((body.len() as u16).to_be_bytes());
    header.extend([next, 255]);
    header.extend(source.octets());
    header.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    from_station_1(0x86dd, &[&header, body].concat())
}

/// A neighbour solicitation or advertisement, with a link-layer address option.
/// Returns a message of neighbour discovery.
pub(crate) fn neighbour(kind: u8, target: &str, link: Option<[u8; 6]>) -> Vec<u8> {
    let target: std::net::Ipv6Addr = target.parse().unwrap();
    let mut body = vec![kind, 0, 0, 0, 0x20, 0, 0, 0];
    body.extend(target.octets());
    if let Some(link) = link {
        body.extend([if kind == 135 { 1 } else { 2 }, 1]);
        body.extend(link);
    }
    body
}

/// Asserts that the frames of a port with these rules arrive unchanged, in any layout.
pub(crate) fn passes(rules: &Rules, frames: &[Vec<u8>]) {
    let mut plane = Plane::new();
    let [mut a, mut b] = nics(&mut plane, [rules.clone(), Rules::default()]);
    for bytes in frames {
        for layout in [Layout::One, Layout::SeparateHeader, Layout::Pieces(15)] {
            a.wait_to_send(bytes, layout);
            a.wait_until_sent();
            assert_eq!(plane.counters(1).drops, Drops::default(), "{bytes:02x?}");
            assert_eq!(b.wait_to_receive().frame, *bytes);
        }
    }
}

/// Asserts that the frames of a port with these rules are dropped for this reason, and not learnt.
pub(crate) fn are_dropped(rules: &Rules, reason: impl Fn(&Drops) -> u64, frames: &[Vec<u8>]) {
    let mut plane = Plane::new();
    let [mut a, mut b, mut c] = nics(
        &mut plane,
        [rules.clone(), Rules::default(), Rules::default()],
    );
    for (count, bytes) in (1..).zip(frames) {
        send(&mut a, bytes);
        let drops = plane.counters(1).drops;
        assert_eq!(
            (reason(&drops), drops.total()),
            (count, count),
            "{bytes:02x?} {drops:?}"
        );
    }
    assert_nothing(&mut b);
    assert_eq!(plane.report().1.fdb_entries, 0);
    let other = frame::numbered(frame::BROADCAST, frame::mac(3), 1, 60);
    send(&mut c, &other);
    assert_eq!(
        b.wait_to_receive().frame,
        other,
        "neighbours are unaffected"
    );
}
