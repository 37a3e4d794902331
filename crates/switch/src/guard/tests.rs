//! Tests of VLAN tags: examples and random frames.

use proptest::prelude::*;
use vhost::net_header::{GSO_TCPV4, NEEDS_CSUM, NetHeader};

use super::*;

fn frame(kind: &[u8], body: &[u8]) -> Vec<u8> {
    let addresses = [0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1];
    [&addresses[..], kind, body].concat()
}

/// Returns the frame inside the switch (bytes, TCI and network header), or why the port's guard drops it.
fn admit(
    rules: &Rules,
    header: NetHeader,
    bytes: &[u8],
) -> Result<(Vec<u8>, Tci, NetHeader), DropReason> {
    let guard = Guard::new(rules).unwrap();
    let (mut head, mut rest) = Head::of_private(header, bytes).unwrap();
    let checked = guard.enter(&mut head, |to| {
        let (now, later) = rest.split_at(to.len().min(rest.len()));
        to[..now.len()].copy_from_slice(now);
        rest = later;
        now.len()
    })?;
    let inside = [&head.ethernet()[..], rest].concat();
    assert_eq!(inside.len(), head.length as usize);
    Ok((inside, checked.tci, head.header()))
}

fn vlans(untagged: Option<u16>, tagged: &[(u16, u16)]) -> Rules {
    let tagged = tagged.to_vec();
    Rules {
        vlan: Some(VlanRules { untagged, tagged }),
        ..Rules::default()
    }
}

fn enter(rules: &Rules, kind: &[u8]) -> Result<(Vec<u8>, u16), DropReason> {
    let (inside, tci, _) = admit(rules, NetHeader::NONE, &frame(kind, &[7; 50]))?;
    Ok((inside, tci.vlan()))
}

const IPV4: [u8; 2] = [8, 0];
const TAG_10: [u8; 6] = [0x81, 0, 0x60, 10, 8, 0];

#[test]
fn ieee_802_1q_an_access_port_sends_only_untagged_frames() {
    let access = vlans(Some(10), &[]);
    let plain = frame(&IPV4, &[7; 50]);
    assert_eq!(enter(&access, &IPV4), Ok((plain.clone(), 10)));
    // A priority tag names no VLAN.
    assert_eq!(enter(&access, &[0x81, 0, 0xa0, 0, 8, 0]), Ok((plain, 10)));
    for foreign in [
        &TAG_10,
        &[0x81, 0, 0, 20, 8, 0],
        &[0x81, 0, 0x0f, 0xff, 8, 0],
    ] {
        assert_eq!(
            enter(&access, foreign),
            Err(DropReason::Vlan),
            "{foreign:x?}"
        );
    }
}

#[test]
fn ieee_802_1q_the_priority_is_kept_when_the_tag_is_removed() {
    let bytes = frame(&[0x81, 0, 0xa0, 0, 8, 0], &[7; 50]);
    let (inside, tci, header) = admit(&vlans(Some(10), &[]), NetHeader::NONE, &bytes).unwrap();
    let (head, rest) = Head::of_private(header, &inside).unwrap();
    let checked = Checked {
        tci,
        ..Checked::default()
    };
    let out = Outgoing::new(Tagging::Tagged, checked, &head, &Rest::Private(rest)).unwrap();
    let mut tag = [0; 4];
    assert_eq!(out.rest().read(&mut tag), 4);
    assert_eq!(tag, [0xa0, 10, 8, 0]);
}

#[test]
fn ieee_802_1q_a_trunk_sends_frames_of_its_vlans() {
    let trunk = vlans(None, &[(10, 12), (4094, 4094)]);
    let plain = frame(&IPV4, &[7; 50]);
    assert_eq!(enter(&trunk, &TAG_10), Ok((plain.clone(), 10)));
    assert_eq!(enter(&trunk, &[0x81, 0, 0, 12, 8, 0]), Ok((plain, 12)));
    for foreign in [
        &IPV4[..],
        &[0x81, 0, 0, 9, 8, 0],
        &[0x81, 0, 0, 13, 8, 0],
        &[0x81, 0, 0xa0, 0, 8, 0],
        &[0x81, 0, 0x0f, 0xff, 8, 0],
    ] {
        assert_eq!(
            enter(&trunk, foreign),
            Err(DropReason::Vlan),
            "{foreign:x?}"
        );
    }
    let native = vlans(Some(1), &[(10, 10)]);
    assert_eq!(enter(&native, &IPV4).map(|(_, vlan)| vlan), Ok(1));
}

#[test]
fn vlan_hopping_with_two_tags_is_prevented() {
    for rules in [vlans(Some(10), &[(10, 20)]), vlans(Some(10), &[])] {
        for first in [0, 10, 20] {
            for second in [[0x81, 0], [0x88, 0xa8], [0x91, 0]] {
                let tags = [0x81, 0, 0, first, second[0], second[1], 0, 20, 8, 0];
                assert_eq!(enter(&rules, &tags), Err(DropReason::Vlan), "{tags:x?}");
            }
        }
        assert_eq!(
            enter(&rules, &[0x88, 0xa8, 0, 10, 8, 0]),
            Err(DropReason::Vlan)
        );
    }
}

#[test]
fn a_truncated_tag_is_dropped() {
    let trunk = vlans(Some(1), &[(1, 100)]);
    for length in 0..4 {
        let bytes = frame(&[0x81, 0], &vec![0; length]);
        assert_eq!(
            admit(&trunk, NetHeader::NONE, &bytes),
            Err(DropReason::BadLength)
        );
    }
    let shortest = frame(&[0x81, 0], &[0, 1, 8, 0]);
    assert!(admit(&trunk, NetHeader::NONE, &shortest).is_ok());
}

