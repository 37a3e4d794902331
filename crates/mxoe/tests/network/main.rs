//! Nodes on a simulated network that loses, duplicates and reorders frames. There is no socket, and
//! the simulated network is the only clock.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_range_loop,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod another_process;
mod datagrams;
#[path = "../programs/frames.rs"]
mod frames;
mod hostile;
mod impairment;
mod introductions;
mod large_frames;
mod net;
mod reopened;
mod send_window;

use std::time::Duration;

use mxoe::wire::{Ends, Frame, Mac, Packet, Small};
use mxoe::{Address, Code, Config, Event, Message, Node, SendError};

use net::{KEY, Network, at, mac, pattern, session};

#[test]
fn mxoe_5_1_connects_are_refused_with_the_reason() {
    let mut network = Network::new(2, 3);
    let cases = [
        (at(1, 3), KEY + 1, Code::BadKey),
        (at(1, 4), KEY, Code::Closed),
        (at(1, 255), KEY, Code::BadEndpoint),
        (at(9, 3), KEY, Code::Unreachable),
    ];
    for (to, key, expected) in cases {
        network.nodes[0]
            .connect(network.now, 3, to, key, 5)
            .unwrap();
        let code = expected;
        assert_eq!(network.event(0), Event::Connected { token: 5, code });
    }
    assert_eq!(network.send(0, 1, 1, vec![]), Err(SendError::NotConnected));
    let broadcast = Address {
        host: Mac::BROADCAST,
        endpoint: 3,
    };
    let refused = network.nodes[0].connect(network.now, 3, broadcast, KEY, 5);
    assert_eq!(refused, Err(SendError::NoHost));
    let refused = network.nodes[0].connect(network.now, 4, at(1, 3), KEY, 5);
    assert_eq!(refused, Err(SendError::NotOpen));
}

/// Sends one message of each kind, and returns the result of each.
fn one_of_each(network: &mut Network) -> Vec<Code> {
    for (token, length) in [(10, 5), (11, 5000), (12, 50_000)] {
        network.send(0, 1, token, pattern(length, token)).unwrap();
    }
    let mut ends: Vec<_> = (0..3)
        .map(|_| match network.event(0) {
            Event::Sent { token, code, .. } => (token, code),
            other => panic!("{other:?}"),
        })
        .collect();
    ends.sort_by_key(|(token, _)| *token);
    ends.into_iter().map(|(_, code)| code).collect()
}

#[test]
fn mxoe_5_4_packets_for_a_closed_or_reopened_endpoint_are_refused() {
    let mut network = Network::new(2, 3);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.nodes[1].close(3);
    assert_eq!(one_of_each(&mut network), [Code::Closed; 3]);
    assert_eq!(network.send(0, 1, 1, vec![]), Err(SendError::NotConnected));
    network.nodes[1].open(network.now, 3, KEY, session(1, 1));
    assert_eq!(network.connect(0, 1), Code::Success);
    network.nodes[1].close(3);
    network.nodes[1].open(network.now, 3, KEY, session(1, 2));
    assert_eq!(one_of_each(&mut network), [Code::BadSession; 3]);
    // A new connection works.
    assert_eq!(network.connect(0, 1), Code::Success);
    network.send(0, 1, 7, vec![7]).unwrap();
    assert_eq!(network.value(1), 7);
}

#[test]
fn a_send_without_a_token_ends_without_an_event() {
    let mut network = Network::new(2, 3);
    assert_eq!(network.connect(0, 1), Code::Success);
    for (value, length) in [(10, 5), (11, 5000), (12, 50_000)] {
        let (now, message) = (network.now, (value, pattern(length, value)));
        let sent = network.nodes[0].send(now, 3, at(1, 3), message, false, None);
        assert_eq!(sent, Ok(()));
    }
    assert_eq!([network.value(1), network.value(1)], [10, 11]);
    let (now, offer) = (network.now, network.offered(1));
    assert!(network.nodes[1].pull(now, 3, offer, 0, 1).is_ok());
    network.send(0, 1, 13, vec![13]).unwrap();
    assert_eq!(network.value(1), 13);
    let (token, code, taken) = (13, Code::Success, 1);
    assert_eq!(network.event(0), Event::Sent { token, code, taken });
}

#[test]
fn mxoe_4_a_silent_peer_is_given_up_and_can_connect_again() {
    let mut network = Network::new(2, 3);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.impairment.loss = 100;
    assert_eq!(one_of_each(&mut network), [Code::Unreachable; 3]);
    assert_eq!(network.connect(0, 1), Code::Unreachable);
    network.impairment.loss = 0;
    // Neither side has kept state of the old connection.
    assert_eq!(network.connect(0, 1), Code::Success);
    for (from, to) in [(0, 1), (1, 0)] {
        network.send(from, to, 7, vec![7]).unwrap();
        assert_eq!(network.value(to), 7);
    }
}

