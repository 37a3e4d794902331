//! Programs that open the endpoint of one that has ended, whose partners have not acknowledged everything.

use std::time::Duration;

use mxoe::wire::{Frame, Packet};
use mxoe::{Code, Event};

use super::net::{KEY, Network, at, mac, session};

/// The key and the session of the next program of node 0.
const NEXT: (u32, u32) = (KEY + 1, 1234);

/// The program of node 0 has ended; node 1 has taken none of its messages.
fn ended() -> Network {
    let mut network = Network::new(3, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    for value in 1..=3 {
        network.send(0, 1, value, vec![7]).unwrap();
    }
    network.advance(Duration::from_millis(10));
    network.nodes[0].retire(3);
    assert_eq!(network.nodes[0].key(3), None);
    network
}

fn open_next(network: &mut Network) {
    let (key, session) = NEXT;
    assert!(network.nodes[0].open(network.now, 3, key, session));
    assert_eq!(network.nodes[0].key(3), Some(key));
}

/// Node 2 connects to the endpoint of node 0 with this key.
fn begin_connect(network: &mut Network, key: u32) {
    let begun = network.nodes[2].connect(network.now, 3, at(0, 3), key, 1);
    assert_eq!(begun, Ok(()));
}

/// The key that a peer presented as its own.
fn peer_key(event: &Event) -> Option<Option<u32>> {
    match event {
        Event::PeerConnected { peer_key, .. } => Some(*peer_key),
        _ => None,
    }
}

/// The messages of the ended program arrive, and are acknowledged.
fn assert_delivered(network: &mut Network) {
    for value in 1..=3 {
        assert_eq!(network.value(1), value);
        let (token, code, taken) = (value, Code::Success, 1);
        assert_eq!(network.event(0), Event::Sent { token, code, taken });
    }
    assert!(network.nodes[0].is_idle(3, at(1, 3)));
}

#[test]
fn mxoe_5_1_a_connect_with_the_next_programs_key_waits_for_that_program() {
    let mut network = ended();
    begin_connect(&mut network, NEXT.0);
    let asked = Event::ConnectRequest {
        endpoint: 3,
        from: at(2, 3),
        session: session(2, 0),
        key: NEXT.0,
        peer_key: Some(KEY),
        program: None,
    };
    network.collect_frames();
    for (_, frame) in std::mem::take(&mut network.in_flight) {
        network.nodes[0].receive(network.now, &frame);
    }
    let events: Vec<_> = std::iter::from_fn(|| network.nodes[0].event()).collect();
    assert!(events.contains(&asked), "{events:?}");
    open_next(&mut network);
    let code = Code::Success;
    assert_eq!(network.event(2), Event::Connected { token: 1, code });
    assert_eq!(network.nodes[2].session(3, at(0, 3)), Some(NEXT.1));
    network.send(2, 0, 9, vec![9]).unwrap();
    assert_eq!(network.value(0), 9);
    assert_delivered(&mut network);
}

#[test]
fn mxoe_5_1_the_next_program_connects_and_is_connected_to_beside_connections_of_the_last() {
    let mut network = ended();
    open_next(&mut network);
    assert_eq!(network.connect(0, 2), Code::Success);
    network.nodes[0]
        .send(network.now, 3, at(2, 3), (5, vec![5]), false, None)
        .unwrap();
    assert_eq!(network.value(2), 5);
    let keys: Vec<_> = network.events[2].iter().filter_map(peer_key).collect();
    assert_eq!(keys, [Some(NEXT.0)]);
    begin_connect(&mut network, KEY);
    let code = Code::BadKey;
    assert_eq!(network.event(2), Event::Connected { token: 1, code });
    begin_connect(&mut network, NEXT.0);
    let code = Code::Success;
    assert_eq!(network.event(2), Event::Connected { token: 1, code });
    assert_delivered(&mut network);
}

/// Longer than each side waits before it probes the other.
fn lose_everything(network: &mut Network) {
    network.impairment.loss = 100;
    network.advance(Duration::from_secs(8));
    network.impairment.loss = 0;
}

/// The last probe that a node sent, which did not arrive.
fn last_probe(network: &Network, from: usize) -> Vec<u8> {
    let probes = network.sent.iter().rev();
    let mut probes = probes.filter(|frame| {
        let frame = Frame::decode(frame).unwrap();
        frame.source == mac(from) && matches!(frame.packet, Packet::Connect(_))
    });
    probes.next().unwrap().clone()
}

/// After some seconds without an answer, each side probes the other.
#[test]
fn mxoe_4_a_connection_of_an_ended_program_survives_probes_in_both_directions() {
    for next_opens in [false, true] {
        let mut network = ended();
        if next_opens {
            open_next(&mut network);
        }
        lose_everything(&mut network);
        for (from, to) in [(0, 1), (1, 0)] {
            let (now, probe) = (network.now, last_probe(&network, from));
            network.nodes[to].receive(now, &probe);
        }
        network.advance(Duration::from_secs(60));
        assert_delivered(&mut network);
        assert_eq!(network.next_event(0), None);
        assert_eq!(network.next_event(1), None);
    }
}

/// Another process has the partner's endpoint. It may take a probe for a connect: not one of the next program.
#[test]
fn mxoe_5_1_a_partner_that_is_another_process_ends_the_connection_of_an_ended_program() {
    let mut network = ended();
    open_next(&mut network);
    network.nodes[1].close(3);
    assert!(network.nodes[1].open(network.now, 3, KEY, session(1, 9)));
    lose_everything(&mut network);
    let (now, probe) = (network.now, last_probe(&network, 0));
    network.nodes[1].receive(now, &probe);
    while let Some(reply) = network.nodes[1].transmit() {
        network.nodes[0].receive(now, &reply);
    }
    assert!(network.nodes[0].is_idle(3, at(1, 3)));
    assert_eq!(network.nodes[0].session(3, at(1, 3)), None);
    network.collect_events();
    let keys: Vec<_> = network.events[1].iter().filter_map(peer_key).collect();
    assert_eq!(keys, [Some(KEY), None]);
}

#[test]
fn mxoe_4_a_program_that_ends_acknowledges_what_it_has_taken() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.send(0, 1, 1, vec![7]).unwrap();
    assert_eq!(network.value(1), 1);
    network.nodes[1].disconnect(network.now, 3, at(0, 3));
    network.nodes[1].close(3);
    let (token, code, taken) = (1, Code::Success, 1);
    assert_eq!(network.event(0), Event::Sent { token, code, taken });
    assert_eq!(network.nodes[0].counters().resent, 0);
}
