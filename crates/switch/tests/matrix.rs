//! Who sent to whom: each frame for one port is counted once, whatever way it took.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use common::{Outside, Plane, exchange, introduce};
use front_end::{Layout, Options, frame};
use switch::control::{Order, Peer, PortId};

/// What a port sent: to which, frames, bytes; by the number of the port.
fn sent(plane: &mut Plane, port: u16) -> Vec<(u16, u64, u64)> {
    let peers = plane.port(port).peers.into_iter();
    let short = |peer: Peer| (peer.port, peer.frames, peer.bytes);
    let mut all: Vec<_> = peers.map(short).collect();
    all.sort_unstable();
    all
}

#[test]
fn frames_are_counted_by_whom_they_are_for() {
    let mut plane = Plane::new();
    let outside = Outside::attach(&plane);
    let mut nics = [1, 2].map(|port| plane.nic(port, Options::default()));
    introduce(&mut nics, &[1, 2]);
    for port in [1, 2, 9] {
        assert_eq!(sent(&mut plane, port), [], "for everybody is for nobody");
    }
    let [mut a, mut b] = nics;
    exchange((&mut a, 1), (&mut b, 2), 300, 100);
    exchange((&mut b, 2), (&mut a, 1), 5, 1000);
    let inwards = frame::numbered(frame::mac(1), frame::mac(90), 0, 400);
    outside.send(&[0; 12], &inwards);
    assert_eq!(a.wait_to_receive().frame, inwards);
    let out = frame::numbered(frame::mac(90), frame::mac(1), 0, 700);
    a.wait_to_send(&out, Layout::One);
    a.wait_until_sent();
    assert_eq!(sent(&mut plane, 1), [(2, 300, 30_000), (9, 1, 700)]);
    assert_eq!(sent(&mut plane, 2), [(1, 5, 5000)]);
    assert_eq!(sent(&mut plane, 9), [(1, 1, 400)]);
    // The next port with its number is another's.
    plane.order(&Order::Detach { port: PortId(2) }, None);
    plane.detached(2);
    assert_eq!(sent(&mut plane, 1), [(9, 1, 700)]);
}

#[test]
fn a_frame_that_was_set_aside_is_counted_once() {
    let mut plane = Plane::new();
    let mut nics = [1, 2, 3].map(|port| plane.nic(port, Options::default()));
    introduce(&mut nics, &[1, 2, 3]);
    let [mut a, mut b, mut c] = nics;
    b.options.post = false;
    b.restart();
    plane.running(2);
    for (number, station) in [(0, 2), (1, 3), (2, 2)] {
        let bytes = frame::numbered(frame::mac(station), frame::mac(1), number, 100);
        a.wait_to_send(&bytes, Layout::One);
    }
    assert_eq!(frame::number(&c.wait_to_receive().frame), 1);
    b.post(10);
    b.rx.publish_and_kick();
    for number in [0, 2] {
        assert_eq!(frame::number(&b.wait_to_receive().frame), number);
    }
    a.wait_until_sent();
    assert!(plane.counters(1).held > 0, "nothing had to wait");
    assert_eq!(sent(&mut plane, 1), [(2, 2, 200), (3, 1, 100)]);
}
