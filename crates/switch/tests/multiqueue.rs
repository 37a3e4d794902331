//! Several queue pairs: which receive ring gets which frames, and independence of the pairs.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use common::{Plane, learn_addresses, lost};
use front_end::{Layout, Nic, Options, Pair, features, frame};
use switch::limits::MAX_QUEUE_PAIRS;

fn with(pairs: usize) -> Options {
    Options {
        pairs: pairs as u16,
        features: features::PLAIN | features::MQ,
        ..Options::default()
    }
}

/// Two NICs with these numbers of pairs, whose addresses are learnt.
fn two(plane: &mut Plane, pairs: [usize; 2]) -> [Nic; 2] {
    let mut nics = [plane.nic(1, with(pairs[0])), plane.nic(2, with(pairs[1]))];
    learn_addresses(&mut nics, &[1, 2]);
    nics
}

fn numbered(number: u64) -> Vec<u8> {
    frame::numbered(frame::mac(2), frame::mac(1), number, 100)
}

/// Asserts that the frames of each of the sender's pairs arrive at the given pair of the receiver.
fn assert_steered(a: &mut Nic, b: &mut Nic, to: &[usize]) {
    for (from, to) in to.iter().enumerate() {
        a.pairs[from].wait_to_send(&numbered(from as u64), Layout::One);
        let got = b.pairs[*to].wait_to_receive().frame;
        assert_eq!(frame::number(&got), from as u64);
    }
}

#[test]
fn spec_5_1_6_5_5_a_pair_sends_to_the_same_pair() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane, [MAX_QUEUE_PAIRS; 2]);
    let same: Vec<usize> = (0..MAX_QUEUE_PAIRS).collect();
    assert_steered(&mut a, &mut b, &same);
    assert_eq!(plane.counters(2).rx_frames, 1 + 16);
}

#[test]
fn pairs_are_spread_over_the_receive_rings_that_run() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane, [4, 3]);
    assert_steered(&mut a, &mut b, &[0, 1, 2, 0]);
    b.enable_pair(2, false);
    assert_steered(&mut a, &mut b, &[0, 1, 0, 1]);
    b.enable_pair(0, false);
    assert_steered(&mut a, &mut b, &[1, 1, 1, 1]);
    for pair in [0, 2] {
        b.enable_pair(pair, true);
    }
    assert_steered(&mut a, &mut b, &[0, 1, 2, 0]);
    for pair in 0..3 {
        b.enable_pair(pair, false);
    }
    a.pairs[3].wait_to_send(&numbered(9), Layout::One);
    plane.until(1, |counters| counters.drops.receiver_down == 1);
}

#[test]
fn a_pair_without_room_delays_no_other() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane, [2, 2]);
    b.pairs[1].options.post = false;
    // Fill the second pair's ring, and send one more frame.
    for number in 0..257 {
        a.pairs[1].wait_to_send(&numbered(number), Layout::One);
    }
    plane.until(1, |counters| counters.backpressured >= 1);
    for number in 0..300 {
        a.pairs[0].wait_to_send(&numbered(number), Layout::One);
        assert_eq!(frame::number(&b.pairs[0].wait_to_receive().frame), number);
    }
    // The pair has room again: kicks were enabled on the right ring.
    let second = &mut b.pairs[1];
    for number in 0..256 {
        assert_eq!(frame::number(&second.wait_to_receive().frame), number);
    }
    second.post(10);
    second.rx.publish_and_kick();
    if plane.counters(1).drops.receiver_stuck == 0 {
        assert_eq!(frame::number(&b.pairs[1].wait_to_receive().frame), 256);
    }
    a.pairs[1].wait_until_sent();
}

/// Sends and receives on one pair until all frames have arrived in order.
fn exchange(a: &mut Pair, b: &mut Pair, count: u64) {
    let (mut sent, mut got) = (0, 0);
    while got < count {
        let mut moved = false;
        while sent < count && a.send(&numbered(sent), Layout::One) {
            sent += 1;
            moved = true;
        }
        while let Some(received) = b.receive() {
            assert_eq!(frame::number(&received.frame), got, "order");
            got += 1;
            moved = true;
        }
        if !moved && !a.tx.ask_for_call() && !b.rx.ask_for_call() {
            front_end::queue::wait_for_any(&[&a.tx, &b.rx]);
            let _ = (a.tx.calls(), b.rx.calls());
        }
    }
    a.wait_until_sent();
}

#[test]
fn every_pair_keeps_its_order_while_all_are_busy() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane, [8, 8]);
    std::thread::scope(|scope| {
        for (a, b) in a.pairs.iter_mut().zip(&mut b.pairs) {
            scope.spawn(|| exchange(a, b, 5000));
        }
    });
    let counters = plane.counters(1);
    assert_eq!(
        (lost(&counters.drops), counters.tx_frames),
        (0, 1 + 8 * 5000)
    );
}

#[test]
fn a_receiver_with_one_ring_takes_the_frames_of_all_pairs() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane, [4, 1]);
    assert_steered(&mut a, &mut b, &[0, 0, 0, 0]);
    let back = frame::numbered(frame::mac(1), frame::mac(2), 7, 100);
    b.wait_to_send(&back, Layout::One);
    assert_eq!(a.pairs[0].wait_to_receive().frame, back);
}
