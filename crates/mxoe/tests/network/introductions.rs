//! Introductions: connects that carry the address of a program, and what the other node's program makes of them.

use std::net::SocketAddr;
use std::time::Duration;

use mxoe::wire::{Connect, Ends, Frame, INTRODUCED, Packet};
use mxoe::{Code, Event};

use super::net::{KEY, Network, at, frame, session};

const TOKEN: u64 = 5;

/// Where the program of a node takes datagrams.
fn program(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8 + 1], 5000))
}

/// Introduces the program of a node to endpoint 3 of the other one, and returns the event of the request.
fn introduce(network: &mut Network, from: usize, key: u32) -> Event {
    let now = network.now;
    network.nodes[from]
        .introduce(now, 3, at(1 - from, 3), key, TOKEN, program(from))
        .unwrap();
    network.event(1 - from)
}

fn request(from: usize, key: u32) -> Event {
    Event::ConnectRequest {
        endpoint: 3,
        from: at(from, 3),
        session: session(from, 0),
        key,
        peer_key: Some(KEY),
        program: Some(program(from)),
    }
}

/// Two nodes, of which one may not have endpoint 3 open.
fn nodes(is_open: bool) -> Network {
    let mut network = Network::new(2, 30);
    if !is_open {
        network.nodes[1].close(3);
    }
    network
}

fn answer(network: &mut Network, node: usize) {
    network.nodes[node].answer_introduction(3, at(1 - node, 3), program(node));
}

fn introduced(by: usize) -> Event {
    Event::Introduced {
        token: TOKEN,
        program: program(by),
    }
}

fn connected(code: Code) -> Event {
    Event::Connected { token: TOKEN, code }
}

/// Checks that neither node has a connection.
fn assert_not_connected(network: &mut Network) {
    for node in 0..2 {
        assert_eq!(network.nodes[node].session(3, at(1 - node, 3)), None);
        network.collect_events();
        let connected = |event: &Event| matches!(event, Event::PeerConnected { .. });
        assert!(!network.events[node].iter().any(connected));
    }
}

#[test]
fn programs_are_introduced_to_each_other() {
    for is_open in [true, false] {
        let mut network = nodes(is_open);
        // The node does not check the key.
        for key in [KEY, KEY + 1] {
            assert_eq!(introduce(&mut network, 0, key), request(0, key));
            answer(&mut network, 1);
            assert_eq!(network.event(0), introduced(1));
            network.advance(Duration::from_secs(3));
            assert_eq!(network.next_event(0), None);
            assert_eq!(network.next_event(1), None);
            assert_not_connected(&mut network);
        }
    }
}

#[test]
fn an_introduction_is_accepted_as_a_connect() {
    for is_open in [true, false] {
        let mut network = nodes(is_open);
        assert_eq!(introduce(&mut network, 0, KEY), request(0, KEY));
        let now = network.now;
        // Opening the endpoint accepts no introduction.
        let opened = network.nodes[1].open(now, 3, KEY, session(1, 0));
        assert_eq!(opened, !is_open);
        assert_not_connected(&mut network);
        network.nodes[1].accept(now, 3, at(0, 3));
        assert_eq!(network.event(0), connected(Code::Success));
        let peer = |event: &Event| matches!(event, Event::PeerConnected { .. });
        let peers: Vec<_> = network.events[1].drain(..).filter(peer).collect();
        network.send(0, 1, 7, vec![7]).unwrap();
        assert_eq!(network.value(1), 7);
        network.send(1, 0, 8, vec![8]).unwrap();
        assert_eq!(network.value(0), 8);
        let from = at(0, 3);
        let event = Event::PeerConnected {
            endpoint: 3,
            from,
            peer_key: Some(KEY),
        };
        assert_eq!(peers, [event]);
        network.advance(Duration::from_secs(1));
        while network.next_event(0).is_some() || network.next_event(1).is_some() {}
        // The connection is there, so the program is not asked once more.
        let now = network.now;
        network.nodes[0]
            .introduce(now, 3, at(1, 3), KEY, TOKEN, program(0))
            .unwrap();
        assert_eq!(network.event(0), connected(Code::Success));
        assert_eq!(network.next_event(1), None);
    }
}

#[test]
fn a_wrong_key_of_an_accepted_introduction_is_refused() {
    let mut network = nodes(true);
    introduce(&mut network, 0, KEY + 1);
    let now = network.now;
    network.nodes[1].accept(now, 3, at(0, 3));
    assert_eq!(network.event(0), connected(Code::BadKey));
    assert_not_connected(&mut network);
}

#[test]
fn an_introduction_is_refused() {
    for is_open in [true, false] {
        for code in [Code::BadKey, Code::Closed] {
            let mut network = nodes(is_open);
            introduce(&mut network, 0, KEY);
            let now = network.now;
            network.nodes[1].refuse(now, 3, at(0, 3), Some(code));
            assert_eq!(network.event(0), connected(code));
            assert_not_connected(&mut network);
        }
    }
}

#[test]
fn an_introduction_to_no_endpoint_is_refused() {
    let mut network = nodes(true);
    let now = network.now;
    network.nodes[0]
        .introduce(now, 3, at(1, 255), KEY, TOKEN, program(0))
        .unwrap();
    assert_eq!(network.event(0), connected(Code::BadEndpoint));
}

