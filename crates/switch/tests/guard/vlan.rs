//! VLANs: access ports, trunks, the uplink.

use front_end::wire::request;
use front_end::{Layout, Nic, Options, frame};
use switch::guard::{Rules, VlanRules};

use crate::common::{Outside, Plane};
use crate::{assert_lost, assert_nothing, nics, send};

fn access(vlan: u16) -> Rules {
    Rules {
        vlan: Some(VlanRules::access(vlan)),
        ..Rules::default()
    }
}

fn trunk(untagged: Option<u16>, tagged: &[(u16, u16)]) -> Rules {
    let tagged = tagged.to_vec();
    Rules {
        vlan: Some(VlanRules { untagged, tagged }),
        ..Rules::default()
    }
}

/// The frame with a tag of priority 3.
fn tagged(bytes: &[u8], vlan: u16) -> Vec<u8> {
    let tag = (3 << 13 | vlan).to_be_bytes();
    [&bytes[..12], &[0x81, 0], &tag, &bytes[12..]].concat()
}

/// The same without priority, as it is after an untagged port.
fn plainly_tagged(bytes: &[u8], vlan: u16) -> Vec<u8> {
    let tag = vlan.to_be_bytes();
    [&bytes[..12], &[0x81, 0], &tag, &bytes[12..]].concat()
}

fn hello(station: u16) -> Vec<u8> {
    frame::numbered(frame::BROADCAST, frame::mac(station), 1, 80)
}

fn to(station: u16, from: u16) -> Vec<u8> {
    frame::numbered(frame::mac(station), frame::mac(from), 2, 300)
}

#[test]
fn access_ports_meet_their_own_vlan_alone() {
    let mut plane = Plane::new();
    let [mut a, mut b, mut c] = nics(&mut plane, [access(10), access(10), access(20)]);
    send(&mut a, &hello(1));
    assert_eq!(b.wait_to_receive().frame, hello(1));
    send(&mut c, &hello(3));
    send(&mut b, &to(1, 2));
    assert_eq!(a.wait_to_receive().frame, to(1, 2));
    // The address is learnt at port 3 in another VLAN. In this VLAN it is unknown, so the frame is flooded.
    send(&mut a, &to(3, 1));
    assert_eq!(b.wait_to_receive().frame, to(3, 1));
    assert_nothing(&mut c);
    assert_nothing(&mut a);
    for port in 1..=3 {
        assert_lost(&mut plane, port, |drops| drops.vlan, 0);
    }
}

#[test]
fn an_address_may_be_used_in_two_vlans() {
    let mut plane = Plane::new();
    let rules = [access(10), access(20), access(10), access(20)];
    let [mut a, mut b, mut c, mut d] = nics(&mut plane, rules);
    send(&mut a, &hello(1));
    assert_eq!(c.wait_to_receive().frame, hello(1));
    send(&mut b, &hello(1));
    assert_eq!(d.wait_to_receive().frame, hello(1));
    send(&mut c, &to(1, 3));
    assert_eq!(a.wait_to_receive().frame, to(1, 3));
    send(&mut d, &to(1, 4));
    assert_eq!(b.wait_to_receive().frame, to(1, 4));
    assert_nothing(&mut a);
    assert_eq!(plane.report().1.fdb_entries, 4);
}

#[test]
fn a_trunk_has_tags_and_an_access_port_has_not() {
    let mut plane = Plane::new();
    let rules = [
        access(10),
        access(20),
        trunk(None, &[(10, 20)]),
        trunk(Some(20), &[(10, 10)]),
    ];
    let [mut a, mut b, mut c, mut d] = nics(&mut plane, rules);
    send(&mut a, &hello(1));
    assert_eq!(c.wait_to_receive().frame, plainly_tagged(&hello(1), 10));
    assert_eq!(d.wait_to_receive().frame, plainly_tagged(&hello(1), 10));
    send(&mut b, &hello(2));
    assert_eq!(c.wait_to_receive().frame, plainly_tagged(&hello(2), 20));
    assert_eq!(d.wait_to_receive().frame, hello(2));
    // From the trunk to each VLAN, by its tag; the priority is kept.
    send(&mut c, &tagged(&hello(3), 10));
    assert_eq!(a.wait_to_receive().frame, hello(3));
    assert_eq!(d.wait_to_receive().frame, tagged(&hello(3), 10));
    send(&mut c, &tagged(&to(2, 3), 20));
    assert_eq!(b.wait_to_receive().frame, to(2, 3));
    // Unicast to a trunk, in one run and two VLANs.
    for (vlan, untagged) in [(10, false), (20, true), (10, false)] {
        let bytes = to(4, 3);
        send(&mut c, &tagged(&bytes, vlan));
        let expected = if untagged {
            bytes
        } else {
            tagged(&bytes, vlan)
        };
        assert_eq!(d.wait_to_receive().frame, expected);
        while a.receive().is_some() || b.receive().is_some() {}
    }
    // A VLAN without other ports, and a frame without a tag.
    send(&mut c, &tagged(&hello(3), 15));
    send(&mut c, &hello(3));
    send(&mut d, &hello(4));
    assert_eq!(b.wait_to_receive().frame, hello(4));
    assert_nothing(&mut a);
    assert_lost(&mut plane, 3, |drops| drops.vlan, 1);
}