#[test]
fn mxoe_5_4_a_pull_of_an_expired_offer_is_refused() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.send(0, 1, 7, pattern(50_000, 7)).unwrap();
    let offer = network.offered(1);
    // After the first pull, the offer is gone.
    let pull = network.nodes[1].pull(network.now, 3, offer, 10, 1).unwrap();
    let piece = network.until(|network| network.nodes[1].next_piece(network.now, 3, pull));
    assert_eq!(piece, &pattern(50_000, 7)[..10]);
    let code = Code::Success;
    assert_eq!(network.event(1), Event::Pulled { token: 1, code });
    network.advance(Duration::from_secs(1));
    network.nodes[1].pull(network.now, 3, offer, 10, 2).unwrap();
    let code = Code::BadRegion;
    assert_eq!(network.event(1), Event::Pulled { token: 2, code });
}

#[test]
fn mxoe_6_hosts_find_each_other_and_notice_a_restart() {
    let mut network = Network::new(3, 500);
    for node in &mut network.nodes {
        node.announce(Duration::ZERO);
    }
    network.advance(Duration::from_secs(3));
    for number in 0..3 {
        let mut found = Vec::new();
        while let Some(Event::Host { host, name }) = network.events[number].pop_front() {
            found.push((host, name));
        }
        found.sort();
        let others = (0..3).filter(|other| *other != number);
        let expected: Vec<_> = others
            .map(|other| (mac(other), format!("host{other}")))
            .collect();
        assert_eq!(found, expected);
    }
    // Eight announcements a second apart, then one every 180 s.
    network.advance(Duration::from_secs(30));
    let before = network.sent.len();
    network.advance(Duration::from_secs(100));
    assert!(network.sent.len() - before <= 3);
    // A new node with an old address announces another name.
    let mut again = Node::new(Config::new(mac(1), "again", 10));
    again.announce(network.now);
    network.nodes[1] = again;
    network.advance(Duration::from_secs(3));
    let event = network.events[0].pop_front();
    let name = "again".to_owned();
    assert_eq!(event, Some(Event::Host { host: mac(1), name }));
}

#[test]
fn mxoe_1_1_forged_frames_are_dropped() {
    let mut network = Network::new(3, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    assert_eq!(network.connect(2, 1), Code::Success);
    network.send(0, 1, 7, vec![7]).unwrap();
    network.collect_frames();
    let frame = network.sent.last().unwrap().clone();
    network.advance(Duration::from_secs(1));
    assert_eq!(network.value(1), 7);
    let decoded = Frame::decode(&frame).unwrap();
    let Packet::Small(head) = decoded.packet else {
        panic!("no message");
    };
    let next = Small {
        seq: head.seq + 1,
        data: b"forged",
        ..head
    };
    let forge = |source: usize, index: u16, session: u32| Frame {
        source: mac(source),
        index,
        packet: Packet::Small(Small { session, ..next }),
        ..decoded
    };
    let forgeries = [
        forge(2, decoded.index, head.session),
        forge(0, decoded.index ^ 1, head.session),
        forge(0, 0xffff, head.session),
        forge(0, decoded.index, head.session ^ 1),
        Frame {
            destination: mac(2),
            ..forge(0, decoded.index, head.session)
        },
        Frame {
            source: mac(1),
            ..forge(0, decoded.index, head.session)
        },
    ];
    for forgery in forgeries {
        network.nodes[1].receive(network.now, &forgery.encode());
        assert_eq!(network.take_message(1), None, "{forgery:?}");
        assert_eq!(network.next_event(1), None, "{forgery:?}");
    }
    network.nodes[1].receive(network.now, &forge(0, decoded.index, head.session).encode());
    assert!(network.take_message(1).is_some());
}

#[test]
fn mxoe_5_4_refusals_are_limited() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.sent.clear();
    let connect = |number| {
        let ends = Ends { to: 255, from: 3 };
        let packet = mxoe::wire::Connect {
            ends,
            index: 0,
            session: 1,
            key_or_session: 1,
            expected_seq: 1,
            number,
            status: None,
            own_key: None,
            pipeline: None,
            udp: None,
            program: None,
        };
        let packet = Packet::Connect(packet);
        Frame {
            destination: mac(1),
            source: mac(0),
            index: 0,
            packet,
        }
        .encode()
    };
    for _ in 0..10 {
        for number in 0..100 {
            network.nodes[1].receive(network.now, &connect(number));
        }
    }
    network.collect_frames();
    assert_eq!(network.sent.len(), 100);
}

#[test]
fn mxoe_4_a_receiver_that_takes_no_messages_holds_its_sender_back() {
    let mut network = Network::new(2, 5);
    assert_eq!(network.connect(0, 1), Code::Success);
    for value in 0..300 {
        network.send(0, 1, value, pattern(30_000, value)).unwrap();
    }
    // Longer than the peer_timeout for a silent peer: this peer answers, but takes no message.
    network.advance(Duration::from_secs(15));
    assert_eq!(network.next_event(0), None, "nothing is acknowledged");
    assert!(!network.nodes[0].has_room(3, at(1, 3)));
    for value in 0..300 {
        let data = pattern(30_000, value);
        assert_eq!(network.message(1), Message::Whole { value, data });
    }
    assert_eq!(network.take_message(1), None);
}

