//! Uplinks. A datagram socket replaces the tap: like a tap, it carries one frame a call, behind a network
//! header. (The tests of the whole program use a real tap.)
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use common::{Outside, Plane, lost};
use front_end::{Layout, Nic, Options, features, frame};
use switch::control::{Order, PortId, Reason};
use switch::mac::Mac;

fn plane_with_uplink() -> (Plane, Outside, [Nic; 2]) {
    let mut plane = Plane::new();
    let outside = Outside::attach(&plane);
    let linux = Options {
        features: features::LINUX,
        ..Options::default()
    };
    let nics = [plane.nic(1, Options::default()), plane.nic(2, linux)];
    (plane, outside, nics)
}

#[test]
fn frames_go_out_and_come_in_unharmed() {
    let (mut plane, outside, [mut a, mut b]) = plane_with_uplink();
    let hello = frame::numbered(frame::BROADCAST, frame::mac(1), 1, 60);
    a.wait_to_send(&hello, Layout::One);
    assert_eq!(outside.receive(), (vec![0; 12], hello.clone()));
    assert_eq!(b.wait_to_receive().frame, hello);
    for number in 0..200 {
        let back = frame::numbered(frame::mac(1), frame::mac(90), number, 1000);
        outside.send(&[0; 12], &back);
        assert_eq!(a.wait_to_receive().frame, back);
        // The FDB has learnt the station outside: only the uplink gets this frame.
        let out = frame::numbered(frame::mac(90), frame::mac(1), number, 1200);
        a.wait_to_send(&out, Layout::Pieces(100));
        assert_eq!(outside.receive().1, out);
    }
    assert_eq!(b.receive(), None);
    let counters = plane.counters(9);
    assert_eq!((counters.tx_frames, counters.rx_frames), (200, 201));
    assert_eq!(lost(&counters.drops), 0);
}

#[test]
fn the_queues_of_an_uplink_correspond_to_the_pairs_of_vms() {
    for workers in [1, 2] {
        let mut plane = Plane::with_workers(workers);
        let first = Outside::attach(&plane);
        let queues = [first, Outside::next_queue(&plane)];
        let options = Options {
            pairs: 3,
            features: features::LINUX | features::MQ,
            ..Options::default()
        };
        let mut vm = plane.nic(1, options);
        for number in 0..50 {
            for (pair, queue) in [(0, 0), (1, 1), (2, 0)] {
                let out = frame::numbered(frame::mac(90), frame::mac(1), number, 200);
                vm.pairs[pair].wait_to_send(&out, Layout::One);
                assert_eq!(queues[queue].receive().1, out);
                let back = frame::numbered(frame::mac(1), frame::mac(90), number, 300);
                queues[queue].send(&[0; 12], &back);
                assert_eq!(vm.pairs[queue].wait_to_receive().frame, back);
            }
        }
        let counters = plane.counters(9);
        assert_eq!((counters.tx_frames, counters.rx_frames), (150, 150));
        assert_eq!(lost(&counters.drops), 0);
        plane.order(&Order::Detach { port: PortId(9) }, None);
        assert!(matches!(plane.detached(9).0, Reason::Ordered));
    }
}

/// The VM may have migrated to another host; the FDB never learns a pinned address at the uplink.
#[test]
fn frames_for_a_pinned_address_go_to_the_uplink_while_its_vm_is_not_attached() {
    let (mut plane, outside, [mut a, mut b]) = plane_with_uplink();
    let pin = Order::SetFdbEntry {
        mac: Mac::from_octets(frame::mac(3)),
        vlan: 0,
        port: PortId(3),
    };
    plane.order(&pin, None);
    plane.wait_for_orders();
    let to_three = |number| frame::numbered(frame::mac(3), frame::mac(1), number, 60);
    for number in 0..3 {
        a.wait_to_send(&to_three(number), Layout::One);
        assert_eq!(outside.receive().1, to_three(number));
        let back = frame::numbered(frame::mac(1), frame::mac(3), number, 60);
        outside.send(&[0; 12], &back);
        assert_eq!(a.wait_to_receive().frame, back);
    }
    assert_eq!(b.receive(), None, "a neighbour got them too");
    assert_eq!(lost(&plane.counters(1).drops), 0);
    let mut c = plane.nic(3, Options::default());
    a.wait_to_send(&to_three(3), Layout::One);
    assert_eq!(c.wait_to_receive().frame, to_three(3));
    let out = frame::numbered(frame::mac(90), frame::mac(1), 4, 60);
    a.wait_to_send(&out, Layout::One);
    assert_eq!(outside.receive().1, out, "the frame before went out");
}

