//! Programs whose nodes send all frames in datagrams, on a simulated network that loses, duplicates and reorders these as a test requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use mxoe::wire::{Frame, Packet};
use mxoe::{Address, Code, Config, Event, Message, Node, Offer};

use super::frames::{KEY, at, session};

pub(crate) struct Program {
    pub(crate) node: Node,
    pub(crate) address: Address,
    pub(crate) udp: SocketAddr,
    pub(crate) events: Vec<Event>,
}

/// A datagram with its sender and its destination.
type Datagram = (SocketAddr, SocketAddr, Vec<u8>);

pub(crate) struct Programs {
    pub(crate) all: Vec<Program>,
    pub(crate) now: Duration,
    pub(crate) rng: fastrand::Rng,
    /// Percentages of lost and of duplicated datagrams, and the longest extra delay.
    pub(crate) loss: u8,
    pub(crate) duplication: u8,
    pub(crate) jitter_us: u16,
    /// Whether a packet of a program is lost.
    pub(crate) loses: fn(usize, &Packet<'_>) -> bool,
    /// A program whose datagrams are corrupted: a third of them.
    pub(crate) hostile: Option<usize>,
    pub(crate) corrupted: u64,
    in_flight: BTreeMap<(Duration, u64), Datagram>,
    deliveries: u64,
    /// Every datagram that a program sent, before impairment.
    pub(crate) sent: Vec<(usize, Vec<u8>)>,
    /// Those that arrived.
    pub(crate) arrived: Vec<(usize, Vec<u8>)>,
}

pub(crate) fn none_is_lost(_: usize, _: &Packet<'_>) -> bool {
    false
}

pub(crate) fn udp(program: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 7], 6000 + program as u16))
}

/// Three programs, of which the last two are on one host.
pub(crate) const PLACES: [(usize, u8); 3] = [(0, 3), (1, 3), (1, 4)];

impl Programs {
    /// Makes programs that know each other.
    pub(crate) fn new(count: usize, configure: impl Fn(usize, &mut Config)) -> Self {
        let program = |number: usize| {
            let (host, endpoint) = PLACES[number];
            let address = at(host, endpoint);
            let mut config = Config::new(address.host, "program", 9);
            config.peer_timeout = Duration::from_secs(20);
            config.only_datagrams = true;
            config.udp = Some(udp(number));
            configure(number, &mut config);
            let mut node = Node::new(config);
            let now = Duration::ZERO;
            // Those of the first program are told before its endpoint is open.
            if number != 0 {
                assert!(node.open(now, endpoint, KEY, session(number, 0)));
            }
            // The two programs of one host have different indices for the other host.
            if number == 1 {
                assert!(node.add_partner(now, endpoint, at(8, 3), udp(8)));
            }
            for (other, (host, partner)) in PLACES.into_iter().enumerate().take(count) {
                if other != number {
                    assert!(node.add_partner(now, endpoint, at(host, partner), udp(other)));
                }
            }
            if number == 0 {
                assert!(node.open(now, endpoint, KEY, session(number, 0)));
            }
            // There is nobody to announce the host to.
            node.announce(now);
            Program {
                node,
                address,
                udp: udp(number),
                events: Vec::new(),
            }
        };
        Self {
            all: (0..count).map(program).collect(),
            now: Duration::ZERO,
            rng: fastrand::Rng::with_seed(1),
            loss: 0,
            duplication: 0,
            jitter_us: 0,
            loses: none_is_lost,
            hostile: None,
            corrupted: 0,
            in_flight: BTreeMap::new(),
            deliveries: 0,
            sent: Vec::new(),
            arrived: Vec::new(),
        }
    }

    pub(crate) fn address(&self, program: usize) -> Address {
        self.all[program].address
    }

    pub(crate) fn disconnect(&mut self, program: usize, endpoint: u8, peer: Address) {
        let now = self.now;
        self.node(program).disconnect(now, endpoint, peer);
    }

    pub(crate) fn node(&mut self, program: usize) -> &mut Node {
        &mut self.all[program].node
    }

    fn deliver(&mut self, datagram: Datagram) {
        let late = self.rng.u16(0..=self.jitter_us);
        let arrival = self.now + Duration::from_micros(20 + u64::from(late));
        self.deliveries += 1;
        self.in_flight.insert((arrival, self.deliveries), datagram);
    }

    /// Collects what the programs send, and their events.
    pub(crate) fn collect(&mut self) {
        for number in 0..self.all.len() {
            while let Some(event) = self.all[number].node.event() {
                self.all[number].events.push(event);
            }
            assert_eq!(self.all[number].node.transmit(), None, "no frames");
            loop {
                let program = &mut self.all[number];
                program.node.drop_old_datagrams();
                let next = program.node.datagrams().next();
                let Some((to, frame)) = next.map(|(to, parts)| (to, parts.concat())) else {
                    break;
                };
                program.node.datagrams_sent(1);
                let (from, host) = (program.udp, program.address.host);
                let decoded = Frame::decode(&frame).unwrap();
                assert_eq!(decoded.source, host);
                self.sent.push((number, frame.clone()));
                let is_lost = (self.loses)(number, &decoded.packet);
                if is_lost || self.rng.u8(0..100) < self.loss {
                    continue;
                }
                if self.rng.u8(0..100) < self.duplication {
                    self.deliver((from, to, frame.clone()));
                }
                match self.hostile == Some(number) && self.rng.u8(0..3) == 0 {
                    true => self.corrupt((from, to, frame)),
                    false => self.deliver((from, to, frame)),
                }
            }
        }
    }

