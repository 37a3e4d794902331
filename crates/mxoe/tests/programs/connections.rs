//! Nodes whose frames all travel in datagrams: messages, and connections whose two sides agree that they are connected.

use std::time::Duration;

use mxoe::wire::{Frame, Packet};
use mxoe::{Code, Event, SendError};

use super::frames::{KEY, at, pattern, session};
use super::network::{Programs, connected, none_is_lost, peer_connected, udp};

const LENGTHS: [usize; 8] = [0, 5, 100, 4096, 5000, 32_768, 100_000, 600_000];

pub(crate) fn two() -> Programs {
    Programs::new(2, |_, _| {})
}

pub(crate) fn decoded(sent: &[(usize, Vec<u8>)]) -> impl Iterator<Item = (usize, Packet<'_>)> {
    sent.iter()
        .map(|(from, frame)| (*from, Frame::decode(frame).unwrap().packet))
}

/// Sends messages of all lengths both ways between two programs.
pub(crate) fn exchange(programs: &mut Programs, one: usize, other: usize) {
    for (value, length) in (0..).zip(LENGTHS) {
        for (from, to) in [(one, other), (other, one)] {
            programs.send(from, to, value, pattern(length, value));
        }
    }
    for (value, length) in (0..).zip(LENGTHS) {
        for (from, to) in [(one, other), (other, one)] {
            let message = programs.receive(to, from);
            assert!(message == (value, pattern(length, value)), "{length}");
        }
    }
}

#[test]
fn messages_of_all_lengths_travel_in_datagrams() {
    let mut programs = two();
    programs.connect(0, 1);
    exchange(&mut programs, 0, 1);
    for (_, frame) in &programs.sent {
        let is_connect = matches!(Frame::decode(frame).unwrap().packet, Packet::Connect(_));
        assert!(frame.len() <= 8240 && (!is_connect || frame.len() == 8240));
    }
    // Long fragments without a probe of the path.
    let longest = decoded(&programs.sent).filter_map(|(_, packet)| match packet {
        Packet::Medium(medium) => Some(medium.head.data.len()),
        _ => None,
    });
    assert_eq!(longest.max(), Some(8192));
    let connects = decoded(&programs.sent)
        .filter(|(_, packet)| matches!(packet, Packet::Connect(_)))
        .count();
    assert_eq!(connects, 4, "a connect, a probe, and their answers");
    let counters = programs.node(0).counters();
    assert_eq!(
        (counters.resent, counters.asked_again, counters.ignored),
        (0, 0, 0)
    );
}

/// Two of the programs have one MAC address.
#[test]
fn three_programs_talk_under_losses() {
    for seed in 0..8 {
        let mut programs = Programs::new(3, |_, config| config.receive_buffer = Some(400_000));
        programs.rng = fastrand::Rng::with_seed(seed);
        (programs.loss, programs.duplication, programs.jitter_us) = (10, 10, 300);
        for (from, to) in [(0, 1), (2, 0), (1, 2)] {
            programs.connect(from, to);
        }
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            exchange(&mut programs, one, other);
        }
        assert!(
            programs
                .all
                .iter()
                .all(|one| one.node.counters().resent > 0)
        );
        let ended = |event: &Event| {
            matches!(
                event,
                Event::Disconnected { .. } | Event::PeerConnected { .. }
            )
        };
        let events = programs.all.iter().flat_map(|one| &one.events);
        assert_eq!(
            events.filter(|event| ended(event)).count(),
            0,
            "seed {seed}"
        );
    }
}

#[test]
fn connects_are_refused_with_the_reason() {
    let mut programs = two();
    let unknown = at(5, 3);
    let now = programs.now;
    let refused = programs.node(0).connect(now, 3, unknown, KEY, 1);
    assert_eq!(refused, Err(SendError::NoHost));
    programs
        .node(0)
        .connect(now, 3, at(1, 3), KEY + 1, 1)
        .unwrap();
    programs.advance(Duration::from_secs(3));
    assert_eq!(programs.events(0), [connected(Code::BadKey)]);
    assert_eq!(programs.events(1), []);
    // A closed endpoint asks the program.
    programs.node(1).close(3);
    programs.start_connect(0, 1);
    programs.advance(Duration::from_secs(3));
    let request = Event::ConnectRequest {
        endpoint: 3,
        from: at(0, 3),
        session: session(0, 0),
        key: KEY,
        peer_key: Some(KEY),
        program: None,
    };
    assert_eq!(programs.events(1), [request]);
    let now = programs.now;
    programs
        .node(1)
        .refuse(now, 3, at(0, 3), Some(Code::Closed));
    programs.advance(Duration::from_secs(3));
    assert_eq!(programs.events(0), [connected(Code::Closed)]);
    // The program opens it.
    programs.start_connect(0, 1);
    programs.advance(Duration::from_millis(1));
    assert_eq!(programs.events(1).len(), 1);
    let now = programs.now;
    assert!(programs.node(1).open(now, 3, KEY, session(1, 1)));
    programs.advance(Duration::from_secs(1));
    assert_eq!(programs.events(0), [connected(Code::Success)]);
    let event = peer_connected(&programs, 1, 0);
    assert_eq!(programs.events(1), [event]);
}