/// The request is repeated while the other program has not answered, and while frames are lost.
#[test]
fn a_repeated_introduction_asks_the_program_once() {
    for is_open in [true, false] {
        let mut network = nodes(is_open);
        introduce(&mut network, 0, KEY);
        network.advance(Duration::from_secs(3));
        assert_eq!(network.next_event(1), None, "once");
        let before = network.sent.len();
        network.impairment.loss = 100;
        answer(&mut network, 1);
        network.collect_frames();
        assert_eq!(network.sent.len(), before + 1, "the subject of the test");
        network.impairment.loss = 0;
        // The answer was lost and the node has forgotten the request.
        assert_eq!(network.event(1), request(0, KEY));
        answer(&mut network, 1);
        assert_eq!(network.event(0), introduced(1));
        network.advance(Duration::from_secs(3));
        assert_eq!(network.next_event(1), None);
    }
}

#[test]
fn introductions_survive_losses() {
    for seed in 0..20 {
        let mut network = nodes(seed % 2 == 0);
        network.rng = fastrand::Rng::with_seed(seed);
        (network.impairment.loss, network.impairment.duplication) = (40, 20);
        network.impairment.jitter_us = 1000;
        let now = network.now;
        network.nodes[0]
            .introduce(now, 3, at(1, 3), KEY, TOKEN, program(0))
            .unwrap();
        let event = network.until(|network| {
            if let Some(event) = network.next_event(1) {
                assert_eq!(event, request(0, KEY));
                answer(network, 1);
            }
            network.next_event(0)
        });
        assert_eq!(event, introduced(1));
    }
}

#[test]
fn a_silent_node_ends_an_introduction() {
    let mut network = nodes(true);
    network.impairment.loss = 100;
    let now = network.now;
    network.nodes[0]
        .introduce(now, 3, at(1, 3), KEY, TOKEN, program(0))
        .unwrap();
    assert_eq!(network.event(0), connected(Code::Unreachable));
}

#[test]
fn both_programs_are_introduced_at_once() {
    let mut network = nodes(true);
    for from in 0..2 {
        let now = network.now;
        network.nodes[from]
            .introduce(now, 3, at(1 - from, 3), KEY, TOKEN, program(from))
            .unwrap();
    }
    for node in 0..2 {
        assert_eq!(network.event(node), request(1 - node, KEY));
    }
    answer(&mut network, 0);
    answer(&mut network, 1);
    for node in 0..2 {
        assert_eq!(network.event(node), introduced(1 - node));
    }
    network.advance(Duration::from_secs(3));
    assert_eq!((network.next_event(0), network.next_event(1)), (None, None));
    assert_not_connected(&mut network);
}

/// A peer that has given its introduction up connects.
#[test]
fn a_connect_takes_the_place_of_an_introduction() {
    let mut network = nodes(true);
    introduce(&mut network, 0, KEY);
    network.nodes[0].disconnect(network.now, 3, at(1, 3));
    assert_eq!(network.connect(0, 1), Code::Success);
    answer(&mut network, 1);
    network.advance(Duration::from_secs(3));
    assert_eq!(network.next_event(0), None);
    network.send(0, 1, 7, vec![7]).unwrap();
    assert_eq!(network.value(1), 7);
    // An answer for an endpoint that is not open, whose request is no introduction any more.
    let mut network = nodes(false);
    introduce(&mut network, 0, KEY);
    network.nodes[0].disconnect(network.now, 3, at(1, 3));
    let now = network.now;
    network.nodes[0].connect(now, 3, at(1, 3), KEY, 9).unwrap();
    network.collect_frames();
    for (_, frame) in std::mem::take(&mut network.in_flight) {
        network.nodes[1].receive(now, &frame);
    }
    answer(&mut network, 1);
    network.collect_frames();
    assert!(network.in_flight.is_empty(), "no answer");
    // The repeated request is a connect to a closed endpoint.
    let code = Code::Closed;
    assert_eq!(network.event(0), Event::Connected { token: 9, code });
}

/// A reply that has no address, or that is for a connect.
#[test]
fn malformed_introductions_are_ignored() {
    let mut network = nodes(true);
    introduce(&mut network, 0, KEY);
    let sent = network.sent.iter().map(|sent| Frame::decode(sent).unwrap());
    let mut request = sent.filter_map(|frame| match frame.packet {
        Packet::Connect(connect) => Some(connect),
        _ => None,
    });
    let request = request.next_back().unwrap();
    assert_eq!((request.program, request.udp), (Some(program(0)), None));
    let reply = |number, program| {
        let reply = Connect {
            ends: Ends { to: 3, from: 3 },
            number,
            key_or_session: 0,
            status: Some(INTRODUCED),
            own_key: None,
            program,
            ..request
        };
        frame(1, 0, Packet::Connect(reply))
    };
    let now = network.now;
    for number in [request.number, request.number.wrapping_add(1)] {
        network.nodes[0].receive(now, &reply(number, None));
        assert_eq!(network.next_event(0), None);
    }
    let other = reply(request.number.wrapping_add(1), Some(program(1)));
    network.nodes[0].receive(now, &other);
    assert_eq!(network.next_event(0), None);
    network.nodes[0].receive(now, &reply(request.number, Some(program(1))));
    assert_eq!(network.next_event(0), Some(introduced(1)));
    // The next connect has the next number.
    network.impairment.loss = 100;
    network.nodes[0].connect(now, 3, at(1, 3), KEY, 9).unwrap();
    for number in 0..=255 {
        network.nodes[0].receive(now, &reply(number, Some(program(1))));
    }
    assert_eq!(network.next_event(0), None);
    network.impairment.loss = 0;
    network.advance(Duration::from_secs(1));
    let code = Code::Success;
    assert_eq!(
        network.next_event(0),
        Some(Event::Connected { token: 9, code })
    );
}
