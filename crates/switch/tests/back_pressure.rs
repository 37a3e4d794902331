//! Backpressure: the switch is lossless between VMs, within limits.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]

mod common;

use common::{Plane, exchange, learn_addresses, lost};
use front_end::wire::{request, state};
use front_end::{Layout, Nic, Options, frame};
use switch::control::{Counters, Order, PortId};

fn to(station: u16, number: u64, length: usize) -> Vec<u8> {
    frame::numbered(frame::mac(station), frame::mac(1), number, length)
}

/// Three NICs whose addresses are learnt; the NICs in `without_buffers` post no buffers afterwards.
fn three(plane: &mut Plane, without_buffers: &[u16], options: Options) -> [Nic; 3] {
    let mut nics = [1, 2, 3].map(|port| plane.nic(port, options));
    learn_addresses(&mut nics, &[1, 2, 3]);
    for port in without_buffers {
        let nic = &mut nics[usize::from(*port) - 1];
        nic.options.post = false;
        nic.restart();
        plane.running(*port);
    }
    nics
}

#[test]
fn a_stuck_receiver_stops_no_other_port_and_its_frames_are_counted() {
    let mut plane = Plane::new();
    let [mut a, _b, mut c] = three(
        &mut plane,
        &[2],
        Options {
            size: 32,
            ..Options::default()
        },
    );
    // More frames for the stuck receiver than the sender's ring has entries, mixed with frames for another one.
    let mut to_stuck = 0;
    for number in 0..200 {
        a.wait_to_send(&to(2, number, 100), Layout::One);
        to_stuck += 1;
        a.wait_to_send(&to(3, number, 100), Layout::One);
        assert_eq!(frame::number(&c.wait_to_receive().frame), number);
    }
    a.wait_until_sent();
    // The last frames are deferred.
    plane.until(1, |counters| counters.drops.receiver_stuck >= to_stuck);
    let counters = plane.counters(1);
    assert_eq!(counters.drops.receiver_stuck, to_stuck);
    assert_eq!(lost(&counters.drops), to_stuck);
    // tx = rx + drops; one more frame was the broadcast at the start.
    assert_eq!(counters.tx_frames, 1 + 200 + to_stuck);
}

#[test]
fn a_stuck_receiver_that_posts_buffers_is_served_again() {
    let mut plane = Plane::new();
    let [mut a, mut b, _c] = three(&mut plane, &[2], Options::default());
    assert!(a.send(&to(2, 0, 100), Layout::One));
    assert_eq!(plane.port(1).stuck_ms, 0, "the sender is no receiver");
    a.wait_until_sent();
    assert_eq!(plane.counters(1).drops.receiver_stuck, 1);
    // The frame is lost after STUCK_TIMEOUT, and the receiver still has no buffer.
    let stuck_ms = plane.port(2).stuck_ms;
    assert!(stuck_ms >= 250, "{stuck_ms}");
    b.options.post = true;
    b.post(u16::MAX);
    b.rx.publish_and_kick();
    assert_eq!(plane.port(2).stuck_ms, 0);
    exchange((&mut a, 1), (&mut b, 2), 500, 100);
    assert_eq!(plane.port(2).stuck_ms, 0);
    assert_eq!(plane.counters(1).drops.receiver_stuck, 1);
}

#[test]
fn a_flooded_frame_does_not_wait_for_a_full_receiver() {
    let mut plane = Plane::new();
    let [mut a, _b, mut c] = three(&mut plane, &[2], Options::default());
    for number in 0..10 {
        let bytes = frame::numbered(frame::BROADCAST, frame::mac(1), number, 100);
        a.wait_to_send(&bytes, Layout::One);
        assert_eq!(frame::number(&c.wait_to_receive().frame), number);
    }
    a.wait_until_sent();
    assert_eq!(plane.counters(2).drops.receiver_full, 10);
    assert_eq!(lost(&plane.counters(1).drops), 0);
}

#[test]
fn a_ring_that_stops_resumes_at_the_first_frame_that_waited() {
    for disabled_first in [false, true] {
        let mut plane = Plane::new();
        let [mut a, mut b, _c] = three(&mut plane, &[2], Options::default());
        for number in 0..5 {
            assert!(a.send(&to(2, number, 100), Layout::One));
        }
        plane.until(1, |counters| counters.backpressured >= 5);
        if disabled_first {
            a.wire.send(request::SET_VRING_ENABLE, &state(1, 0), &[]);
        }
        let base = a.stop_ring(1);
        assert_eq!(
            base,
            a.tx.used_index(),
            "chains before the base are handed back"
        );
        b.options.post = true;
        b.post(u16::MAX);
        b.rx.publish_and_kick();
        // The same chains again, except those that a slow test machine let time out.
        let lost = plane.counters(1).drops.receiver_stuck;
        a.start_ring(1, base, || {});
        a.wire.send(request::SET_VRING_ENABLE, &state(1, 1), &[]);
        for number in lost..5 {
            assert_eq!(frame::number(&b.wait_to_receive().frame), number);
        }
        a.wait_until_sent();
    }
}