#[test]
fn a_guest_does_not_hop_to_a_vlan_that_is_not_its_own() {
    let mut plane = Plane::new();
    let rules = [
        access(10),
        access(20),
        trunk(Some(10), &[(30, 30)]),
        trunk(Some(10), &[(20, 20)]),
    ];
    let [mut a, mut b, mut c, mut d] = nics(&mut plane, rules);
    let forged = [
        tagged(&hello(1), 20),
        tagged(&hello(1), 10),
        tagged(&tagged(&hello(1), 20), 10),
        tagged(&tagged(&hello(1), 20), 0),
        tagged(&tagged(&hello(1), 20), 30),
        tagged(&tagged(&hello(1), 20), 20),
    ];
    for bytes in &forged {
        send(&mut a, bytes);
        send(&mut c, bytes);
    }
    // The FDB does not learn the address either.
    assert_eq!(plane.report().1.fdb_entries, 0);
    for nic in [&mut a, &mut b, &mut c, &mut d] {
        assert_nothing(nic);
    }
    for port in [1, 3] {
        assert_lost(&mut plane, port, |drops| drops.vlan, 6);
    }
    // A valid frame still passes.
    send(&mut b, &hello(2));
    assert_eq!(d.wait_to_receive().frame, plainly_tagged(&hello(2), 20));
}

#[test]
fn the_uplink_is_a_trunk() {
    let mut plane = Plane::new();
    let outside = Outside::attach(&plane);
    plane.rules(9, trunk(Some(1), &[(10, 20)]));
    let [mut a, mut b, mut c] = nics(&mut plane, [access(10), access(1), access(30)]);
    send(&mut a, &hello(1));
    assert_eq!(outside.receive().1, plainly_tagged(&hello(1), 10));
    send(&mut b, &hello(2));
    assert_eq!(outside.receive().1, hello(2));
    send(&mut c, &hello(3));
    outside.send(&[0; 12], &tagged(&to(1, 90), 10));
    assert_eq!(a.wait_to_receive().frame, to(1, 90));
    // The address outside is learnt in its VLAN: unicast to the uplink, also in many pieces.
    a.wait_to_send(&to(90, 1), Layout::Pieces(50));
    assert_eq!(outside.receive().1, plainly_tagged(&to(90, 1), 10));
    outside.send(&[0; 12], &to(2, 91));
    assert_eq!(b.wait_to_receive().frame, to(2, 91));
    outside.send(&[0; 12], &tagged(&to(3, 90), 30));
    plane.until(9, |counters| counters.drops.vlan == 1);
    assert_nothing(&mut c);
}

#[test]
fn gso_frames_keep_their_offsets_and_segments_get_tags() {
    let mut plane = Plane::new();
    let outside = Outside::attach(&plane);
    plane.rules(9, trunk(None, &[(10, 10)]));
    let [mut a, mut b, mut c] = nics(
        &mut plane,
        [access(10), trunk(None, &[(10, 10)]), access(10)],
    );
    let mut plain = {
        plane.rules(4, trunk(None, &[(10, 10)]));
        plane.nic(
            4,
            Options {
                receive_bytes: 2048,
                ..Options::default()
            },
        )
    };
    for (nic, bytes) in [
        (&mut b, tagged(&hello(2), 10)),
        (&mut c, hello(3)),
        (&mut plain, tagged(&hello(4), 10)),
    ] {
        send(nic, &bytes);
        drop(outside.receive());
    }
    let drain = |nics: [&mut Nic; 3]| {
        for nic in nics {
            while nic.receive().is_some() {}
        }
    };
    drain([&mut a, &mut b, &mut c]);
    while plain.receive().is_some() {}

    // Partial checksum at 34 + 16, segments of 1000 bytes; with a tag all offsets are 4 bytes larger.
    let untagged = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];
    let behind_tag = [1, 1, 58, 0, 0xe8, 3, 38, 0, 16, 0, 0, 0];
    let data = vec![5; 20_000];
    let from = |from, to| frame::tcp(frame::mac(to), frame::mac(from), 0, &data);
    let whole = |station| from(1, station);
    a.send_with(&untagged, &whole(2), Layout::One);
    let got = b.wait_to_receive();
    assert_eq!(got.frame, plainly_tagged(&whole(2), 10));
    assert_eq!(got.header[..10], behind_tag[..10]);
    b.send_with(&behind_tag, &tagged(&from(2, 3), 10), Layout::One);
    let got = c.wait_to_receive();
    assert_eq!(
        (got.frame, &got.header[..10]),
        (from(2, 3), &untagged[..10])
    );
    // To a station outside.
    outside.send(&[0; 12], &plainly_tagged(&to(1, 90), 10));
    a.wait_to_receive();
    a.send_with(&untagged, &whole(90), Layout::One);
    let sent = (behind_tag.to_vec(), plainly_tagged(&whole(90), 10));
    assert_eq!(outside.receive(), sent);
    // A receiver without offloads gets segments, each with the tag.
    a.send_with(&untagged, &whole(4), Layout::One);
    let mut got = 0;
    while got < data.len() {
        let bytes = plain.wait_to_receive().frame;
        assert_eq!(bytes[12..16], [0x81, 0, 0, 10]);
        let (sequence, part) = frame::checked_tcp(&[&bytes[..12], &bytes[16..]].concat());
        assert_eq!(sequence as usize, got);
        got += part.len();
    }
}

