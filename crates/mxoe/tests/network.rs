//! Nodes on a network that loses, doubles and reorders frames. There is no clock and no socket:
//! time is what the network says.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_range_loop,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mxoe::wire::{Ends, Frame, Mac, Packet, Small};
use mxoe::{Address, Code, Config, Event, Message, Node, Offer, SendError, Source};
use proptest::prelude::*;

/// What the network does to frames, in percent; and how late they may be.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    loss: u8,
    doubling: u8,
    jitter_us: u16,
}

struct Network {
    nodes: Vec<Node>,
    now: Duration,
    weather: Weather,
    dice: fastrand::Rng,
    /// By the time they arrive, and a number that keeps the order of those of one time.
    flight: BTreeMap<(Duration, u64), Vec<u8>>,
    count: u64,
    /// Every frame that was sent, before the weather.
    sent: Vec<Vec<u8>>,
    /// What nodes said.
    said: Vec<VecDeque<Event>>,
}

fn mac(node: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, node as u8 + 1])
}

fn at(node: usize, endpoint: u8) -> Address {
    Address {
        host: mac(node),
        endpoint,
    }
}

/// Session of an opening; any numbers that differ.
fn session(node: usize, opening: u32) -> u32 {
    opening << 8 | (node as u32 + 1)
}

const KEY: u32 = 77;

impl Network {
    /// Nodes, each with endpoint 3 open.
    fn new(count: usize, patience: u64) -> Self {
        let node = |number| {
            let mut config = Config::new(mac(number), &format!("host{number}"), 9);
            config.patience = Duration::from_secs(patience);
            let mut node = Node::new(config);
            assert!(node.open(Duration::ZERO, 3, KEY, session(number, 0)));
            node
        };
        Self {
            nodes: (0..count).map(node).collect(),
            now: Duration::ZERO,
            weather: Weather::default(),
            dice: fastrand::Rng::with_seed(1),
            flight: BTreeMap::new(),
            count: 0,
            sent: Vec::new(),
            said: (0..count).map(|_| VecDeque::new()).collect(),
        }
    }

    fn launch(&mut self, frame: Vec<u8>) {
        let late = self.dice.u16(0..=self.weather.jitter_us);
        let arrival = self.now + Duration::from_micros(20 + u64::from(late));
        self.count += 1;
        self.flight.insert((arrival, self.count), frame);
    }

    fn collect(&mut self) {
        for number in 0..self.nodes.len() {
            while let Some(frame) = self.nodes[number].transmit() {
                assert_eq!(frame[6..12], mac(number).0, "nobody else's address");
                self.sent.push(frame.clone());
                if self.dice.u8(0..100) < self.weather.loss {
                    continue;
                }
                if self.dice.u8(0..100) < self.weather.doubling {
                    self.launch(frame.clone());
                }
                self.launch(frame);
            }
        }
    }

    /// Go on to whatever happens next; false when that is nothing before `end`.
    fn step(&mut self, end: Duration) -> bool {
        self.collect();
        let arrival = self.flight.keys().next().map(|(time, _)| *time);
        let due = self.nodes.iter().filter_map(Node::deadline).min();
        let Some(next) = arrival
            .into_iter()
            .chain(due)
            .min()
            .filter(|next| *next <= end)
        else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.flight.first_entry().filter(|e| e.key().0 <= self.now) {
            let frame = entry.remove();
            for node in &mut self.nodes {
                node.receive(self.now, &frame);
            }
        }
        for node in &mut self.nodes {
            node.tick(self.now);
        }
        self.collect();
        self.listen();
        true
    }

    /// Hear what all nodes say. Nobody opens what is asked for.
    fn listen(&mut self) {
        for (node, said) in self.nodes.iter_mut().zip(&mut self.said) {
            while let Some(event) = node.event() {
                match event {
                    Event::Asked { endpoint, from, .. } => {
                        node.refuse(self.now, endpoint, from, Some(Code::Closed));
                    }
                    event => said.push_back(event),
                }
            }
        }
    }