#[test]
fn a_checksum_inside_the_tag_is_refused() {
    let trunk = vlans(None, &[(10, 10)]);
    let header = NetHeader {
        flags: NEEDS_CSUM,
        hdr_len: 20,
        csum_start: 17,
        ..NetHeader::NONE
    };
    let bytes = frame(&TAG_10, &[0; 50]);
    assert_eq!(
        admit(&trunk, header, &bytes),
        Err(DropReason::Untranslatable)
    );
}

#[test]
fn a_frame_that_a_tag_makes_too_long_does_not_leave() {
    let bytes = vec![0; vhost::limits::MAX_FRAME as usize];
    let (head, rest) = Head::of_private(NetHeader::NONE, &bytes).unwrap();
    let (checked, rest) = (
        Checked {
            tci: Tci::of(5),
            ..Checked::default()
        },
        Rest::Private(rest),
    );
    assert!(Outgoing::new(Tagging::Untagged, checked, &head, &rest).is_some());
    assert!(Outgoing::new(Tagging::Tagged, checked, &head, &rest).is_none());
}

proptest! {
    #[test]
    fn a_tagged_frame_leaves_the_switch_unchanged(
        priority in 0_u16..16,
        vlan in 1_u16..=MAX_VLAN,
        body in prop::collection::vec(any::<u8>(), 60..200),
        sum in any::<bool>(),
        cut in any::<bool>(),
    ) {
        let [high, low] = (priority << 12 | vlan).to_be_bytes();
        let bytes = frame(&[0x81, 0, high, low, 8, 0], &body);
        let header = NetHeader {
            flags: if sum { NEEDS_CSUM } else { 0 },
            gso_type: if cut { GSO_TCPV4 } else { 0 },
            hdr_len: if sum || cut { 58 } else { 0 },
            gso_size: if cut { 1000 } else { 0 },
            csum_start: if sum { 38 } else { 0 },
            csum_offset: if sum { 16 } else { 0 },
            num_buffers: 0,
        };
        let rules = vlans(None, &[(1, MAX_VLAN)]);
        let (inside, tci, moved) = admit(&rules, header, &bytes).unwrap();
        prop_assert_eq!(tci.vlan(), vlan);
        prop_assert_eq!(moved.csum_start, if sum { 34 } else { 0 });
        prop_assert_eq!(moved.hdr_len, if sum || cut { 54 } else { 0 });

        let (head, rest) = Head::of_private(moved, &inside).unwrap();
        let (checked, rest) = (Checked { tci, ..Checked::default() }, Rest::Private(rest));
        let out = Outgoing::new(Tagging::Tagged, checked, &head, &rest).unwrap();
        prop_assert_eq!(out.head.header(), header);
        let mut outside = vec![0; bytes.len() - 14];
        prop_assert_eq!(out.rest().read(&mut outside), outside.len());
        prop_assert_eq!([&out.head.ethernet()[..], &outside].concat(), bytes);
    }

    #[test]
    fn a_port_gets_only_the_frames_of_its_vlans(
        untagged in prop::option::of(1_u16..40),
        tagged in prop::collection::vec((1_u16..40, 1_u16..40), 0..4),
        vlan in 0_u16..45,
    ) {
        let rules = vlans(untagged, &tagged);
        let guard = Guard::new(&rules).unwrap();
        let has = tagged.iter().any(|(from, to)| (*from..=*to).contains(&vlan));
        let expected = match (untagged == Some(vlan), has) {
            (true, _) => Ok(Tagging::Untagged),
            (false, true) => Ok(Tagging::Tagged),
            (false, false) => Err(DropReason::Vlan),
        };
        let checked = Checked { tci: Tci::of(vlan), ..Checked::default() };
        prop_assert_eq!(egress_tagging(Some(&guard), checked), expected);
        let without_guard = if vlan == 0 { Ok(Tagging::Untagged) } else { Err(DropReason::Vlan) };
        prop_assert_eq!(egress_tagging(None, checked), without_guard);
    }
}

#[test]
fn a_prefix_of_a_packet_is_parsed_alike_or_not_at_all() {
    use std::cell::Cell;
    let kind = prop::sample::select(vec![0x0800_u16, 0x0806, 0x8035, 0x86dd]);
    let first = prop::sample::select(vec![0x45_u8, 0x4f, 0x60, 0]);
    let next = prop::sample::select(vec![0_u8, 17, 43, 44, 51, 58, 60]);
    let bytes = prop::collection::vec(any::<u8>(), 10..SNAPSHOT);
    let [read, refused] = [Cell::new(0), Cell::new(0)];
    let mut runner = proptest::test_runner::TestRunner::default();
    let checked = runner.run(
        &(kind, first, next, bytes),
        |(kind, first, next, mut bytes)| {
            // ARP and RARP packets begin with the types of Ethernet and IPv4.
            match kind {
                0x0806 | 0x8035 => bytes[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]),
                _ => {
                    bytes[0] = first;
                    bytes[if first == 0x60 { 6 } else { 9 }] = next;
                }
            }
            let whole = headers::read(kind, &bytes);
            // Fewer bytes give the same result, or are not understood.
            for length in 0..bytes.len() {
                let part = headers::read(kind, &bytes[..length]);
                prop_assert!(part.is_none() || part == whole, "{:?} {:?}", part, whole);
            }
            let count = if whole.is_some() { &read } else { &refused };
            count.set(count.get() + 1);
            Ok(())
        },
    );
    checked.unwrap();
    let counts = (read.get(), refused.get());
    assert!(counts.0 > 20 && counts.1 > 20, "{counts:?}");
}