#[test]
fn a_held_frame_keeps_its_vlan() {
    let mut plane = Plane::new();
    let [mut a, mut b] = nics(&mut plane, [access(10), trunk(Some(1), &[(10, 10)])]);
    send(&mut b, &tagged(&hello(2), 10));
    assert_eq!(a.wait_to_receive().frame, hello(2));
    b.options.post = false;
    b.restart();
    plane.running(2);
    for number in 0..10 {
        let bytes = frame::numbered(frame::mac(2), frame::mac(1), number, 100);
        assert!(a.send(&bytes, Layout::One));
    }
    plane.until(1, |counters| counters.backpressured > 0);
    b.post(u16::MAX);
    b.rx.publish_and_kick();
    for number in 0..10 {
        let bytes = frame::numbered(frame::mac(2), frame::mac(1), number, 100);
        assert_eq!(b.wait_to_receive().frame, plainly_tagged(&bytes, 10));
    }
}

#[test]
fn a_vm_is_announced_in_the_vlan_of_its_untagged_frames() {
    let announce = |nic: &Nic, station| {
        let said = [&frame::mac(station)[..], &[0, 0]].concat();
        assert!(nic.wire.send(request::SEND_RARP, &said, &[]));
        nic.sync();
    };
    let rarp = |station| {
        let fixed = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
        let mac = frame::mac(station);
        let mut bytes = [&frame::BROADCAST[..], &mac, &fixed, &mac, &[0; 4], &mac].concat();
        bytes.resize(60, 0);
        bytes
    };
    let mut plane = Plane::new();
    let rules = [
        access(10),
        access(10),
        access(20),
        trunk(Some(20), &[(10, 10)]),
        trunk(None, &[(10, 20)]),
    ];
    let [mut a, mut b, mut c, mut native, mut tagging] = nics(&mut plane, rules);
    announce(&a, 1);
    assert_eq!(b.wait_to_receive().frame, rarp(1));
    assert_eq!(native.wait_to_receive().frame, plainly_tagged(&rarp(1), 10));
    assert_eq!(
        tagging.wait_to_receive().frame,
        plainly_tagged(&rarp(1), 10)
    );
    assert_nothing(&mut c);
    // The address is learnt in this VLAN, and in no other.
    send(&mut b, &to(1, 2));
    assert_eq!(a.wait_to_receive().frame, to(1, 2));
    assert_nothing(&mut native);
    send(&mut c, &to(1, 3));
    assert_eq!(native.wait_to_receive().frame, to(1, 3));
    assert_nothing(&mut a);
    drop(tagging.receive());
    announce(&native, 4);
    assert_eq!(c.wait_to_receive().frame, rarp(4));
    assert_eq!(
        tagging.wait_to_receive().frame,
        plainly_tagged(&rarp(4), 20)
    );
    // A trunk without untagged frames: its VM announces itself.
    announce(&tagging, 5);
    for nic in [&mut a, &mut b, &mut c, &mut native] {
        assert_nothing(nic);
    }
}

#[test]
fn new_rules_apply_at_once() {
    let mut plane = Plane::new();
    let [mut a, mut b] = nics(&mut plane, [access(10), access(10)]);
    send(&mut a, &hello(1));
    assert_eq!(b.wait_to_receive().frame, hello(1));
    plane.rules(1, access(20));
    assert_eq!(plane.port(1).fdb_entries, 0);
    send(&mut a, &hello(1));
    send(&mut b, &to(1, 2));
    assert_nothing(&mut b);
    assert_nothing(&mut a);
    plane.rules(1, Rules::default());
    plane.rules(2, Rules::default());
    plane.wait_for_orders();
    let seen = tagged(&hello(1), 10);
    send(&mut a, &seen);
    assert_eq!(
        b.wait_to_receive().frame,
        seen,
        "no rules, no concern for tags"
    );
}

#[test]
fn a_pinned_address_is_pinned_in_its_vlan() {
    let mut plane = Plane::new();
    let [mut a, mut b, mut c] = nics(&mut plane, [access(10), access(10), access(20)]);
    let order = switch::control::Order::SetFdbEntry {
        mac: switch::mac::Mac::from_octets(frame::mac(9)),
        vlan: 10,
        port: switch::control::PortId(2),
    };
    plane.order(&order, None);
    plane.wait_for_orders();
    send(&mut a, &to(9, 1));
    assert_eq!(b.wait_to_receive().frame, to(9, 1));
    send(&mut c, &to(9, 3));
    assert_nothing(&mut b);
}
