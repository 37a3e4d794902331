//! Two nodes with one address, each with endpoints of its own, and a node of another host.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::time::Duration;

use mxoe::wire::{Destination, Frame, Mac, Packet, destination};
use mxoe::{Address, Code, Config, Event, Message, Node};

const HERE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THERE: Mac = Mac([2, 0, 0, 0, 0, 2]);
const KEY: u32 = 7;

/// The endpoints of the two nodes here, and that of the other host.
const OWN: [u8; 2] = [1, 2];
const OTHER: u8 = 3;

struct Network {
    now: Duration,
    here: [Node; 2],
    there: Node,
    /// Frames that arrived here.
    arrived: Vec<Vec<u8>>,
    /// Replies to queries, and nacks, that each node here has sent.
    answers: [u32; 2],
}

impl Network {
    fn new() -> Self {
        let here = [1, 2].map(|session| {
            let mut config = Config::new(HERE, "here", 5);
            config.shared = true;
            let mut node = Node::new(config);
            assert!(node.open(Duration::ZERO, OWN[session as usize - 1], KEY, session));
            node
        });
        let mut there = Node::new(Config::new(THERE, "there", 9));
        assert!(there.open(Duration::ZERO, OTHER, KEY, 3));
        Self {
            now: Duration::ZERO,
            here,
            there,
            arrived: Vec::new(),
            answers: [0; 2],
        }
    }

    /// Passes frames until there are none, as the filters of two ports do; the node in `answering` also has those for endpoints that
    /// no node has.
    fn pass(&mut self, answering: usize) {
        self.now += Duration::from_millis(20);
        for _ in 0..20 {
            self.there.tick(self.now);
            while let Some(frame) = self.there.transmit() {
                for (place, node) in self.here.iter_mut().enumerate() {
                    let accepted = match destination(&frame).unwrap() {
                        Destination::Host => true,
                        Destination::Endpoint(to) => {
                            to == OWN[place] || place == answering && !OWN.contains(&to)
                        }
                    };
                    if accepted {
                        node.receive(self.now, &frame);
                    }
                }
                self.arrived.push(frame);
            }
            for (place, node) in self.here.iter_mut().enumerate() {
                node.tick(self.now);
                while let Some(frame) = node.transmit() {
                    let answer = matches!(
                        Frame::decode(&frame).unwrap().packet,
                        Packet::HostReply { .. } | Packet::Nack { .. }
                    );
                    self.answers[place] += u32::from(answer);
                    self.there.receive(self.now, &frame);
                }
            }
        }
    }
}

fn address(host: Mac, endpoint: u8) -> Address {
    Address { host, endpoint }
}

fn events(node: &mut Node) -> Vec<Event> {
    std::iter::from_fn(|| node.event()).collect()
}

/// Connects an endpoint here with the one there.
fn connect(network: &mut Network, place: usize) {
    let (now, peer) = (network.now, address(THERE, OTHER));
    let here = &mut network.here[place];
    here.connect(now, OWN[place], peer, KEY, 1).unwrap();
    network.pass(0);
    let connected = Event::Connected {
        token: 1,
        code: Code::Success,
    };
    assert!(events(&mut network.here[place]).contains(&connected));
}

/// Sends a message in each direction between an endpoint here and the one there.
fn exchange(network: &mut Network, place: usize) {
    let (own, peer) = (address(HERE, OWN[place]), address(THERE, OTHER));
    let (value, data) = (4, vec![OWN[place]; 20_000]);
    let now = network.now;
    let message = (value, data.clone());
    let here = &mut network.here[place];
    here.send(now, own.endpoint, peer, message, true, 2)
        .unwrap();
    network
        .there
        .send(now, OTHER, own, (value, data.clone()), false, 2)
        .unwrap();
    network.pass(0);
    let now = network.now;
    let got = network.here[place].next_message(now, own.endpoint, peer);
    assert_eq!(got, Some(Message::Whole { value, data }));
    let offered = network.there.next_message(now, OTHER, own);
    let Some(Message::Offered { offer, length, .. }) = offered else {
        panic!("{offered:?}");
    };
    let pull = network.there.pull(now, OTHER, offer, length, 3).unwrap();
    let mut bytes = Vec::new();
    for _ in 0..10 {
        network.pass(0);
        let now = network.now;
        while let Some(piece) = network.there.next_piece(now, OTHER, pull) {
            bytes.extend(piece);
        }
    }
    assert_eq!(bytes, vec![OWN[place]; 20_000]);
}

/// The tables of the two nodes differ, so the other host puts the index of one into frames for the other.
#[test]
fn both_nodes_exchange_messages_with_another_host() {
    let mut network = Network::new();
    for number in 0..3 {
        let host = Mac([2, 5, 5, 5, 5, number]);
        network.here[1].add_host(Duration::ZERO, host);
        while network.here[1].transmit().is_some() {}
    }
    network.here[0].announce(Duration::ZERO);
    network.pass(0);
    for place in [0, 1] {
        connect(&mut network, place);
    }
    for place in [0, 1, 0, 1] {
        exchange(&mut network, place);
    }
    // Both know the other host by name, and only one has answered.
    assert!(network.here.iter().all(|node| node.has_host(THERE)));
    assert!(network.answers[0] > 0);
    assert_eq!(network.answers[1], 0);
}

#[test]
fn another_node_takes_the_answers_over_and_the_other_host_sees_no_restart() {
    let mut network = Network::new();
    network.here[0].announce(Duration::ZERO);
    network.pass(0);
    connect(&mut network, 1);
    exchange(&mut network, 1);
    let queries = |network: &Network| {
        let frames = network.arrived.iter();
        let packets = frames.map(|frame| Frame::decode(frame).unwrap().packet);
        packets
            .filter(|packet| matches!(packet, Packet::HostQuery { .. }))
            .count()
    };
    let before = queries(&network);
    let gone = Node::new(Config::new(Mac([2, 7, 7, 7, 7, 7]), "gone", 1));
    network.here[0] = gone;
    let now = network.now;
    network.here[1].announce(now);
    network.pass(1);
    assert_eq!(queries(&network), before, "the serial number is the same");
    // A new host finds the host of the two nodes, and the node that is left refuses a connect to an endpoint that no node has.
    let mut new = Node::new(Config::new(THERE, "new", 10));
    new.announce(network.now);
    new.open(network.now, OTHER, KEY, 4);
    network.there = new;
    network.pass(1);
    let named = Event::Host {
        host: HERE,
        name: "here".to_owned(),
    };
    assert!(events(&mut network.there).contains(&named));
    let to = address(HERE, 9);
    network
        .there
        .connect(network.now, OTHER, to, KEY, 1)
        .unwrap();
    network.pass(1);
    let asked = events(&mut network.here[1]);
    let asked = asked
        .iter()
        .find(|event| matches!(event, Event::ConnectRequest { endpoint: 9, .. }));
    assert!(asked.is_some());
    let from = address(THERE, OTHER);
    network.here[1].refuse(network.now, 9, from, Some(Code::Closed));
    network.pass(1);
    let refused = Event::Connected {
        token: 1,
        code: Code::Closed,
    };
    assert!(events(&mut network.there).contains(&refused));
}