fn loses_replies_of_1(from: usize, packet: &Packet<'_>) -> bool {
    from == 1 && matches!(packet, Packet::Connect(connect) if connect.status.is_some())
}

fn loses_all_of_1(from: usize, _: &Packet<'_>) -> bool {
    from == 1
}

fn loses_probe_answers(from: usize, packet: &Packet<'_>) -> bool {
    from == 0 && matches!(packet, Packet::Connect(connect) if connect.status.is_some())
}

#[test]
fn a_connection_whose_answer_is_lost_is_not_reported() {
    for loses in [loses_replies_of_1, loses_all_of_1] {
        let mut programs = two();
        programs.loses = loses;
        programs.start_connect(0, 1);
        programs.advance(Duration::from_secs(10));
        assert_eq!(programs.session(1, 0), Some(session(0, 0)), "the subject");
        assert_eq!((programs.events(0), programs.events(1)), (vec![], vec![]));
        // The other side gives up.
        programs.advance(Duration::from_secs(15));
        assert_eq!(programs.events(0), [connected(Code::Unreachable)]);
        programs.advance(Duration::from_secs(25));
        assert_eq!(programs.session(1, 0), None);
        assert_eq!(programs.events(1), []);
        // Later, both find each other.
        programs.loses = none_is_lost;
        programs.connect(0, 1);
        exchange(&mut programs, 0, 1);
    }
    // The answer arrives at last.
    let mut programs = two();
    programs.loses = loses_replies_of_1;
    programs.start_connect(0, 1);
    programs.advance(Duration::from_secs(10));
    programs.loses = none_is_lost;
    programs.advance(Duration::from_secs(1));
    assert_eq!(programs.events(0), [connected(Code::Success)]);
    let event = peer_connected(&programs, 1, 0);
    assert_eq!(programs.events(1), [event]);
}

/// The side that connects has given up before the answer arrives, or its host is gone.
#[test]
fn a_connection_that_its_partner_gave_up_is_not_reported() {
    let mut programs = two();
    programs.start_connect(0, 1);
    programs.collect();
    programs.disconnect(0, 3, at(1, 3));
    programs.advance(Duration::from_millis(100));
    let codes = decoded(&programs.sent).filter_map(|(from, packet)| match packet {
        Packet::Nack { code, .. } => Some((from, code)),
        _ => None,
    });
    assert_eq!(codes.collect::<Vec<_>>(), [(0, 3)]);
    assert_eq!(
        (programs.session(0, 1), programs.session(1, 0)),
        (None, None)
    );
    assert_eq!((programs.events(0), programs.events(1)), (vec![], vec![]));
    // The same with an endpoint that is closed, and without any answer.
    let mut programs = two();
    programs.start_connect(0, 1);
    programs.collect();
    programs.node(0).close(3);
    programs.advance(Duration::from_millis(100));
    assert_eq!(programs.session(1, 0), None);
    assert_eq!(programs.events(1), []);
    let mut programs = two();
    programs.start_connect(0, 1);
    programs.collect();
    programs.loses = |from, _| from == 0;
    programs.disconnect(0, 3, at(1, 3));
    programs.advance(Duration::from_secs(19));
    assert_eq!(programs.session(1, 0), Some(session(0, 0)));
    programs.advance(Duration::from_secs(2));
    assert_eq!(programs.session(1, 0), None);
    assert_eq!(programs.events(1), []);
}

/// A side that gave up and connects again is not disturbed by the probe of its first connect.
#[test]
fn a_partner_that_gave_up_connects_again() {
    for pause in [0, 10, 30, 50, 70, 90, 600_000] {
        let mut programs = two();
        programs.start_connect(0, 1);
        programs.advance(Duration::from_micros(pause));
        programs.disconnect(0, 3, at(1, 3));
        programs.events(0);
        programs.start_connect(0, 1);
        programs.advance(Duration::from_secs(8));
        assert_eq!(programs.events(0), [connected(Code::Success)], "{pause}");
        let event = peer_connected(&programs, 1, 0);
        assert_eq!(programs.events(1).last(), Some(&event), "{pause}");
        exchange(&mut programs, 0, 1);
    }
}

/// Also a message proves that the partner has the connection.
#[test]
fn a_message_confirms_a_connection() {
    let mut programs = two();
    programs.loses = loses_probe_answers;
    programs.start_connect(0, 1);
    programs.advance(Duration::from_millis(700));
    assert_eq!(programs.events(0), [connected(Code::Success)]);
    assert_eq!(programs.events(1), []);
    programs.send(0, 1, 7, vec![7]);
    programs.advance(Duration::from_millis(1));
    let event = peer_connected(&programs, 1, 0);
    assert_eq!(programs.events(1), [event]);
    assert_eq!(programs.receive(1, 0), (7, vec![7]));
    // The probing has ended.
    programs.advance(Duration::from_secs(3));
    assert!(programs.session(1, 0).is_some());
    assert_eq!(programs.events(1), []);
}

