//! Port mirroring: a mirror port gets the frames that the mirrored ports send and receive, and forwarding
//! does not wait for it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use common::{Outside, Plane, exchange, learn_addresses, lost};
use front_end::{Layout, Nic, Options, frame};
use switch::control::{Order, PortId};
use switch::guard::{Rules, VlanRules};

/// Sets the mirror ports of a port.
fn mirror(plane: &mut Plane, port: u16, to: &[u16]) {
    let (port, to) = (PortId(port), to.iter().copied().map(PortId).collect());
    plane.order(&Order::Mirror { port, to }, None);
    plane.wait_for_orders();
}

fn to(station: u16, from: u16, number: u64) -> Vec<u8> {
    frame::numbered(frame::mac(station), frame::mac(from), number, 200)
}

/// Two VMs, and a mirror port.
fn three(plane: &mut Plane) -> [Nic; 3] {
    let mut nics = [1, 2, 3].map(|port| plane.nic(port, Options::default()));
    learn_addresses(&mut nics, &[1, 2, 3]);
    nics
}

#[test]
fn both_directions_are_copied_until_the_mirror_ends() {
    let mut plane = Plane::new();
    let [mut a, mut b, mut mirror_port] = three(&mut plane);
    mirror(&mut plane, 1, &[3]);
    for number in 0..300 {
        a.wait_to_send(&to(2, 1, number), Layout::Pieces(50));
        assert_eq!(b.wait_to_receive().frame, to(2, 1, number));
        assert_eq!(mirror_port.wait_to_receive().frame, to(2, 1, number));
        b.wait_to_send(&to(1, 2, number), Layout::One);
        assert_eq!(a.wait_to_receive().frame, to(1, 2, number));
        assert_eq!(mirror_port.wait_to_receive().frame, to(1, 2, number));
    }
    // The mirror continues with the next VM of the port.
    drop(a);
    plane.detached(1);
    let mut a = plane.nic(1, Options::default());
    a.wait_to_send(&to(2, 1, 7), Layout::One);
    assert_eq!(mirror_port.wait_to_receive().frame, to(2, 1, 7));
    b.wait_to_receive();
    mirror(&mut plane, 1, &[]);
    a.wait_to_send(&to(2, 1, 8), Layout::One);
    b.wait_to_receive();
    plane.wait_for_orders();
    assert_eq!(mirror_port.receive(), None);
}

#[test]
fn forwarding_does_not_wait_for_a_mirror_port_and_its_drops_are_counted() {
    // Fewer than the receiver has room for, so that no frame waits however slowly this test runs.
    const AT_ONCE: u64 = 100;
    const TIMES: u64 = 10;
    let mut plane = Plane::new();
    let [mut a, mut b, mut mirror_port] = three(&mut plane);
    mirror_port.options.post = false;
    mirror_port.restart();
    plane.running(3);
    mirror(&mut plane, 1, &[3]);
    for _ in 0..TIMES {
        exchange((&mut a, 1), (&mut b, 2), AT_ONCE, 100);
    }
    assert_eq!(plane.counters(3).drops.receiver_full, TIMES * AT_ONCE);
    assert_eq!(lost(&plane.counters(1).drops), 0);
    assert_eq!(plane.counters(1).backpressured, 0);
    drop(mirror_port);
    plane.detached(3);
    exchange((&mut a, 1), (&mut b, 2), AT_ONCE, 100);
}

#[test]
fn deferred_frames_are_copied_when_they_are_delivered() {
    let mut plane = Plane::new();
    let [mut a, mut b, mut mirror_port] = three(&mut plane);
    b.options.post = false;
    b.restart();
    plane.running(2);
    mirror(&mut plane, 2, &[3]);
    // The first frame is deferred, because it blocks the second.
    for (number, station) in [(0, 2), (1, 3), (2, 2)] {
        a.wait_to_send(&to(station, 1, number), Layout::One);
    }
    assert_eq!(frame::number(&mirror_port.wait_to_receive().frame), 1);
    b.post(10);
    b.rx.publish_and_kick();
    for number in [0, 2] {
        assert_eq!(frame::number(&b.wait_to_receive().frame), number);
        let copy = mirror_port.wait_to_receive().frame;
        assert_eq!(copy, to(2, 1, number));
    }
    assert!(plane.counters(1).backpressured > 0, "nothing had to wait");
}

#[test]
fn a_trunks_frames_are_copied_with_tags_in_any_vlan_of_the_mirror_port() {
    let mut plane = Plane::new();
    let vlans = |untagged, tagged: &[(u16, u16)]| Rules {
        vlan: Some(VlanRules {
            untagged,
            tagged: tagged.to_vec(),
        }),
        ..Rules::default()
    };
    plane.rules(1, vlans(None, &[(10, 20)]));
    plane.rules(2, vlans(Some(10), &[]));
    plane.rules(3, vlans(Some(99), &[]));
    let [mut a, mut b, mut c] = [1, 2, 3].map(|port| plane.nic(port, Options::default()));
    mirror(&mut plane, 1, &[3]);
    let bare = to(2, 1, 3);
    let tagged = [&bare[..12], &[0x81, 0, 0, 10], &bare[12..]].concat();
    a.wait_to_send(&tagged, Layout::One);
    assert_eq!(b.wait_to_receive().frame, bare);
    assert_eq!(c.wait_to_receive().frame, tagged);
}

#[test]
fn an_uplink_is_mirrored_as_ports_are() {
    let mut plane = Plane::new();
    let outside = Outside::attach(&plane);
    let mut nics = [1, 3].map(|port| plane.nic(port, Options::default()));
    mirror(&mut plane, 9, &[3]);
    let [a, c] = &mut nics;
    outside.send(&[0; 12], &to(1, 90, 1));
    assert_eq!(a.wait_to_receive().frame, to(1, 90, 1));
    // Once flooded, because the destination is unknown, and once as a copy.
    for _ in 0..2 {
        assert_eq!(c.wait_to_receive().frame, to(1, 90, 1));
    }
    a.wait_to_send(&to(90, 1, 2), Layout::One);
    assert_eq!(outside.receive().1, to(90, 1, 2));
    assert_eq!(c.wait_to_receive().frame, to(90, 1, 2));
}
