//! Another process that opens a partner's endpoint: it takes over neither the connection nor, by a probe, the partner.

use std::collections::VecDeque;
use std::time::Duration;

use mxoe::{Code, Config, Event, Node};

use super::net::{KEY, Network, at, mac, session};

#[test]
fn mxoe_5_1_a_restarted_peer_ends_the_old_connection() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.impairment.loss = 100;
    network.send(0, 1, 8, vec![8]).unwrap();
    network.advance(Duration::from_millis(10));
    network.impairment.loss = 0;
    network.nodes[1].close(3);
    network.nodes[1].open(network.now, 3, KEY, session(1, 5));
    assert_eq!(network.connect(1, 0), Code::Success);
    let code = Code::BadSession;
    assert_eq!(
        network.event(0),
        Event::Sent {
            token: 8,
            code,
            taken: 0
        }
    );
    // The connection allows both sides to send.
    for (from, to) in [(0, 1), (1, 0)] {
        network.send(from, to, 7, vec![7]).unwrap();
        assert_eq!(network.value(to), 7);
    }
}

/// Replaces the process at node 1 by another one, without a word to node 0, and waits until node 0 has probed.
/// Returns the events of both.
fn replace_process(network: &mut Network) -> [Vec<Event>; 2] {
    network.advance(Duration::from_millis(100));
    network.events.iter_mut().for_each(VecDeque::clear);
    let mut node = Node::new(Config::new(mac(1), "host1", 10));
    assert!(node.open(network.now, 3, KEY, session(1, 5)));
    network.nodes[1] = node;
    // Longer than the interval of probes.
    network.advance(Duration::from_secs(10));
    [0, 1].map(|node| {
        let events = std::mem::take(&mut network.events[node]).into_iter();
        let of_hosts = |event: &Event| matches!(event, Event::Host { .. });
        events.filter(|event| !of_hosts(event)).collect()
    })
}

fn exchange(network: &mut Network, value: u64) {
    for (from, to) in [(0, 1), (1, 0)] {
        network.send(from, to, value, vec![7]).unwrap();
        assert_eq!(network.value(to), value);
    }
}

#[test]
fn mxoe_5_1_a_probe_that_reaches_another_process_is_refused() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    exchange(&mut network, 7);
    let ended = Event::Disconnected {
        endpoint: 3,
        from: at(1, 3),
        code: Code::BadSession,
    };
    assert_eq!(replace_process(&mut network), [vec![ended], vec![]]);
    assert_eq!(network.connect(1, 0), Code::Success);
    exchange(&mut network, 8);
}

/// The probe of a host that has received nothing looks like a first connect.
#[test]
fn mxoe_5_1_a_probe_that_another_process_takes_for_a_connect_connects() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.send(0, 1, 7, vec![7]).unwrap();
    assert_eq!(network.value(1), 7);
    let (endpoint, code) = (3, Code::BadSession);
    // The answer to a probe does not have the key of the process that gives it.
    let connected = |from, peer_key| Event::PeerConnected {
        endpoint,
        from,
        peer_key,
    };
    let ended = Event::Disconnected {
        endpoint,
        from: at(1, 3),
        code,
    };
    let [one, other] = [connected(at(1, 3), None), connected(at(0, 3), Some(KEY))];
    assert_eq!(
        replace_process(&mut network),
        [vec![ended, one], vec![other]]
    );
    assert_eq!(network.nodes[0].session(3, at(1, 3)), Some(session(1, 5)));
    exchange(&mut network, 8);
    // A connect of the new process finds the connection.
    assert_eq!(network.connect(1, 0), Code::Success);
    exchange(&mut network, 9);
    let ended = |event: &Event| matches!(event, Event::Disconnected { .. });
    assert!(!network.events.iter().flatten().any(ended));
}
