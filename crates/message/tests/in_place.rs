//! Messages that are read where they arrived, and sends without a request.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Pair, pattern};
use message::limits::READ_AT_ONCE;
use message::{Code, Endpoint, InPlace, Pattern, Reading};

/// The bytes of the message lane's data area.
const LANE: usize = 256 * 1024;

fn in_place() -> Pair {
    let mut pair = Pair::new();
    pair.b.leave_in_place();
    pair
}

fn inject(pair: &mut Pair, value: u64, bytes: &[u8]) -> bool {
    let (first, second) = bytes.split_at(bytes.len() / 3);
    pair.a.inject(pair.to_b, value, &[first, second]).unwrap()
}

/// Has B read its next message alone; B needs no other call.
fn next(pair: &mut Pair) -> &Reading {
    pair.a.progress();
    assert!(pair.b.read_next(1));
    pair.b.reading()
}

fn next_in_place(pair: &mut Pair) -> InPlace {
    match next(pair).in_place() {
        [message] => *message,
        other => panic!("{other:?}"),
    }
}

/// Has B read its next messages together; returns their values.
fn next_together(pair: &mut Pair) -> Vec<u64> {
    assert!(pair.b.read_next(READ_AT_ONCE));
    let reading = pair.b.reading();
    assert!(reading.other().is_none());
    reading.in_place().iter().map(|one| one.value).collect()
}

/// Returns the value, the length and the bytes of B's next message, which is not in place.
fn next_other(pair: &mut Pair) -> (u64, u64, Option<Vec<u8>>) {
    let reading = next(pair);
    assert!(reading.in_place().is_empty());
    let message = reading.other().unwrap();
    (
        message.value(),
        message.length(),
        message.bytes().map(<[u8]>::to_vec),
    )
}

/// Keeps a message that B reads, by its number, and receives it; returns its bytes.
fn kept(pair: &mut Pair, number: usize, value: u64, length: usize) -> Vec<u8> {
    pair.b.keep_read(number);
    // Nothing is left to keep.
    pair.b.keep_read(number);
    let request = pair
        .b
        .irecv(Pattern::exactly(value), vec![0; length])
        .unwrap();
    let got = pair.finish_b(request);
    assert_eq!(got.status.code, Code::Success);
    assert_eq!(got.status.length, length as u64);
    assert!(pair.b.iprobe(Pattern::exactly(value)).is_none());
    got.memory.bytes().to_vec()
}