/// A late packet of an earlier connection does not confirm a new one, although the endpoint has the same session.
#[test]
fn a_message_of_an_earlier_connection_confirms_nothing() {
    let mut programs = two();
    programs.connect(0, 1);
    programs.send(0, 1, 7, vec![7]);
    programs.collect();
    let (_, late) = programs.sent.last().unwrap().clone();
    for program in 0..2 {
        let other = programs.address(1 - program);
        programs.disconnect(program, 3, other);
    }
    programs.advance(Duration::from_millis(10));
    programs.loses = loses_replies_of_1;
    programs.start_connect(0, 1);
    programs.advance(Duration::from_millis(10));
    assert!(programs.session(1, 0).is_some(), "the subject of the test");
    programs.events(1);
    let now = programs.now;
    programs.node(1).receive_datagram(now, udp(0), &late);
    assert_eq!(programs.events(1), []);
}

#[test]
fn both_sides_connect_at_once() {
    for seed in 0..40 {
        let mut programs = two();
        programs.rng = fastrand::Rng::with_seed(seed);
        if seed > 0 {
            (programs.loss, programs.duplication, programs.jitter_us) = (20, 20, 50);
        }
        programs.start_connect(0, 1);
        programs.start_connect(1, 0);
        programs.advance(Duration::from_secs(15));
        for program in 0..2 {
            let peer = peer_connected(&programs, program, 1 - program);
            let events = programs.events(program);
            let both = [peer, connected(Code::Success)];
            match seed {
                0 => assert_eq!(events, both),
                // A side whose connect was answered before that of the other one arrived has no event for the latter, as in frames.
                _ => {
                    let connects = events.iter().filter(|event| **event == both[1]);
                    assert_eq!(connects.count(), 1, "{seed} {events:?}");
                    let others = events.iter().filter(|event| **event != both[1]);
                    let others: Vec<_> = others.collect();
                    assert!(
                        others.is_empty() || others == [&both[0]],
                        "{seed} {events:?}"
                    );
                }
            }
        }
        (programs.loss, programs.duplication, programs.jitter_us) = (0, 0, 0);
        exchange(&mut programs, 0, 1);
    }
}

fn loses_connects_of_0(from: usize, packet: &Packet<'_>) -> bool {
    from == 0 && matches!(packet, Packet::Connect(connect) if connect.own_key.is_some())
}

/// Both connect, and one gives up: its refusal of the probe is none of the other one's connect.
#[test]
fn a_partner_that_gave_up_is_connected_to() {
    let mut programs = two();
    programs.loses = loses_connects_of_0;
    programs.start_connect(0, 1);
    programs.start_connect(1, 0);
    programs.collect();
    programs.disconnect(1, 3, at(0, 3));
    programs.advance(Duration::from_millis(100));
    let refuses = |(from, packet)| from == 1 && matches!(packet, Packet::Nack { code: 3, .. });
    assert!(
        decoded(&programs.sent).any(refuses),
        "the subject of the test"
    );
    assert_eq!(programs.session(0, 1), None);
    assert_eq!(programs.events(0), []);
    programs.loses = none_is_lost;
    programs.advance(Duration::from_secs(1));
    assert_eq!(programs.events(0), [connected(Code::Success)]);
    let event = peer_connected(&programs, 1, 0);
    assert_eq!(programs.events(1), [event]);
}

#[test]
fn a_connection_ends_and_begins_again() {
    let mut programs = two();
    for turn in 0..6 {
        let (from, to) = (turn % 2, 1 - turn % 2);
        programs.connect(from, to);
        exchange(&mut programs, from, to);
        programs.advance(Duration::from_secs(1));
        programs.events(0);
        programs.events(1);
        let (now, peer) = (programs.now, programs.address(to));
        if turn < 3 {
            programs.node(from).notify_closed(now, 3, peer);
        }
        programs.disconnect(from, 3, peer);
        // The other side learns of it by the refusal of its message, at the latest.
        if turn >= 3 {
            programs.send(to, from, 1, vec![1]);
        }
        programs.advance(Duration::from_secs(1));
        let code = if turn < 3 {
            Code::Closed
        } else {
            Code::BadSession
        };
        let ended = Event::Disconnected {
            endpoint: 3,
            from: programs.address(from),
            code,
        };
        assert!(programs.events(to).contains(&ended), "{turn}");
    }
}

#[test]
fn a_silent_partner_is_given_up() {
    let mut programs = two();
    programs.connect(0, 1);
    programs.loss = 100;
    programs.advance(Duration::from_secs(30));
    for program in 0..2 {
        let ended = Event::Disconnected {
            endpoint: 3,
            from: programs.address(1 - program),
            code: Code::Unreachable,
        };
        assert_eq!(programs.events(program), [ended]);
    }
    programs.loss = 0;
    programs.connect(1, 0);
    programs.advance(Duration::from_secs(300));
    assert!(programs.session(0, 1).is_some() && programs.session(1, 0).is_some());
}
