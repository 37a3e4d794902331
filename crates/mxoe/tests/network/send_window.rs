//! The window of a sender and what a receiver keeps.

use std::time::Duration;

use mxoe::{Code, Message};

use super::net::{Network, pattern};

/// Lengths that end eight bytes before 1 MiB, and one more message.
fn lengths() -> impl Iterator<Item = usize> {
    std::iter::repeat_n(32_768, 31).chain([32_760, 32_768])
}

#[test]
fn a_receiver_that_takes_nothing_for_a_while_has_nothing_sent_again() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    for (value, length) in (0..).zip(lengths()) {
        network.send(0, 1, value, pattern(length, value)).unwrap();
    }
    // Less than the shortest time after which a message is sent again.
    network.advance(Duration::from_millis(10));
    for (value, length) in (0..).zip(lengths()) {
        match network.message(1) {
            Message::Whole { value: is, data } => {
                assert_eq!((is, data), (value, pattern(length, value)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(network.nodes[0].counters().resent, 0);
}
