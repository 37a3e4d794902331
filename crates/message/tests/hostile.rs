//! A peer that connects properly and then writes anything anywhere into the window, at any time:
//! only its own link ends.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::path::Path;

use common::scripted_peer::{COPIED, DONE, OFFER, PULL, SHARE};
use common::{pattern, scripted_peer};
use message::limits::{CONTROL, MESSAGES};
use message::{Address, Board, Code, Endpoint, Options, Pattern, Peer, Request};
use proptest::prelude::*;
use window::attach::Channel;
use window::lane::Record;
use window::layout::Layout;
use window::{Ends, SharedBytes, Side, Window};

/// The match value of messages that are pending all the time.
const LATER: u64 = 0xfeed_0000_0001;

/// A scripted attacker on the other side of a link.
struct Attacker {
    channel: Channel,
    ends: Ends,
    memory: SharedBytes,
    length: u64,
    peer: Peer,
    received: Vec<u64>,
}

impl Attacker {
    fn connect(folder: &Path, victim: &mut Endpoint) -> Self {
        let window = Window::create(Layout::new([MESSAGES, CONTROL]).unwrap()).unwrap();
        // No endpoint listens at this address.
        let from = Address {
            endpoint: 999,
            ..victim.address()
        };
        let (channel, peer) =
            scripted_peer::connect(folder, victim, from, &window, scripted_peer::FENCES, None);
        Self {
            channel,
            ends: window.ends(Side::Creator).unwrap(),
            memory: window.bytes().unwrap(),
            length: window.layout().length(),
            peer,
            received: Vec::new(),
        }
    }

    /// Pushes a record of any kind, valid or not.
    fn send(&mut self, lane: usize, tag: u32, body: [u64; 7]) {
        let producer = &mut self.ends.producers[lane];
        if producer.has_room().unwrap_or(false) {
            producer.push(&Record { tag, body });
        }
    }

    /// Returns a number that the victim sent, which may be one of its handles.
    fn handle(&mut self, which: usize) -> u64 {
        for consumer in &mut self.ends.consumers {
            while let Some(record) = consumer.pop() {
                self.received.extend(&record.body[..3]);
            }
            consumer.release();
        }
        let count = self.received.len().max(1);
        // The last ones belong to requests that have not ended.
        self.received
            .iter()
            .rev()
            .nth(which % count)
            .copied()
            .unwrap_or(0)
    }

    fn scribble(&self, at: u64, bytes: &[u8]) {
        let at = at % (self.length - bytes.len() as u64);
        self.memory.write(at, bytes).unwrap();
    }
}

/// A step of the attacker, or of its victim.
#[derive(Clone, Debug)]
enum Step {
    Send(u32, u64),
    Offer(usize),
    Receive(u64, usize),
    Record(usize, u32, [u64; 7]),
    /// An offer of a message with this value and length.
    Offered(u64, u64),
    /// A control record for a request that may exist: its kind, and a number.
    Control(u32, usize, u64),
    Scribble(u64, [u8; 8]),
    Ring,
    Progress,
}

/// Small numbers are valid most often.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..8, 1 => 0u64..100_000, 1 => any::<u64>()]
}

/// Offsets of the control words, the rings and the data.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0u64..4096 * 2,
        2 => 4096u64..4096 * 7,
        1 => any::<u64>(),
        1 => 540_000u64..570_000,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u32..200, word()).prop_map(|(length, value)| Step::Send(length, value)),
        1 => (40_000usize..90_000).prop_map(Step::Offer),
        2 => (word(), 0usize..60_000).prop_map(|(value, room)| Step::Receive(value, room)),
        6 => (0usize..2, prop_oneof![9 => 0u32..10, 1 => any::<u32>()], prop::array::uniform7(word()))
            .prop_map(|(lane, tag, body)| Step::Record(lane, tag, body)),
        3 => (0u64..3, 1u64..100_000).prop_map(|(value, length)| Step::Offered(value, length)),
        3 => (0u64..3, 1usize..60_000).prop_map(|(value, room)| Step::Receive(value, room)),
        6 => (prop_oneof![4u32..7, SHARE..=COPIED], 0usize..12, 0u64..50_000)
            .prop_map(|(kind, which, number)| Step::Control(kind, which, number)),
        1 => (place(), any::<[u8; 8]>()).prop_map(|(at, bytes)| Step::Scribble(at, bytes)),
        1 => Just(Step::Ring),
        4 => Just(Step::Progress),
    ]
}

/// Two honest endpoints, one of them the victim, and each one's peer.
struct Honest {
    victim: Endpoint,
    other: Endpoint,
    to_other: Peer,
    to_victim: Peer,
    folder: tempfile::TempDir,
}