    /// What a node said, if it said anything that matters to most tests.
    fn said(&mut self, node: usize) -> Option<Event> {
        self.listen();
        let quiet = |event: &Event| {
            matches!(
                event,
                Event::Host { .. } | Event::Met { .. } | Event::Lost { .. }
            )
        };
        loop {
            match self.said[node].pop_front()? {
                event if quiet(&event) => {}
                event => return Some(event),
            }
        }
    }

    /// What a node has for endpoint 3.
    fn taken(&mut self, node: usize) -> Option<(Address, Message)> {
        (0..9).find_map(|other| {
            let message = self.nodes[node].take(self.now, 3, at(other, 3))?;
            Some((at(other, 3), message))
        })
    }

    /// Go on until there is something.
    fn until<T>(&mut self, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = self.now + Duration::from_secs(10_000);
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            self.listen();
            assert!(self.step(end), "nothing happens any more");
        }
    }

    /// Go on until a node says something.
    fn event(&mut self, node: usize) -> Event {
        self.until(|network| network.said(node))
    }

    /// Go on until a message comes.
    fn message(&mut self, node: usize) -> Message {
        self.until(|network| network.taken(node)).1
    }

    /// Go on until a message comes; its match value.
    fn value(&mut self, node: usize) -> u64 {
        match self.message(node) {
            Message::Whole { value, .. } => value,
            other => panic!("{other:?}"),
        }
    }

    /// Go on until a message is offered.
    fn offered(&mut self, node: usize) -> Offer {
        match self.message(node) {
            Message::Offered { offer, .. } => offer,
            other => panic!("{other:?}"),
        }
    }

    /// Let everything happen that does within a time.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    fn connect(&mut self, from: usize, to: usize) -> Code {
        self.nodes[from]
            .connect(self.now, 3, at(to, 3), KEY, 1)
            .unwrap();
        match self.event(from) {
            Event::Connected { token: 1, code } => code,
            other => panic!("{other:?}"),
        }
    }

    fn send(&mut self, from: usize, to: usize, value: u64, data: Vec<u8>) -> Result<(), SendError> {
        self.nodes[from].send(self.now, 3, at(to, 3), (value, data), false, value)
    }
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let byte = |at: usize| (at as u64).wrapping_mul(31).wrapping_add(seed) as u8;
    (0..length).map(byte).collect()
}

const LENGTHS: [usize; 12] = [
    0, 5, 32, 33, 128, 129, 4096, 4097, 32_768, 32_769, 100_000, 300_000,
];

/// A message of a plan: its length, whether it is synchronous, and how much of it is pulled if it
/// is offered, in quarters.
type Planned = (usize, bool, u32);

fn plan() -> impl Strategy<Value = Vec<Planned>> {
    let length = prop::sample::select(LENGTHS.to_vec());
    prop::collection::vec((length, any::<bool>(), 0..=4u32), 1..40)
}

fn weather() -> impl Strategy<Value = Weather> {
    (0..30u8, 0..30u8, 0..2000u16).prop_map(|(loss, doubling, jitter_us)| Weather {
        loss,
        doubling,
        jitter_us,
    })
}

