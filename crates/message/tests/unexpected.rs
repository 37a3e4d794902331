//! The unexpected handler, and peers that were opened again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Pair, pattern};
use message::{Code, Endpoint, Options, Pattern};

/// What B's handler sees, in order: value, length, and whether the bytes have arrived.
fn handle_all(pair: &mut Pair) -> Vec<(u64, u64, bool)> {
    let mut list = Vec::new();
    while let Some(message) = pair.b.next_unexpected() {
        let whole = message.bytes().is_some();
        if let Some(bytes) = message.bytes() {
            let length = usize::try_from(message.length()).unwrap();
            assert_eq!(bytes, pattern(length, message.value()));
        }
        assert_eq!(message.peer(), pair.to_a);
        list.push((message.value(), message.length(), whole));
        pair.b.keep(message);
    }
    list
}

#[test]
fn mx_6_6_unexpected_messages_are_handled_once_in_order() {
    let mut pair = Pair::new();
    pair.b.show_unexpected(true);
    let posted = pair.b.irecv(Pattern::exactly(2), vec![0; 9]).unwrap();
    for (value, length) in [(1, 8), (2, 9), (3, 100), (4, 50_000)] {
        let bytes = pattern(length, value);
        let sent = pair.a.isend(pair.to_b, value, bytes).unwrap();
        pair.a.forget(sent).unwrap();
    }
    let waits = pair.a.issend(pair.to_b, 5, pattern(7, 5)).unwrap();
    pair.run_until_idle();
    assert!(pair.b.iprobe(Pattern::ANY).is_none(), "not handled yet");
    let expected = [
        (1, 8, true),
        (3, 100, true),
        (4, 50_000, false),
        (5, 7, false),
    ];
    assert_eq!(handle_all(&mut pair), expected);
    assert_eq!(handle_all(&mut pair), []);
    assert_eq!(pair.finish_b(posted).status.value, 2);
    // The messages match receives afterwards.
    for (value, length, _) in expected {
        let length = usize::try_from(length).unwrap();
        let request = pair.b.irecv(Pattern::ANY, vec![0; length]).unwrap();
        let got = pair.finish_b(request);
        assert_eq!(got.status.value, value);
        assert_eq!(got.memory.bytes(), pattern(length, value));
    }
    assert_eq!(pair.finish_a(waits).status.code, Code::Success);
}

#[test]
fn mx_6_6_a_receive_posted_by_the_handler_gets_the_message() {
    let mut pair = Pair::new();
    pair.b.show_unexpected(true);
    for _ in 0..2 {
        let sent = pair.a.isend(pair.to_b, 1, pattern(100, 1)).unwrap();
        pair.a.forget(sent).unwrap();
    }
    pair.run_until_idle();
    let first = pair.b.next_unexpected().unwrap();
    // Two receives: the message that is kept gets the first, the next one the second.
    let [one, two] = [0; 2].map(|_| pair.b.irecv(Pattern::ANY, vec![0; 100]).unwrap());
    assert!(pair.b.test(one).unwrap().is_none());
    pair.b.keep(first);
    assert!(pair.b.test(one).unwrap().is_some());
    assert!(
        pair.b.next_unexpected().is_none(),
        "it matches a receive now"
    );
    assert!(pair.b.test(two).unwrap().is_some());
}

#[test]
fn mx_6_6_consuming_ends_the_synchronous_send() {
    let mut pair = Pair::new();
    pair.b.show_unexpected(true);
    let sends = [
        pair.a.issend(pair.to_b, 1, pattern(100, 1)).unwrap(),
        pair.a.isend(pair.to_b, 2, pattern(50_000, 2)).unwrap(),
        pair.b.isend(pair.b.own(), 3, pattern(10, 3)).unwrap(),
    ];
    pair.run_until_idle();
    for _ in 0..3 {
        let message = pair.b.next_unexpected().unwrap();
        pair.b.consume(message);
    }
    assert!(pair.b.iprobe(Pattern::ANY).is_none());
    for send in [sends[0], sends[1]] {
        let status = pair.finish_a(send).status;
        assert_eq!((status.code, status.taken), (Code::Truncated, 0));
    }
    assert_eq!(pair.finish_b(sends[2]).status.taken, 0);
}

#[test]
fn mx_6_7_a_peer_that_opened_again_is_another_session() {
    let mut pair = Pair::new();
    let address = pair.b.address();
    let board = pair.board();
    let old = std::mem::replace(
        &mut pair.b,
        Endpoint::open(&board, &Options::default()).unwrap(),
    );
    drop(old);
    pair.run_until_idle();
    let closed = pair.a.isend(pair.to_b, 1, vec![1]).unwrap();
    assert_eq!(pair.finish_a(closed).status.code, Code::Closed);
    let options = Options {
        endpoint: Some(address.endpoint),
        ..Options::default()
    };
    pair.b = Endpoint::open(&board, &options).unwrap();
    let late = pair.a.isend(pair.to_b, 1, vec![1]).unwrap();
    assert_eq!(pair.finish_a(late).status.code, Code::BadSession);
}