impl Honest {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::open(folder.path()).unwrap();
        let mut victim = Endpoint::open(&board, &Options::default()).unwrap();
        let mut other = Endpoint::open(&board, &Options::default()).unwrap();
        let request = victim.iconnect(other.address(), 0, 0).unwrap();
        let to_other = common::both(&mut victim, &mut other, request).status.peer;
        let to_victim = other.connect(victim.address(), 0, None).unwrap();
        Self {
            victim,
            other,
            to_other: to_other.unwrap(),
            to_victim,
            folder,
        }
    }

    /// Exchanges messages of every protocol, in both directions.
    fn talk(&mut self) {
        const VALUE: u64 = 0xfeed_0000_0000;
        for length in [8, 5000, 70_000] {
            let bytes = pattern(length, 1);
            let sent = self
                .other
                .isend(self.to_victim, VALUE, bytes.clone())
                .unwrap();
            let request = self
                .victim
                .irecv(Pattern::exactly(VALUE), vec![0; length])
                .unwrap();
            let got = common::both(&mut self.victim, &mut self.other, request);
            assert_eq!(got.memory.bytes(), bytes);
            common::both(&mut self.other, &mut self.victim, sent);
            let sent = self
                .victim
                .isend(self.to_other, VALUE, bytes.clone())
                .unwrap();
            let request = self
                .other
                .irecv(Pattern::exactly(VALUE), vec![0; length])
                .unwrap();
            let got = common::both(&mut self.other, &mut self.victim, request);
            assert_eq!(got.memory.bytes(), bytes);
            common::both(&mut self.victim, &mut self.other, sent);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_peer_that_writes_anything_ends_only_its_own_link(steps in prop::collection::vec(step(), 1..80)) {
        let mut honest = Honest::new();
        let mut attacker = Attacker::connect(honest.folder.path(), &mut honest.victim);
        let peer = attacker.peer;
        // Requests with another peer, whose handles the attacker may guess.
        let bytes = pattern(70_000, 9);
        let to_other = honest.to_other;
        let pending = honest.victim.issend(to_other, LATER, bytes.clone()).unwrap();
        let awaited = honest.victim.irecv(Pattern::exactly(LATER), vec![0; 8]).unwrap();
        let mut sends: Vec<Request> = Vec::new();
        for step in steps {
            let victim = &mut honest.victim;
            match step {
                Step::Send(length, value) => {
                    let bytes = vec![1; length as usize];
                    sends.push(match length % 2 {
                        0 => victim.isend(peer, value, bytes).unwrap(),
                        _ => victim.issend(peer, value, bytes).unwrap(),
                    });
                }
                Step::Offer(length) => {
                    let heap = victim.allocate(length).unwrap();
                    sends.push(victim.isend(peer, 1, heap).unwrap());
                    sends.push(victim.isend(peer, 1, vec![1; length]).unwrap());
                }
                Step::Receive(value, room) => {
                    let _ = victim.irecv(Pattern::exactly(value), vec![0; room]).unwrap();
                }
                Step::Record(lane, tag, body) => attacker.send(lane, tag, body),
                Step::Offered(value, length) => {
                    attacker.send(0, OFFER, [value, length, 5, u64::MAX, 0, 0, 0]);
                }
                Step::Control(kind, which, number) => {
                    let handle = match which.checked_sub(4) {
                        None => attacker.handle(which),
                        // A guess of a handle: its generation and its index.
                        Some(used) => ((used as u64) << 32) | (number % 4),
                    };
                    let body = match kind {
                        DONE => [handle, number, 0, 0, 0, 0, 0],
                        PULL => [handle, 9, number, 0, 0, 0, 0],
                        SHARE => [handle, 9, 0, number, 1, 0, 0],
                        COPIED => [handle, number, 0, 0, 0, 0, 0],
                        _ => [handle, number << 32, 0, 0, 0, 0, 0],
                    };
                    attacker.send(1, kind, body);
                }
                Step::Scribble(at, bytes) => attacker.scribble(at, &bytes),
                Step::Ring => attacker.channel.ring(),
                Step::Progress => victim.progress(),
            }
        }
        honest.talk();
        prop_assert!(honest.victim.test(pending).unwrap().is_none());
        prop_assert!(honest.victim.test(awaited).unwrap().is_none());
        let (victim, other) = (&mut honest.victim, &mut honest.other);
        let request = other.irecv(Pattern::exactly(LATER), vec![0; 70_000]).unwrap();
        let got = common::both(other, victim, request);
        prop_assert_eq!(got.memory.bytes(), bytes);
        prop_assert_eq!(common::both(victim, other, pending).status.taken, 70_000);
        // The end of the attacker's link ends the requests that wait for it.
        drop(attacker);
        for request in sends {
            let ended = common::both(&mut honest.victim, &mut honest.other, request);
            let code = ended.status.code;
            prop_assert!(
                matches!(code, Code::Success | Code::Truncated | Code::Closed | Code::Unreachable),
                "{code:?}"
            );
        }
        honest.talk();
    }
}
