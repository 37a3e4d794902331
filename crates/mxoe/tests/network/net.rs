//! The simulated network: it has the clock, and impairs frames as a test requests.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use mxoe::{Address, Code, Config, Event, Message, Node, Offer, SendError};

pub(crate) use super::frames::{KEY, at, frame, mac, pattern, session};

/// Percentages of lost and of duplicated frames, and the longest extra delay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Impairment {
    pub(crate) loss: u8,
    pub(crate) duplication: u8,
    pub(crate) jitter_us: u16,
    /// Bytes of the longest frame that arrives, if there is a limit.
    pub(crate) longest: Option<usize>,
    /// Datagrams are lost, as by a firewall.
    pub(crate) no_datagrams: bool,
}

pub(crate) struct Network {
    pub(crate) nodes: Vec<Node>,
    pub(crate) now: Duration,
    pub(crate) impairment: Impairment,
    pub(crate) rng: fastrand::Rng,
    /// Frames in flight, by time of arrival, and by order of sending within the same time.
    pub(crate) in_flight: BTreeMap<(Duration, u64), Vec<u8>>,
    pub(crate) deliveries: u64,
    /// Every frame that a node sent, before impairment.
    pub(crate) sent: Vec<Vec<u8>>,
    /// A node whose frames are corrupted or repeated: a third of them.
    pub(crate) hostile: Option<usize>,
    /// Number of corrupted frames.
    pub(crate) corrupted: u64,
    /// Every datagram that a node sent, before impairment, with its destination.
    pub(crate) datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// Events of each node.
    pub(crate) events: Vec<VecDeque<Event>>,
}

/// Returns where a node takes datagrams, if it does.
pub(crate) fn udp(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8 + 1], 4000))
}

impl Network {
    /// Makes nodes that have endpoint 3 open.
    pub(crate) fn new(count: usize, peer_timeout: u64) -> Self {
        Self::with_udp(count, peer_timeout, |_| None)
    }

    /// The same with nodes that take datagrams at an address.
    pub(crate) fn with_udp(
        count: usize,
        peer_timeout: u64,
        udp: impl Fn(usize) -> Option<SocketAddr>,
    ) -> Self {
        let node = |number| {
            let mut config = Config::new(mac(number), &format!("host{number}"), 9);
            config.peer_timeout = Duration::from_secs(peer_timeout);
            config.udp = udp(number);
            let mut node = Node::new(config);
            assert!(node.open(Duration::ZERO, 3, KEY, session(number, 0)));
            node
        };
        Self {
            nodes: (0..count).map(node).collect(),
            now: Duration::ZERO,
            impairment: Impairment::default(),
            rng: fastrand::Rng::with_seed(1),
            in_flight: BTreeMap::new(),
            deliveries: 0,
            sent: Vec::new(),
            hostile: None,
            corrupted: 0,
            datagrams: Vec::new(),
            events: (0..count).map(|_| VecDeque::new()).collect(),
        }
    }

    pub(crate) fn deliver(&mut self, frame: Vec<u8>) {
        let late = self.rng.u16(0..=self.impairment.jitter_us);
        let arrival = self.now + Duration::from_micros(20 + u64::from(late));
        self.deliveries += 1;
        self.in_flight.insert((arrival, self.deliveries), frame);
    }

    pub(crate) fn collect_frames(&mut self) {
        for number in 0..self.nodes.len() {
            while let Some(frame) = self.nodes[number].transmit() {
                assert_eq!(frame[6..12], mac(number).0, "the source is the node");
                self.sent.push(frame.clone());
                let too_long = self
                    .impairment
                    .longest
                    .is_some_and(|most| frame.len() > most);
                if too_long || self.rng.u8(0..100) < self.impairment.loss {
                    continue;
                }
                if self.rng.u8(0..100) < self.impairment.duplication {
                    self.deliver(frame.clone());
                }
                match self.hostile == Some(number) && self.rng.u8(0..3) == 0 {
                    true => self.corrupt(&frame),
                    false => self.deliver(frame),
                }
            }
            self.collect_datagrams(number);
        }
    }

    /// Delivers the datagrams of a node to the node with their destination. Their order is that of the frames.
    fn collect_datagrams(&mut self, number: usize) {
        loop {
            self.nodes[number].drop_old_datagrams();
            let next = self.nodes[number].datagrams().next();
            let Some((to, frame)) = next.map(|(to, parts)| (to, parts.concat())) else {
                return;
            };
            self.nodes[number].datagrams_sent(1);
            assert_eq!(frame[6..12], mac(number).0, "the source is the node");
            self.datagrams.push((to, frame.clone()));
            let lost = self.rng.u8(0..100) < self.impairment.loss;
            if lost || self.impairment.no_datagrams {
                continue;
            }
            let frame = match self.hostile == Some(number) && self.rng.u8(0..3) == 0 {
                true => self.corrupted(&frame),
                false => frame,
            };
            let from = udp(number);
            for node in (0..self.nodes.len()).filter(|node| udp(*node) == to) {
                self.nodes[node].receive_datagram(self.now, from, &frame);
            }
        }
    }

