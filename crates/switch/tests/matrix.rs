//! Counters: the traffic matrix, bursts, latency, and duplicate MAC addresses.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]

mod common;

use common::{Outside, Plane, exchange, learn_addresses};
use front_end::{Layout, Options, frame};
use switch::control::{Order, Peer, PortId};
use switch::limits::{DUPLICATE_MOVES, LATENCY_SAMPLE};

/// Returns a port's row of the traffic matrix (port, frames, bytes), ordered by port.
fn sent(plane: &mut Plane, port: u16) -> Vec<(u16, u64, u64)> {
    let peers = plane.port(port).peers.into_iter();
    let short = |peer: Peer| (peer.port, peer.frames, peer.bytes);
    let mut all: Vec<_> = peers.map(short).collect();
    all.sort_unstable();
    all
}

#[test]
fn frames_are_counted_by_destination_port() {
    let mut plane = Plane::new();
    let outside = Outside::attach(&plane);
    let mut nics = [1, 2].map(|port| plane.nic(port, Options::default()));
    learn_addresses(&mut nics, &[1, 2]);
    for port in [1, 2, 9] {
        assert_eq!(sent(&mut plane, port), [], "broadcasts do not count");
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
    // The next port with this number may be another VM's, so its counters are removed.
    plane.order(&Order::Detach { port: PortId(2) }, None);
    plane.detached(2);
    assert_eq!(sent(&mut plane, 1), [(9, 1, 700)]);
}

#[test]
fn a_deferred_frame_is_counted_once() {
    let mut plane = Plane::new();
    let mut nics = [1, 2, 3].map(|port| plane.nic(port, Options::default()));
    learn_addresses(&mut nics, &[1, 2, 3]);
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
    assert!(plane.counters(1).backpressured > 0, "nothing had to wait");
    assert_eq!(sent(&mut plane, 1), [(2, 2, 200), (3, 1, 100)]);
}

#[test]
fn bursts_and_their_latency_are_counted() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for number in 0..100 {
        let frame = frame::numbered(frame::mac(2), frame::mac(1), number, 100);
        a.wait_to_send(&frame, Layout::One);
        b.wait_to_receive();
    }
    exchange((&mut a, 1), (&mut b, 2), 2000, 100);
    let counters = plane.counters(1);
    assert_eq!(
        counters.bursts.sum, counters.tx_frames,
        "each frame is in one burst"
    );
    // First one frame at a time, and then many.
    assert!(counters.bursts.counts[0] >= 100);
    assert!(counters.bursts.count() < counters.tx_frames);
    let sampled = counters.bursts.count().div_ceil(LATENCY_SAMPLE.into());
    assert_eq!(counters.latency.count(), sampled);
    assert!(counters.latency.sum > 0);
}

#[test]
fn the_latency_includes_the_wait_for_a_receiver() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    b.options.post = false;
    b.restart();
    plane.running(2);
    // The first burst, which was a broadcast, and the ninth are measured.
    let send = |a: &mut front_end::Nic, number| {
        let frame = frame::numbered(frame::mac(2), frame::mac(1), number, 100);
        a.wait_to_send(&frame, Layout::One);
    };
    b.post(7);
    b.rx.publish_and_kick();
    for number in 0..7 {
        send(&mut a, number);
        b.wait_to_receive();
    }
    assert_eq!(plane.counters(1).latency.count(), 1);
    send(&mut a, 7);
    plane.until(1, |counters| counters.backpressured == 1);
    let waited = std::time::Instant::now();
    plane.wait_for_orders();
    let least = waited.elapsed();
    b.post(1);
    b.rx.publish_and_kick();
    b.wait_to_receive();
    a.wait_until_sent();
    let latency = plane.counters(1).latency;
    assert_eq!(latency.count(), 2);
    assert!(u128::from(latency.sum) >= least.as_nanos(), "{latency:?}");
}

#[test]
fn two_ports_with_the_same_address_are_reported() {
    let mut plane = Plane::new();
    let mut nics = [1, 2, 3].map(|port| plane.nic(port, Options::default()));
    learn_addresses(&mut nics, &[1, 2, 3]);
    let [mut a, mut b, mut c] = nics;
    assert_eq!(plane.port(1).duplicates, []);
    // Both use the address of station 1.
    for number in 0..u64::from(DUPLICATE_MOVES) {
        let frame = frame::numbered(frame::mac(3), frame::mac(1), number, 100);
        let nic = if number % 2 == 0 { &mut b } else { &mut a };
        nic.wait_to_send(&frame, Layout::One);
        c.wait_to_receive();
    }
    let mac = switch::mac::Mac::from_octets(frame::mac(1));
    for (port, other) in [(1, 2), (2, 1)] {
        let [found] = plane.port(port).duplicates[..] else {
            panic!("{:?}", plane.port(port));
        };
        assert_eq!((found.mac, found.vlan, found.port), (mac, 0, other));
        assert_eq!(found.moves, u64::from(DUPLICATE_MOVES));
    }
    assert_eq!(plane.port(3).duplicates, []);
    drop(b);
    plane.detached(2);
    assert_eq!(plane.port(1).duplicates, [], "one is gone");
}