#[test]
fn stations_behind_the_uplink_are_counted_for_each_port_and_listed() {
    let (mut plane, outside, [mut a, mut b]) = plane_with_uplink();
    let pin = Order::SetFdbEntry {
        mac: Mac::from_octets(frame::mac(3)),
        vlan: 0,
        port: PortId(3),
    };
    plane.order(&pin, None);
    // A flooded frame goes to no station.
    a.wait_to_send(
        &frame::numbered(frame::BROADCAST, frame::mac(1), 1, 60),
        Layout::One,
    );
    drop((outside.receive(), b.wait_to_receive()));
    for number in 0..3 {
        for station in [90, 91] {
            let back = frame::numbered(frame::mac(1), frame::mac(station), number, 500);
            outside.send(&[0; 12], &back);
            drop(a.wait_to_receive());
        }
        a.wait_to_send(
            &frame::numbered(frame::mac(90), frame::mac(1), number, 700),
            Layout::One,
        );
        drop(outside.receive());
    }
    // Frames between two VMs have no remote peer.
    a.wait_to_send(
        &frame::numbered(frame::BROADCAST, frame::mac(1), 1, 60),
        Layout::One,
    );
    drop((outside.receive(), b.wait_to_receive()));
    let peers: Vec<_> = plane
        .remote_peers()
        .into_iter()
        .map(|peer| (peer.port, peer.mac.octets(), peer.sent, peer.received))
        .collect();
    let expected = [
        (1, frame::mac(90), [3, 2100], [3, 1500]),
        (1, frame::mac(91), [0, 0], [3, 1500]),
    ];
    assert_eq!(peers, expected);
    let mut entries: Vec<_> = plane
        .fdb()
        .into_iter()
        .map(|entry| (entry.port, entry.mac.octets(), entry.pinned))
        .collect();
    entries.sort_unstable();
    let expected = [
        (1, frame::mac(1), false),
        (3, frame::mac(3), true),
        (9, frame::mac(90), false),
        (9, frame::mac(91), false),
    ];
    assert_eq!(entries, expected);
    // The counters end with the port.
    plane.order(&Order::Detach { port: PortId(1) }, None);
    plane.detached(1);
    assert_eq!(plane.remote_peers(), []);
}

#[test]
fn a_gso_frame_is_sent_unchanged() {
    let (_plane, outside, [_a, mut b]) = plane_with_uplink();
    let header = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];
    let bytes = frame::tcp(frame::mac(90), frame::mac(2), 1, &[5; 30_000]);
    assert!(b.send_with(&header, &bytes, Layout::One));
    assert_eq!(outside.receive(), (header.to_vec(), bytes));
}

#[test]
fn a_merged_frame_is_segmented_for_receivers_without_gso() {
    let (mut plane, outside, [mut a, mut b]) = plane_with_uplink();
    for (station, nic) in [(1, &mut a), (2, &mut b)] {
        let hello = frame::numbered(frame::mac(90), frame::mac(station), 1, 60);
        nic.wait_to_send(&hello, Layout::One);
        let _hello = outside.receive();
    }
    while a.receive().is_some() || b.receive().is_some() {}
    let header = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];
    let data = vec![5; 30_000];
    outside.send(
        &header,
        &frame::tcp(frame::mac(1), frame::mac(90), 0, &data),
    );
    let mut got = 0;
    while got < data.len() {
        let received = a.wait_to_receive();
        if received.frame[12..14] == [8, 0] {
            let (sequence, part) = frame::checked_tcp(&received.frame);
            assert_eq!(sequence as usize, got);
            got += part.len();
        }
    }
    let whole = frame::tcp(frame::mac(2), frame::mac(90), 0, &data);
    outside.send(&header, &whole);
    loop {
        let received = b.wait_to_receive();
        if received.frame[12..14] == [8, 0] {
            assert_eq!(received.frame, whole);
            break;
        }
    }
    assert_eq!(plane.counters(1).segmented, 1);
    assert_eq!(plane.counters(2).segmented, 0);
}

#[test]
fn invalid_frames_from_outside_are_dropped() {
    let (mut plane, outside, [mut a, _b]) = plane_with_uplink();
    outside.send(&[0; 12], &[0; 13]);
    // A checksum past the frame's end.
    outside.send(
        &[1, 0, 0, 0, 0, 0, 200, 0, 16, 0, 0, 0],
        &frame::numbered(frame::mac(1), frame::mac(90), 0, 60),
    );
    let good = frame::numbered(frame::BROADCAST, frame::mac(90), 1, 60);
    outside.send(&[0; 12], &good);
    assert_eq!(a.wait_to_receive().frame, good);
    let drops = plane.counters(9).drops;
    assert_eq!((drops.bad_length, drops.untranslatable), (1, 1));
}

#[test]
fn frames_from_outside_do_not_wait_for_a_full_receiver() {
    let (mut plane, outside, [mut a, _b]) = plane_with_uplink();
    a.wait_to_send(
        &frame::numbered(frame::mac(90), frame::mac(1), 1, 60),
        Layout::One,
    );
    let _hello = outside.receive();
    a.options.post = false;
    a.restart();
    plane.running(1);
    for number in 0..10 {
        outside.send(
            &[0; 12],
            &frame::numbered(frame::mac(1), frame::mac(90), number, 60),
        );
    }
    plane.until(9, |counters| counters.tx_frames == 10);
    assert_eq!(plane.counters(1).drops.receiver_full, 10);
}

#[test]
fn an_uplink_that_disappears_is_a_fault_of_the_host() {
    let (mut plane, outside, nics) = plane_with_uplink();
    drop(outside);
    assert!(matches!(plane.detached(9).0, Reason::Host(_)));
    for nic in &nics {
        nic.sync();
    }
}
