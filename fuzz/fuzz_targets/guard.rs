//! Packets from guests, as the guard of a port and group snooping read them.
//!
//! An input has one byte that selects the reader, two bytes with an EtherType (or the address
//! family in the lowest bit), and then the packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use switch::guard::groups::{EgressPorts, Groups};
use switch::guard::headers;
use switch::guard::membership::{self, Change, Family, MAX_PACKET, Message};
use switch::mac::Mac;

/// Bytes of a frame that a guard reads.
const SNAPSHOT: usize = 114;

fuzz_target!(|data: &[u8]| {
    let Some(([what, a, b], packet)) = data.split_first_chunk::<3>() else {
        return;
    };
    let kind = u16::from_be_bytes([*a, *b]);
    if what & 1 == 0 {
        source(kind, &packet[..packet.len().min(SNAPSHOT)]);
    } else {
        groups(kind, &packet[..packet.len().min(MAX_PACKET)]);
    }
});

/// Checks that a shorter snapshot gives the same result, or none.
fn source(kind: u16, bytes: &[u8]) {
    let whole = headers::read(kind, bytes);
    for length in 0..bytes.len() {
        let part = headers::read(kind, &bytes[..length]);
        assert!(part.is_none() || part == whole);
    }
    if let Some(headers::Payload::Ip(ip)) = whole {
        assert!(ip.transport.is_none_or(|at| at >= 20));
    }
}

/// Checks the changes in a membership report, and which ports then receive a frame of a group.
fn groups(kind: u16, packet: &[u8]) {
    let family = match kind & 1 {
        0 => Family::V4,
        _ => Family::V6,
    };
    // Most inputs would fail on their checksum, so the target corrects it.
    let mut sound = packet.to_vec();
    membership_sums(family, &mut sound);
    let message = membership::read(family, &sound);
    let Message::Report(report) = message else {
        return;
    };
    let changes: Vec<Change> = report.changes().collect();
    assert!(changes.len() <= MAX_PACKET / 8);
    for change in &changes {
        let (Change::Join(group) | Change::Leave(group)) = change;
        assert!(group.is_multicast());
    }
    let mut groups = Groups::default();
    let to = Mac::from_octets([1, 0, 0x5e, 1, 1, 1]);
    let egress_ports = groups.handle_message(message, family, (0, to), 1, 10);
    assert!(!egress_ports.contains(2), "a report goes to routers alone");
    assert_eq!(groups.egress_ports(family, 0, to, 10), EgressPorts::All);
}

/// Corrects the checksums.
fn membership_sums(family: Family, packet: &mut [u8]) {
    let sum = |before: u32, bytes: &[u8]| front_end::frame::internet_checksum(before, bytes);
    match family {
        Family::V4 => {
            let header = 4 * usize::from(packet.first().copied().unwrap_or(0) & 0xf);
            let length = packet.get(2..4).map_or(0, |both| {
                usize::from(u16::from_be_bytes([both[0], both[1]]))
            });
            if header < 20 || length < header + 8 || length > packet.len() {
                return;
            }
            packet[10..12].fill(0);
            let ip = sum(0, &packet[..header]);
            packet[10..12].copy_from_slice(&ip.to_be_bytes());
            packet[header + 2..header + 4].fill(0);
            let message = sum(0, &packet[header..length]);
            packet[header + 2..header + 4].copy_from_slice(&message.to_be_bytes());
        }
        Family::V6 => {
            let length = packet.get(4..6).map_or(0, |both| {
                usize::from(u16::from_be_bytes([both[0], both[1]]))
            });
            if length < 16 || 40 + length > packet.len() {
                return;
            }
            packet[50..52].fill(0);
            let before = u32::from(!sum(0, &packet[8..40])) + length as u32 - 8 + 58;
            let message = sum(before, &packet[48..40 + length]);
            packet[50..52].copy_from_slice(&message.to_be_bytes());
        }
    }
}