    /// Sends a datagram of which a few bytes behind the MAC addresses differ. Most fields of a packet are in its first 64 bytes.
    fn corrupt(&mut self, (from, to, mut frame): Datagram) {
        for _ in 0..self.rng.u8(0..4) {
            let place = self.rng.usize(14..frame.len().min(64));
            frame[place] = match self.rng.u8(0..4) {
                0 => 0,
                1 => 0xff,
                _ => self.rng.u8(..),
            };
        }
        self.corrupted += 1;
        self.deliver((from, to, frame));
    }

    /// Advances to the next arrival or deadline. Returns false if there is none before `end`.
    pub(crate) fn step(&mut self, end: Duration) -> bool {
        self.collect();
        let arrival = self.in_flight.keys().next().map(|(time, _)| *time);
        let due = self.all.iter().filter_map(|one| one.node.deadline()).min();
        let next = arrival.into_iter().chain(due).min();
        let Some(next) = next.filter(|next| *next <= end) else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(first) = self.in_flight.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            let (from, to, frame) = first.remove();
            let receivers = self.all.iter_mut().enumerate();
            for (number, program) in receivers.filter(|(_, program)| program.udp == to) {
                program.node.receive_datagram(self.now, from, &frame);
                self.arrived.push((number, frame.clone()));
            }
        }
        for program in &mut self.all {
            program.node.tick(self.now);
        }
        self.collect();
        true
    }

    /// Advances until `look` returns a value.
    pub(crate) fn until<T>(&mut self, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = self.now + Duration::from_secs(1000);
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(self.step(end), "nothing follows");
        }
    }

    /// Advances by this time.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    /// Takes the events of a program.
    pub(crate) fn events(&mut self, program: usize) -> Vec<Event> {
        self.collect();
        std::mem::take(&mut self.all[program].events)
    }

    pub(crate) fn start_connect(&mut self, from: usize, to: usize) {
        let (now, own, to) = (self.now, self.address(from), self.address(to));
        let node = self.node(from);
        node.connect(now, own.endpoint, to, KEY, 1).unwrap();
    }

    /// Connects a program to another one, and advances until both know it.
    pub(crate) fn connect(&mut self, from: usize, to: usize) {
        self.start_connect(from, to);
        self.until(|all| {
            all.all[from]
                .events
                .contains(&connected(Code::Success))
                .then_some(())
        });
        let event = peer_connected(self, to, from);
        self.until(|all| all.all[to].events.contains(&event).then_some(()));
        self.all.iter_mut().for_each(|one| one.events.clear());
    }

    /// Returns a program's session of a connection to another one.
    pub(crate) fn session(&self, program: usize, other: usize) -> Option<u32> {
        let own = self.address(program).endpoint;
        self.all[program].node.session(own, self.address(other))
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, value: u64, data: Vec<u8>) {
        let (now, own, to) = (self.now, self.address(from), self.address(to));
        let node = self.node(from);
        node.send(now, own.endpoint, to, (value, data), false, value)
            .unwrap();
    }

    pub(crate) fn take(&mut self, to: usize, from: usize) -> Option<Message> {
        let (now, own, from) = (self.now, self.address(to), self.address(from));
        self.node(to).next_message(now, own.endpoint, from)
    }

    pub(crate) fn offered(&mut self, to: usize, from: usize) -> Offer {
        match self.until(|all| all.take(to, from)) {
            Message::Offered { offer, .. } => offer,
            other => panic!("{other:?}"),
        }
    }

    /// Receives a message of any length.
    pub(crate) fn receive(&mut self, to: usize, from: usize) -> (u64, Vec<u8>) {
        match self.until(|all| all.take(to, from)) {
            Message::Whole { value, data } => (value, data),
            Message::Offered {
                value,
                length,
                offer,
            } => {
                let (now, own) = (self.now, self.address(to).endpoint);
                let pull = self.node(to).pull(now, own, offer, length, value).unwrap();
                let mut data = Vec::new();
                while data.len() < length as usize {
                    let piece = |all: &mut Self| {
                        let now = all.now;
                        all.node(to).next_piece(now, own, pull)
                    };
                    data.extend(self.until(piece));
                }
                (value, data)
            }
        }
    }
}

pub(crate) fn connected(code: Code) -> Event {
    Event::Connected { token: 1, code }
}

/// The event of a program that another one has connected to.
pub(crate) fn peer_connected(programs: &Programs, program: usize, by: usize) -> Event {
    Event::PeerConnected {
        endpoint: programs.address(program).endpoint,
        from: programs.address(by),
        peer_key: Some(KEY),
    }
}