#[test]
fn mxoe_5_3_a_notification_ends_its_send_ahead_of_untaken_messages() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    for value in 0..200 {
        network.send(1, 0, value, vec![7; 30_000]).unwrap();
    }
    network.send(0, 1, 9, pattern(100_000, 9)).unwrap();
    let offer = network.offered(1);
    let now = network.now;
    let pull = network.nodes[1].pull(now, 3, offer, 100_000, 1).unwrap();
    let mut data = Vec::new();
    while data.len() < 100_000 {
        data.extend(network.until(|network| network.nodes[1].next_piece(network.now, 3, pull)));
    }
    assert_eq!(data, pattern(100_000, 9));
    let sent = Event::Sent {
        token: 9,
        code: Code::Success,
        taken: 100_000,
    };
    assert_eq!(network.event(0), sent);
}

#[test]
fn mxoe_5_3_the_loss_of_a_peer_is_reported() {
    type End = fn(&mut Network);
    let ends: [(End, Code); 4] = [
        (|network| network.nodes[1].close(3), Code::Closed),
        (
            |network| network.nodes[1].disconnect(network.now, 3, at(0, 3)),
            Code::BadSession,
        ),
        (
            |network| {
                network.nodes[1].close(3);
                let now = network.now;
                network.nodes[1].open(now, 3, KEY, session(1, 7));
            },
            Code::BadSession,
        ),
        (|network| network.impairment.loss = 100, Code::Unreachable),
    ];
    for (end, code) in ends {
        let mut network = Network::new(2, 30);
        assert_eq!(network.connect(0, 1), Code::Success);
        network.send(0, 1, 9, pattern(100_000, 9)).unwrap();
        network.offered(1);
        // The receiver may delay the pull for any time.
        network.advance(Duration::from_secs(600));
        assert_eq!(network.next_event(0), None);
        end(&mut network);
        let (token, taken) = (9, 0);
        assert_eq!(network.event(0), Event::Sent { token, code, taken });
    }
    // The same for a peer that owes nothing: a program may wait for its next message.
    for (end, code) in ends {
        let mut network = Network::new(2, 31);
        assert_eq!(network.connect(0, 1), Code::Success);
        network.advance(Duration::from_secs(600));
        assert_eq!(network.next_event(0), None);
        end(&mut network);
        let (endpoint, from) = (3, at(1, 3));
        let lost = Event::Disconnected {
            endpoint,
            from,
            code,
        };
        let next = |network: &mut Network| network.events[0].pop_front();
        while network.until(next) != lost {}
    }
}

#[test]
fn retransmissions_drops_and_refusals_are_counted() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    let none = [0, 1].map(|node| network.nodes[node].counters());
    assert!(none.iter().all(|all| all.sent > 0 && all.received > 0));
    assert!(
        none.iter()
            .all(|all| all.resent + all.asked_again + all.ignored + all.refused == 0)
    );
    // The network loses all frames for a while: first of a message, then of a pull.
    network.send(0, 1, 7, vec![7]).unwrap();
    network.impairment.loss = 100;
    network.advance(Duration::from_secs(1));
    network.impairment.loss = 0;
    assert_eq!(network.value(1), 7);
    assert!(network.nodes[0].counters().resent > 0);
    network.send(0, 1, 8, pattern(50_000, 8)).unwrap();
    let offer = network.offered(1);
    network.impairment.loss = 100;
    let now = network.now;
    network.nodes[1].pull(now, 3, offer, 50_000, 8).unwrap();
    network.advance(Duration::from_secs(1));
    assert!(network.nodes[1].counters().asked_again > 0);
    network.impairment.loss = 0;
    network.nodes[1].receive(now, &[0; 60]);
    network.nodes[1].close(3);
    network.send(0, 1, 9, vec![9]).unwrap();
    network.advance(Duration::from_secs(1));
    let after = network.nodes[1].counters();
    assert!(after.ignored == 1 && after.refused > 0, "{after:?}");
}

#[test]
fn mxoe_5_1_a_connect_waits_until_its_endpoint_opens() {
    let mut network = Network::new(2, 500);
    let to = at(1, 8);
    network.nodes[0]
        .connect(network.now, 3, to, KEY, 1)
        .unwrap();
    network.collect_frames();
    for (_, frame) in std::mem::take(&mut network.in_flight) {
        network.nodes[1].receive(network.now, &frame);
    }
    let asked = std::iter::from_fn(|| network.nodes[1].event());
    let asked: Vec<_> = asked
        .filter(|event| matches!(event, Event::ConnectRequest { .. }))
        .collect();
    let expected = Event::ConnectRequest {
        endpoint: 8,
        from: at(0, 3),
        session: session(0, 0),
        key: KEY,
        peer_key: Some(KEY),
        program: None,
    };
    assert_eq!(asked, [expected], "once");
    assert!(network.nodes[1].open(network.now, 8, KEY, session(1, 8)));
    let code = Code::Success;
    assert_eq!(network.event(0), Event::Connected { token: 1, code });
    assert_eq!(network.nodes[0].session(3, to), Some(session(1, 8)));
}