fn exchange(plans: &[Vec<Planned>; 2], weather: Weather, seed: u64) {
    let mut network = Network::new(2, 500);
    network.weather = weather;
    network.dice = fastrand::Rng::with_seed(seed);
    assert_eq!(network.connect(0, 1), Code::Success);
    // The other side may send as well: it was connected to.
    let mut expected = [0; 2];
    let mut pulls = [Vec::new(), Vec::new()];
    let mut fed: [Vec<(Source, Vec<u8>)>; 2] = [Vec::new(), Vec::new()];
    let mut left = 0;
    for from in 0..2 {
        for (value, (length, synchronous, _)) in (0..).zip(&plans[from]) {
            let data = pattern(*length, value);
            let message = (value, data);
            let to = at(1 - from, 3);
            let now = network.now;
            let node = &mut network.nodes[from];
            // Every other large message is fed while it is sent.
            match length {
                32_769.. if value % 2 == 0 => {
                    let length = *length as u32;
                    node.offer(now, 3, to, (value, length), value).unwrap();
                }
                _ => node.send(now, 3, to, message, *synchronous, value).unwrap(),
            }
            left += 2;
        }
    }
    let end = network.now + Duration::from_secs(3000);
    while left > 0 {
        assert!(network.step(end), "{left} things do not happen");
        for node in 0..2 {
            while let Some((from, message)) = network.taken(node) {
                assert_eq!(from, at(1 - node, 3));
                let (Message::Whole { value, .. } | Message::Offered { value, .. }) = &message;
                assert_eq!(*value, expected[node], "in order, once");
                expected[node] += 1;
                let (planned, synchronous, quarters) = plans[1 - node][*value as usize];
                match message {
                    Message::Whole { value, data } => {
                        assert!(!synchronous);
                        assert_eq!(data, pattern(planned, value));
                        left -= 1;
                    }
                    Message::Offered {
                        value,
                        length,
                        offer,
                    } => {
                        assert_eq!(length as usize, planned);
                        let (now, wanted) = (network.now, length / 4 * quarters);
                        let pull = network.nodes[node].pull(now, 3, offer, wanted, value);
                        pulls[node].push((value, pull.unwrap(), Vec::new(), wanted));
                    }
                }
            }
            for (_, pull, data, _) in &mut pulls[node] {
                while let Some(piece) = network.nodes[node].piece(network.now, 3, *pull) {
                    data.extend(piece);
                }
            }
            while let Some(event) = network.said(node) {
                match event {
                    Event::Pulled { token, code } => {
                        assert_eq!(code, Code::Success);
                        let is = |pull: &(u64, _, _, _)| pull.0 == token;
                        let place = pulls[node].iter().position(is).unwrap();
                        let (_, _, data, wanted) = pulls[node].remove(place);
                        let length = plans[1 - node][token as usize].0;
                        assert_eq!(data, &pattern(length, token)[..wanted as usize]);
                        left -= 1;
                    }
                    Event::Wanted {
                        token,
                        source,
                        total,
                        ..
                    } => {
                        fed[node].push((source, pattern(total as usize, token)));
                    }
                    Event::Sent { token, code, taken } => {
                        assert_eq!(code, Code::Success);
                        let (length, synchronous, quarters) = plans[node][token as usize];
                        let large = synchronous || length > 32_768;
                        let expected = if large {
                            length as u32 / 4 * quarters
                        } else {
                            length as u32
                        };
                        assert_eq!(taken, expected);
                        left -= 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            let now = network.now;
            for (source, data) in &mut fed[node] {
                // Any number of bytes at a time.
                let most = network.dice.usize(0..50_000);
                let space = network.nodes[node].space(3, *source);
                let count = space.len().min(data.len()).min(most);
                space[..count].copy_from_slice(&data[..count]);
                network.nodes[node].fed(now, 3, *source, count);
                data.drain(..count);
            }
        }
    }
    // Nothing comes twice, and everything comes to rest.
    network.weather = Weather::default();
    network.pass(Duration::from_secs(20));
    for node in 0..2 {
        assert_eq!(network.said(node), None);
        assert_eq!(network.taken(node), None);
        // But for the question whether the other is still there.
        assert!(network.nodes[node].deadline() > Some(network.now));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn mxoe_4_everything_arrives_once_in_order_in_any_weather(
        there in plan(), back in plan(), weather in weather(), seed: u64
    ) {
        exchange(&[there, back], weather, seed);
    }
}

#[test]
fn mxoe_4_numbers_go_round() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    for value in 0..20_000 {
        network.send(0, 1, value, vec![1]).unwrap();
    }
    for value in 0..20_000 {
        assert_eq!(network.value(1), value);
    }
}

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
    let nobody = Address {
        host: Mac::BROADCAST,
        endpoint: 3,
    };
    let refused = network.nodes[0].connect(network.now, 3, nobody, KEY, 5);
    assert_eq!(refused, Err(SendError::NoHost));
    let refused = network.nodes[0].connect(network.now, 4, at(1, 3), KEY, 5);
    assert_eq!(refused, Err(SendError::NotOpen));
}

/// Sends one of each kind; returns how each ended.
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
fn mxoe_5_4_what_is_for_an_endpoint_that_closed_or_opened_again_is_refused() {
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
    // And then it works again.
    assert_eq!(network.connect(0, 1), Code::Success);
    network.send(0, 1, 7, vec![7]).unwrap();
    assert_eq!(network.value(1), 7);
}

#[test]
fn mxoe_4_a_peer_that_does_not_answer_is_given_up_and_found_again() {
    let mut network = Network::new(2, 3);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.weather.loss = 100;
    assert_eq!(one_of_each(&mut network), [Code::Unreachable; 3]);
    assert_eq!(network.connect(0, 1), Code::Unreachable);
    network.weather.loss = 0;
    // Of the old connection nothing is left on either side.
    assert_eq!(network.connect(0, 1), Code::Success);
    for (from, to) in [(0, 1), (1, 0)] {
        network.send(from, to, 7, vec![7]).unwrap();
        assert_eq!(network.value(to), 7);
    }
}

#[test]
fn mxoe_5_1_a_peer_that_starts_again_ends_what_was_before() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.weather.loss = 100;
    network.send(0, 1, 8, vec![8]).unwrap();
    network.pass(Duration::from_millis(10));
    network.weather.loss = 0;
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
    // It connected, so both can send.
    for (from, to) in [(0, 1), (1, 0)] {
        network.send(from, to, 7, vec![7]).unwrap();
        assert_eq!(network.value(to), 7);
    }
}

#[test]
fn mxoe_5_4_a_pull_of_what_is_gone_is_refused() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    network.send(0, 1, 7, pattern(50_000, 7)).unwrap();
    let offer = network.offered(1);
    // Pulled twice: the second time it is gone.
    let pull = network.nodes[1].pull(network.now, 3, offer, 10, 1).unwrap();
    let piece = network.until(|network| network.nodes[1].piece(network.now, 3, pull));
    assert_eq!(piece, &pattern(50_000, 7)[..10]);
    let code = Code::Success;
    assert_eq!(network.event(1), Event::Pulled { token: 1, code });
    network.pass(Duration::from_secs(1));
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
    network.pass(Duration::from_secs(3));
    for number in 0..3 {
        let mut found = Vec::new();
        while let Some(Event::Host { host, name }) = network.said[number].pop_front() {
            found.push((host, name));
        }
        found.sort();
        let others = (0..3).filter(|other| *other != number);
        let expected: Vec<_> = others
            .map(|other| (mac(other), format!("host{other}")))
            .collect();
        assert_eq!(found, expected);
    }
    // Eight announcements a second apart, then hardly any.
    network.pass(Duration::from_secs(30));
    let before = network.sent.len();
    network.pass(Duration::from_secs(100));
    assert!(network.sent.len() - before <= 3);
    // A new node under an old address says another name.
    let mut again = Node::new(Config::new(mac(1), "again", 10));
    again.announce(network.now);
    network.nodes[1] = again;
    network.pass(Duration::from_secs(3));
    let event = network.said[0].pop_front();
    let name = "again".to_owned();
    assert_eq!(event, Some(Event::Host { host: mac(1), name }));
}