    /// Sends corrupted copies of a frame.
    fn corrupt(&mut self, frame: &[u8]) {
        let count = if self.rng.u8(0..20) == 0 { 200 } else { 1 };
        for _ in 0..count {
            let corrupted = self.corrupted(frame);
            self.deliver(corrupted);
        }
    }

    /// Returns a copy of a frame of which a few bytes behind its MAC header differ.
    fn corrupted(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_owned();
        for _ in 0..self.rng.u8(0..4) {
            // Most fields of a packet are in its first 64 bytes.
            let end = if self.rng.bool() {
                frame.len()
            } else {
                frame.len().min(64)
            };
            let place = self.rng.usize(14..end);
            frame[place] = match self.rng.u8(0..4) {
                0 => 0,
                1 => 0xff,
                _ => self.rng.u8(..),
            };
        }
        self.corrupted += 1;
        frame
    }

    /// Advances to the next arrival or deadline. Returns false if there is none before `end`.
    pub(crate) fn step(&mut self, end: Duration) -> bool {
        self.collect_frames();
        let arrival = self.in_flight.keys().next().map(|(time, _)| *time);
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
        while let Some(entry) = self
            .in_flight
            .first_entry()
            .filter(|e| e.key().0 <= self.now)
        {
            let frame = entry.remove();
            for node in &mut self.nodes {
                node.receive(self.now, &frame);
            }
        }
        for node in &mut self.nodes {
            node.tick(self.now);
        }
        self.collect_frames();
        self.collect_events();
        true
    }

    /// Collects the events of all nodes. Refuses all connects to endpoints that are not open, but for introductions.
    pub(crate) fn collect_events(&mut self) {
        for (node, events) in self.nodes.iter_mut().zip(&mut self.events) {
            while let Some(event) = node.event() {
                match event {
                    Event::ConnectRequest {
                        endpoint,
                        from,
                        program: None,
                        ..
                    } => {
                        node.refuse(self.now, endpoint, from, Some(Code::Closed));
                    }
                    event => events.push_back(event),
                }
            }
        }
    }

    /// Returns the next event of a node, without those that most tests do not check.
    pub(crate) fn next_event(&mut self, node: usize) -> Option<Event> {
        self.collect_events();
        let ignored = |event: &Event| {
            matches!(
                event,
                Event::Host { .. } | Event::PeerConnected { .. } | Event::Disconnected { .. }
            )
        };
        loop {
            match self.events[node].pop_front()? {
                event if ignored(&event) => {}
                event => return Some(event),
            }
        }
    }

    /// Takes the next message for endpoint 3 of a node.
    pub(crate) fn take_message(&mut self, node: usize) -> Option<(Address, Message)> {
        (0..9).find_map(|other| {
            let message = self.nodes[node].next_message(self.now, 3, at(other, 3))?;
            Some((at(other, 3), message))
        })
    }

    /// Advances until `look` returns a value.
    pub(crate) fn until<T>(&mut self, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = self.now + Duration::from_secs(10_000);
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            self.collect_events();
            assert!(self.step(end), "no event follows");
        }
    }

    /// Advances until a node has an event.
    pub(crate) fn event(&mut self, node: usize) -> Event {
        self.until(|network| network.next_event(node))
    }

    /// Advances until a message arrives.
    pub(crate) fn message(&mut self, node: usize) -> Message {
        self.until(|network| network.take_message(node)).1
    }

    /// Advances until a message arrives, and returns its match value.
    pub(crate) fn value(&mut self, node: usize) -> u64 {
        match self.message(node) {
            Message::Whole { value, .. } => value,
            other => panic!("{other:?}"),
        }
    }

    /// Advances until a message is offered.
    pub(crate) fn offered(&mut self, node: usize) -> Offer {
        match self.message(node) {
            Message::Offered { offer, .. } => offer,
            other => panic!("{other:?}"),
        }
    }

    /// Advances by this time.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    pub(crate) fn connect(&mut self, from: usize, to: usize) -> Code {
        self.nodes[from]
            .connect(self.now, 3, at(to, 3), KEY, 1)
            .unwrap();
        match self.event(from) {
            Event::Connected { token: 1, code } => code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn send(
        &mut self,
        from: usize,
        to: usize,
        value: u64,
        data: Vec<u8>,
    ) -> Result<(), SendError> {
        self.nodes[from].send(self.now, 3, at(to, 3), (value, data), false, value)
    }
}
