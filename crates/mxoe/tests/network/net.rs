//! The network of the tests: it has the time, and does to frames what it is told.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mxoe::wire::Mac;
use mxoe::{Address, Code, Config, Event, Message, Node, Offer, SendError};

/// What the network does to frames, in percent; and how late they may be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) loss: u8,
    pub(crate) doubling: u8,
    pub(crate) jitter_us: u16,
}

pub(crate) struct Network {
    pub(crate) nodes: Vec<Node>,
    pub(crate) now: Duration,
    pub(crate) weather: Weather,
    pub(crate) dice: fastrand::Rng,
    /// By the time they arrive, and a number that keeps the order of those of one time.
    pub(crate) flight: BTreeMap<(Duration, u64), Vec<u8>>,
    pub(crate) count: u64,
    /// Every frame that was sent, before the weather.
    pub(crate) sent: Vec<Vec<u8>>,
    /// A node of whose frames a third are changed a little, or sent again and again.
    pub(crate) hostile: Option<usize>,
    /// How many were.
    pub(crate) changed: u64,
    /// What nodes said.
    pub(crate) said: Vec<VecDeque<Event>>,
}

pub(crate) fn mac(node: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, node as u8 + 1])
}

pub(crate) fn at(node: usize, endpoint: u8) -> Address {
    Address {
        host: mac(node),
        endpoint,
    }
}

/// Session of an opening; any numbers that differ.
pub(crate) fn session(node: usize, opening: u32) -> u32 {
    opening << 8 | (node as u32 + 1)
}

pub(crate) const KEY: u32 = 77;

impl Network {
    /// Nodes, each with endpoint 3 open.
    pub(crate) fn new(count: usize, patience: u64) -> Self {
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
            hostile: None,
            changed: 0,
            said: (0..count).map(|_| VecDeque::new()).collect(),
        }
    }

    pub(crate) fn launch(&mut self, frame: Vec<u8>) {
        let late = self.dice.u16(0..=self.weather.jitter_us);
        let arrival = self.now + Duration::from_micros(20 + u64::from(late));
        self.count += 1;
        self.flight.insert((arrival, self.count), frame);
    }

    pub(crate) fn collect(&mut self) {
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
                match self.hostile == Some(number) && self.dice.u8(0..3) == 0 {
                    true => self.change(&frame),
                    false => self.launch(frame),
                }
            }
        }
    }

    /// Launch a frame with a few of its words changed, behind its MAC header, and some more like it.
    fn change(&mut self, frame: &[u8]) {
        let count = if self.dice.u8(0..20) == 0 { 200 } else { 1 };
        for _ in 0..count {
            let mut frame = frame.to_owned();
            for _ in 0..self.dice.u8(0..4) {
                // Most of the sense of a packet is in its first words.
                let end = if self.dice.bool() {
                    frame.len()
                } else {
                    frame.len().min(64)
                };
                let place = self.dice.usize(14..end);
                frame[place] = match self.dice.u8(0..4) {
                    0 => 0,
                    1 => 0xff,
                    _ => self.dice.u8(..),
                };
            }
            self.changed += 1;
            self.launch(frame);
        }
    }

    /// Go on to whatever happens next; false when that is nothing before `end`.
    pub(crate) fn step(&mut self, end: Duration) -> bool {
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
    pub(crate) fn listen(&mut self) {
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
    pub(crate) fn said(&mut self, node: usize) -> Option<Event> {
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
    pub(crate) fn taken(&mut self, node: usize) -> Option<(Address, Message)> {
        (0..9).find_map(|other| {
            let message = self.nodes[node].take(self.now, 3, at(other, 3))?;
            Some((at(other, 3), message))
        })
    }

    /// Go on until there is something.
    pub(crate) fn until<T>(&mut self, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
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
    pub(crate) fn event(&mut self, node: usize) -> Event {
        self.until(|network| network.said(node))
    }

    /// Go on until a message comes.
    pub(crate) fn message(&mut self, node: usize) -> Message {
        self.until(|network| network.taken(node)).1
    }

    /// Go on until a message comes; its match value.
    pub(crate) fn value(&mut self, node: usize) -> u64 {
        match self.message(node) {
            Message::Whole { value, .. } => value,
            other => panic!("{other:?}"),
        }
    }

    /// Go on until a message is offered.
    pub(crate) fn offered(&mut self, node: usize) -> Offer {
        match self.message(node) {
            Message::Offered { offer, .. } => offer,
            other => panic!("{other:?}"),
        }
    }

    /// Let everything happen that does within a time.
    pub(crate) fn pass(&mut self, time: Duration) {
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

pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let byte = |at: usize| (at as u64).wrapping_mul(31).wrapping_add(seed) as u8;
    (0..length).map(byte).collect()
}