#[test]
fn mxoe_1_1_frames_of_others_are_not_taken() {
    let mut network = Network::new(3, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    assert_eq!(network.connect(2, 1), Code::Success);
    network.send(0, 1, 7, vec![7]).unwrap();
    network.collect();
    let frame = network.sent.last().unwrap().clone();
    network.pass(Duration::from_secs(1));
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
        assert_eq!(network.taken(1), None, "{forgery:?}");
        assert_eq!(network.said(1), None, "{forgery:?}");
    }
    network.nodes[1].receive(network.now, &forge(0, decoded.index, head.session).encode());
    assert!(network.taken(1).is_some());
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
            word: 1,
            start: 1,
            number,
            status: None,
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
    network.collect();
    assert_eq!(network.sent.len(), 100);
}

#[test]
fn mxoe_4_what_is_not_taken_holds_its_sender_back_and_no_longer() {
    let mut network = Network::new(2, 5);
    assert_eq!(network.connect(0, 1), Code::Success);
    for value in 0..300 {
        network.send(0, 1, value, pattern(30_000, value)).unwrap();
    }
    // Longer than a silent peer is waited for: this one only does not take.
    network.pass(Duration::from_secs(15));
    assert_eq!(network.said(0), None, "nothing is acknowledged");
    assert!(!network.nodes[0].has_room(3, at(1, 3)));
    for value in 0..300 {
        let data = pattern(30_000, value);
        assert_eq!(network.message(1), Message::Whole { value, data });
    }
    assert_eq!(network.taken(1), None);
}