#[test]
fn deferred_frames_are_delivered_after_their_ring_has_stopped() {
    let mut plane = Plane::new();
    let [mut a, mut b, mut c] = three(&mut plane, &[2], Options::default());
    // Each frame for the full receiver blocks a frame for the other one.
    for number in 0..5 {
        assert!(a.send(&to(2, number, 100), Layout::One));
        assert!(a.send(&to(3, number, 100), Layout::One));
        assert_eq!(frame::number(&c.wait_to_receive().frame), number);
    }
    a.wait_until_sent();
    assert_eq!(a.stop_ring(1), a.tx.used_index());
    b.post(5);
    b.rx.publish_and_kick();
    // On a slow test machine, the first frames time out after `STUCK_TIMEOUT`.
    let mut got = Vec::new();
    plane.until(1, |counters| {
        got.extend(
            std::iter::from_fn(|| b.receive()).map(|received| frame::number(&received.frame)),
        );
        got.len() as u64 + counters.drops.receiver_stuck == 5
    });
    assert!(got.is_sorted(), "{got:?}");
}

#[test]
fn deferred_frames_are_dropped_with_their_sender_and_counted() {
    let mut plane = Plane::new();
    let [mut a, _b, mut c] = three(&mut plane, &[2], Options::default());
    for station in [2, 3] {
        assert!(a.send(&to(station, 0, 100), Layout::One));
    }
    drop(c.wait_to_receive());
    plane.order(&Order::Detach { port: PortId(1) }, None);
    let drops = plane.detached(1).1.drops;
    assert_eq!(drops.sender_gone + drops.receiver_stuck, 1);
}

#[test]
fn a_disabled_sender_with_held_frames_does_not_stop_the_network() {
    let mut plane = Plane::new();
    let [mut a, mut b, mut c] = three(&mut plane, &[2], Options::default());
    assert!(a.send(&to(2, 0, 100), Layout::One));
    plane.until(1, |counters| counters.backpressured >= 1);
    a.wire.send(request::SET_VRING_ENABLE, &state(1, 0), &[]);
    a.sync();
    // The receiver has buffers again for another sender.
    b.options.post = true;
    b.post(u16::MAX);
    b.rx.publish_and_kick();
    exchange((&mut c, 3), (&mut b, 2), 500, 100);
    // When the ring is enabled again, the frame that waited is delivered.
    a.wire.send(request::SET_VRING_ENABLE, &state(1, 1), &[]);
    assert_eq!(frame::number(&b.wait_to_receive().frame), 0);
}

#[test]
fn deferred_frames_for_a_receiver_that_is_detached_are_dropped() {
    let mut plane = Plane::new();
    let [mut a, b, mut c] = three(&mut plane, &[2], Options::default());
    for number in 0..5 {
        assert!(a.send(&to(2, number, 100), Layout::One));
    }
    plane.until(1, |counters| counters.backpressured >= 5);
    // The five frames are deferred, because they block this frame.
    assert!(a.send(&to(3, 0, 100), Layout::One));
    assert_eq!(frame::number(&c.wait_to_receive().frame), 0);
    drop(b);
    a.wait_until_sent();
    let gone = |counters: &Counters| counters.drops.receiver_down + counters.drops.receiver_stuck;
    plane.until(1, |counters| gone(counters) >= 5);
    assert_eq!(gone(&plane.counters(1)), 5);
    exchange((&mut a, 1), (&mut c, 3), 100, 100);
}

#[test]
fn frames_in_the_ring_for_a_receiver_that_is_detached_are_flooded() {
    let mut plane = Plane::new();
    let [mut a, b, mut c] = three(&mut plane, &[2], Options::default());
    for number in 0..5 {
        assert!(a.send(&to(2, number, 100), Layout::One));
    }
    plane.until(1, |counters| counters.backpressured >= 5);
    drop(b);
    a.wait_until_sent();
    for number in plane.counters(1).drops.receiver_stuck..5 {
        assert_eq!(frame::number(&c.wait_to_receive().frame), number);
    }
}