/// A program that was told that there is no room may wait in a call: it is woken when the peer has read something.
#[test]
fn a_program_without_room_is_woken_by_what_the_peer_reads() {
    let mut pair = in_place();
    let bytes = pattern(4096, 1);
    while inject(&mut pair, 1, &bytes) {}
    let Pair { a, b, to_b, .. } = &mut pair;
    let begins = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            begins.wait();
            // Longer than the other one polls.
            thread::sleep(Duration::from_millis(100));
            while b.read_next(1) {}
        });
        begins.wait();
        let has_room = |a: &mut Endpoint| a.inject(*to_b, 1, &[&bytes]).unwrap().then_some(());
        let begin = Instant::now();
        // At its limit, a wait looks once more.
        let sent = a.until(Some(Duration::from_secs(20)), has_room);
        assert_eq!(sent.unwrap(), Some(()));
        assert!(begin.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn each_message_is_taken_once_in_order_from_where_it_arrived() {
    let mut pair = in_place();
    let lengths = [0, 1, 24, 25, 24, 24, 48, 49, 3, 4096, 32768];
    for (value, length) in (0..).zip(lengths) {
        assert!(inject(&mut pair, value, &pattern(length, value)));
    }
    for (value, length) in (0..).zip(lengths) {
        let message = next_in_place(&mut pair);
        assert_eq!((pair.b.reading().peer(), message.value), (pair.to_a, value));
        assert_eq!(message.length as usize, length);
        if value % 2 == 1 {
            assert_eq!(kept(&mut pair, 0, value, length), pattern(length, value));
        }
    }
    assert!(!pair.b.read_next(1));
}

/// A message that is read stays where it is, whatever else the endpoint does.
#[test]
fn a_message_that_is_read_is_not_overwritten() {
    let mut pair = in_place();
    let bytes = pattern(32768, 1);
    assert!(inject(&mut pair, 1, &bytes));
    assert_eq!(next_in_place(&mut pair).value, 1);
    let mut sent = 0;
    while inject(&mut pair, 2, &pattern(32768, 2)) {
        pair.run_until_idle();
        sent += 1;
    }
    // The lane has no more room, and the message that is read still occupies its part.
    assert_eq!(sent, LANE / 32768 - 1);
    assert_eq!(kept(&mut pair, 0, 1, bytes.len()), bytes);
    pair.b.consume_read();
    assert!(inject(&mut pair, 3, &bytes), "its place is free again");
    for value in std::iter::repeat_n(2, sent).chain([3]) {
        assert_eq!(next_in_place(&mut pair).value, value);
    }
}

/// The messages of a slot each, and of half a slot each, that B's lane has room for.
const IN_SLOTS: [(usize, usize); 2] = [(48, 256), (24, 512)];

/// As above, for messages in slots.
#[test]
fn a_short_message_that_is_read_is_not_overwritten() {
    for (length, most) in IN_SLOTS {
        let mut pair = in_place();
        assert!(inject(&mut pair, 1, &pattern(length, 1)));
        assert_eq!(next_in_place(&mut pair).value, 1);
        let mut sent = 0;
        while inject(&mut pair, 2, &pattern(length, 2)) {
            pair.run_until_idle();
            sent += 1;
        }
        assert!((most - 2..most).contains(&sent), "{sent}");
        assert_eq!(kept(&mut pair, 0, 1, length), pattern(length, 1));
        for _ in 0..sent {
            assert_eq!(next_in_place(&mut pair).value, 2);
        }
        assert!(!pair.b.read_next(1));
        assert!(inject(&mut pair, 3, &pattern(length, 3)));
    }
}

/// Messages of each place that a message can have, in each order of two of them.
const LENGTHS: [usize; 12] = [0, 24, 48, 24, 24, 1000, 1, 32768, 49, 48, 48, 1000];

#[test]
fn messages_are_read_together_and_kept_in_any_order() {
    let mut pair = in_place();
    let bytes = |value: u64| pattern(LENGTHS[usize::try_from(value).unwrap()], value);
    for round in 0..100 {
        for value in 0..12 {
            assert!(inject(&mut pair, value, &bytes(value)));
        }
        assert_eq!(next_together(&mut pair), (0..12).collect::<Vec<_>>());
        for number in (0..12).map(|number| (number * 7 + round) % 12) {
            let got = kept(&mut pair, number, number as u64, LENGTHS[number]);
            assert_eq!(got, bytes(number as u64));
        }
        assert!(!pair.b.read_next(1));
    }
}

/// The messages that are read keep their places while the endpoint serves the peer.
#[test]
fn messages_that_are_read_together_are_not_overwritten() {
    for length in [24, 48, 8192] {
        let mut pair = in_place();
        for value in 0..4 {
            assert!(inject(&mut pair, value, &pattern(length, value)));
        }
        assert_eq!(next_together(&mut pair), [0, 1, 2, 3]);
        // A reply has the endpoint take control records of this peer.
        let long = pair.b.isend(pair.to_a, 1, pattern(100_000, 1)).unwrap();
        let receive = pair.a.irecv(Pattern::exactly(1), vec![0; 100_000]).unwrap();
        while inject(&mut pair, 9, &pattern(length, 9)) {
            pair.run_until_idle();
        }
        assert_eq!(pair.finish_b(long).status.code, Code::Success);
        assert_eq!(pair.finish_a(receive).status.code, Code::Success);
        for value in (0..4).rev() {
            let number = usize::try_from(value).unwrap();
            assert_eq!(
                kept(&mut pair, number, value, length),
                pattern(length, value)
            );
        }
    }
}

#[test]
fn messages_are_read_together_up_to_one_that_is_not_in_place_or_has_a_receive() {
    let mut pair = in_place();
    assert!(inject(&mut pair, 1, b"a"));
    assert!(inject(&mut pair, 2, &pattern(1000, 2)));
    let long = pair.a.isend(pair.to_b, 3, pattern(100_000, 3)).unwrap();
    let synchronous = pair.a.issend(pair.to_b, 4, pattern(10, 4)).unwrap();
    assert!(inject(&mut pair, 5, b"b"));
    assert!(inject(&mut pair, 6, b"c"));
    let receive = pair.b.irecv(Pattern::exactly(6), vec![0; 1]).unwrap();
    assert!(inject(&mut pair, 7, b"d"));
    assert_eq!(next_together(&mut pair), [1, 2]);
    for (value, length) in [(3, 100_000), (4, 10)] {
        assert_eq!(next_other(&mut pair), (value, length as u64, None));
        assert_eq!(kept(&mut pair, 0, value, length), pattern(length, value));
    }
    assert_eq!(next_together(&mut pair), [5]);
    assert_eq!(next_together(&mut pair), [7]);
    assert_eq!(pair.finish_b(receive).memory.bytes(), b"c");
    for sent in [long, synchronous] {
        assert_eq!(pair.finish_a(sent).status.code, Code::Success);
    }
}

#[test]
fn not_more_messages_are_read_together_than_asked_for() {
    let mut pair = in_place();
    for value in 0..40 {
        assert!(inject(&mut pair, value, b""));
    }
    assert!(pair.b.read_next(3));
    assert_eq!(pair.b.reading().in_place().len(), 3);
    assert!(pair.b.read_next(1000));
    let together = pair.b.reading().in_place();
    assert_eq!((together.len(), together[0].value), (READ_AT_ONCE, 3));
}

/// A C caller that asks for none has no memory for one.
#[test]
fn no_message_is_read_if_none_is_asked_for() {
    let mut pair = in_place();
    assert!(inject(&mut pair, 1, b"a"));
    let sent = pair.b.isend(pair.b.own(), 2, b"own".to_vec()).unwrap();
    assert!(!pair.b.read_next(0));
    assert!(pair.b.reading().in_place().is_empty() && pair.b.reading().other().is_none());
    assert_eq!(next_other(&mut pair), (2, 3, Some(b"own".to_vec())));
    assert_eq!(next_in_place(&mut pair).value, 1);
    assert_eq!(pair.finish_b(sent).status.taken, 0);
}

#[test]
fn a_message_does_not_overtake_one_that_waits_for_room() {
    let mut pair = in_place();
    while inject(&mut pair, 1, &pattern(32768, 1)) {}
    let queued = pair.a.isend(pair.to_b, 2, pattern(32768, 2)).unwrap();
    assert!(!inject(&mut pair, 3, b"short"));
    let mut last = 1;
    while last == 1 {
        last = next_in_place(&mut pair).value;
        pair.a.progress();
    }
    assert_eq!(last, 2);
    assert_eq!(pair.finish_a(queued).status.code, Code::Success);
    assert!(inject(&mut pair, 3, b"short"));
}

#[test]
fn receives_and_long_messages_work_beside() {
    let mut pair = in_place();
    let long = pair.a.isend(pair.to_b, 1, pattern(100_000, 1)).unwrap();
    let synchronous = pair.a.issend(pair.to_b, 2, pattern(100, 2)).unwrap();
    assert!(inject(&mut pair, 3, &pattern(1000, 3)));
    assert!(!inject(&mut pair, 4, &pattern(32769, 4)), "too long");
    let posted = pair.b.irecv(Pattern::exactly(3), vec![0; 1000]).unwrap();
    for (value, length) in [(1, 100_000), (2, 100)] {
        assert_eq!(next_other(&mut pair), (value, length as u64, None));
        assert_eq!(kept(&mut pair, 0, value, length), pattern(length, value));
    }
    assert!(!pair.b.read_next(1), "a receive matches it");
    assert_eq!(pair.finish_b(posted).memory.bytes(), pattern(1000, 3));
    for sent in [long, synchronous] {
        assert_eq!(pair.finish_a(sent).status.code, Code::Success);
    }
}

#[test]
fn messages_of_a_peer_that_ended_are_still_read() {
    for length in [24, 48, 1000] {
        read_messages_of_a_peer_that_ended(length);
    }
}

fn read_messages_of_a_peer_that_ended(length: usize) {
    let mut pair = in_place();
    for value in 1..=4 {
        assert!(inject(&mut pair, value, &pattern(length, value)));
    }
    assert!(pair.b.read_next(2));
    let board = pair.board();
    let other = Endpoint::open(&board, &message::Options::default()).unwrap();
    drop(std::mem::replace(&mut pair.a, other));
    pair.run_until_idle();
    assert_eq!(pair.b.lost(), Some(pair.to_a));
    // The peer has unmapped the memory of this message. This side still maps it.
    for (number, value) in [(1, 2), (0, 1)] {
        assert_eq!(
            kept(&mut pair, number, value, length),
            pattern(length, value)
        );
    }
    for value in 3..=4 {
        let bytes = pattern(length, value);
        assert_eq!(next_other(&mut pair), (value, length as u64, Some(bytes)));
    }
    assert!(!pair.b.read_next(1));
}

#[test]
fn injecting_to_oneself_or_to_a_peer_that_ended_sends_nothing() {
    let mut pair = in_place();
    let own = pair.b.own();
    let pieces = [&b"own"[..]];
    assert!(!pair.b.inject(own, 1, &pieces).unwrap());
    let sent = pair.b.isend(own, 1, b"own".to_vec()).unwrap();
    assert_eq!(next_other(&mut pair), (1, 3, Some(b"own".to_vec())));
    pair.b.consume_read();
    assert_eq!(pair.finish_b(sent).status.taken, 0);
    pair.b.disconnect(pair.to_a).unwrap();
    assert!(!pair.b.inject(pair.to_a, 1, &pieces).unwrap());
}

/// A message that arrives while the endpoint looks for one still goes to the receive that waits for it.
#[test]
fn a_message_that_arrives_between_two_looks_completes_its_receive() {
    const ANSWERS: u64 = 20_000;
    let mut pair = in_place();
    let (to_a, to_b) = (pair.to_a, pair.to_b);
    let (a, b) = (&mut pair.a, &mut pair.b);
    let lost = AtomicBool::new(false);
    let is_lost = || lost.load(Ordering::Relaxed);
    thread::scope(|threads| {
        threads.spawn(|| {
            for value in (0..ANSWERS).take_while(|_| !is_lost()) {
                let question = a.irecv(Pattern::exactly(value), vec![0; 8]).unwrap();
                while a.test(question).unwrap().is_none() && !is_lost() {}
                assert!(a.inject(to_b, value, &[&[1; 8]]).unwrap());
            }
        });
        for value in (0..ANSWERS).take_while(|_| !is_lost()) {
            let answer = b.irecv(Pattern::exactly(value), vec![0; 8]).unwrap();
            assert!(b.inject(to_a, value, &[&[2; 8]]).unwrap());
            while b.test(answer).unwrap().is_none() && !is_lost() {
                lost.store(b.read_next(1), Ordering::Relaxed);
            }
        }
    });
    assert!(!is_lost(), "a message was unexpected beside its receive");
}