#[test]
fn mxoe_5_3_a_send_ends_although_messages_before_the_notification_are_not_taken() {
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
        data.extend(network.until(|network| network.nodes[1].piece(network.now, 3, pull)));
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
fn mxoe_5_3_a_peer_that_is_gone_is_missed() {
    type End = fn(&mut Network);
    let ends: [(End, Code); 4] = [
        (|network| network.nodes[1].close(3), Code::Closed),
        (
            |network| network.nodes[1].forget(3, at(0, 3)),
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
        (|network| network.weather.loss = 100, Code::Unreachable),
    ];
    for (end, code) in ends {
        let mut network = Network::new(2, 30);
        assert_eq!(network.connect(0, 1), Code::Success);
        network.send(0, 1, 9, pattern(100_000, 9)).unwrap();
        network.offered(1);
        // It may take as long as it likes.
        network.pass(Duration::from_secs(600));
        assert_eq!(network.said(0), None);
        end(&mut network);
        let (token, taken) = (9, 0);
        assert_eq!(network.event(0), Event::Sent { token, code, taken });
    }
    // Nor need it owe anything: somebody may wait for what it would send.
    for (end, code) in ends {
        let mut network = Network::new(2, 31);
        assert_eq!(network.connect(0, 1), Code::Success);
        network.pass(Duration::from_secs(600));
        assert_eq!(network.said(0), None);
        end(&mut network);
        let (endpoint, from) = (3, at(1, 3));
        let lost = Event::Lost {
            endpoint,
            from,
            code,
        };
        let next = |network: &mut Network| network.said[0].pop_front();
        while network.until(next) != lost {}
    }
}

#[test]
fn mxoe_5_1_who_connects_to_an_endpoint_that_is_not_open_waits_for_it() {
    let mut network = Network::new(2, 500);
    let to = at(1, 8);
    network.nodes[0]
        .connect(network.now, 3, to, KEY, 1)
        .unwrap();
    network.collect();
    for (_, frame) in std::mem::take(&mut network.flight) {
        network.nodes[1].receive(network.now, &frame);
    }
    let asked = std::iter::from_fn(|| network.nodes[1].event());
    let asked: Vec<_> = asked
        .filter(|event| matches!(event, Event::Asked { .. }))
        .collect();
    let expected = Event::Asked {
        endpoint: 8,
        from: at(0, 3),
        session: session(0, 0),
        key: KEY,
    };
    assert_eq!(asked, [expected], "once");
    assert!(network.nodes[1].open(network.now, 8, KEY, session(1, 8)));
    let code = Code::Success;
    assert_eq!(network.event(0), Event::Connected { token: 1, code });
    assert_eq!(network.nodes[0].session(3, to), Some(session(1, 8)));
}
