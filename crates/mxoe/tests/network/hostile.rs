//! A host that is connected to two others and sends both of them frames that are valid but for a few
//! bytes, as often as it likes, with strangers that announce themselves: the two lose nothing, and keep no
//! more than their bounds.
//!
//! `VICINITY_SOAK_SECONDS` says for how long.

use std::time::{Duration, Instant};

use mxoe::wire::{Frame, Mac, Packet};
use mxoe::{Code, Message};

use crate::net::{Network, at, pattern};

/// The host that is hostile. The other two are 0 and 1.
const HOSTILE: usize = 2;

/// Whole messages of every kind.
const LENGTHS: [usize; 6] = [0, 5, 33, 129, 4097, 32_768];

/// Bytes that this process may have more at the end than after a quarter of the time.
const GROWTH: u64 = 64 << 20;

/// What the two have said to each other.
#[derive(Default)]
struct Talk {
    /// By the sender: messages that were sent, and that came.
    sent: [u64; 2],
    came: [u64; 2],
}

impl Talk {
    fn say(&mut self, network: &mut Network) {
        for from in 0..2 {
            let value = self.sent[from];
            let length = LENGTHS[value as usize % LENGTHS.len()];
            if network
                .send(from, 1 - from, value, pattern(length, value))
                .is_ok()
            {
                self.sent[from] += 1;
            }
        }
    }

    /// Take what came: in order, whole, and nothing else; and what the hostile one says, as a program would.
    fn hear(&mut self, network: &mut Network) {
        for node in 0..2 {
            let from = 1 - node;
            while let Some((address, message)) = network.taken(node) {
                let (now, value) = (network.now, self.came[from]);
                match message {
                    _ if address == at(HOSTILE, 3) => {
                        if let Message::Offered { offer, length, .. } = message {
                            let _ = network.nodes[node].pull(now, 3, offer, length, 0);
                        }
                    }
                    Message::Whole { value: is, data } => {
                        let length = LENGTHS[value as usize % LENGTHS.len()];
                        assert_eq!((is, data), (value, pattern(length, value)));
                        self.came[from] += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// What the hostile host does in a round, beside being a host that means well but for its frames.
fn attack(network: &mut Network, value: u64) {
    let (from, now) = (&mut network.nodes[HOSTILE], network.now);
    for to in 0..2 {
        // Its connections end again and again, of its own frames.
        if from.connect(now, 3, at(to, 3), crate::net::KEY, 1).is_ok() {
            for length in [5, 129, 32_768, 100_000] {
                let _ = from.send(now, 3, at(to, 3), (value, pattern(length, value)), false, 2);
            }
        }
    }
    let mut dice = network.dice.fork();
    for _ in 0..dice.u32(0..50) {
        let [a, b, c, d] = dice.u32(..).to_be_bytes();
        let source = Mac([2, 1, a, b, c, d]);
        let packet = match dice.u8(0..3) {
            0 => Packet::Announce {
                nic: source.nic(),
                serial: dice.u32(..),
            },
            1 => Packet::HostQuery {
                index: 0,
                magic: dice.u32(..),
            },
            _ => Packet::HostReply {
                index: 0,
                magic: dice.u32(..),
                name: b"name",
            },
        };
        let destination = [Mac::BROADCAST, crate::net::mac(0), crate::net::mac(1)];
        let destination = destination[dice.usize(0..3)];
        let frame = Frame {
            destination,
            source,
            index: 0,
            packet,
        };
        network.launch(frame.encode());
    }
}

/// Resident bytes of this process (proc_pid_statm(5)).
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

#[test]
fn a_host_whose_frames_are_almost_right_takes_nothing_from_others_for_long() {
    let seconds = std::env::var("VICINITY_SOAK_SECONDS");
    let seconds = seconds.map_or(2, |seconds| seconds.parse().unwrap());
    let (begin, time) = (Instant::now(), Duration::from_secs(seconds));
    let mut network = Network::new(3, 20);
    network.hostile = Some(HOSTILE);
    assert_eq!(network.connect(0, 1), Code::Success);
    let (mut talk, mut round, mut early) = (Talk::default(), 0, None);
    while begin.elapsed() < time || round < 100 {
        if begin.elapsed() >= time / 4 {
            early.get_or_insert_with(resident);
        }
        talk.say(&mut network);
        attack(&mut network, round);
        let end = network.now + Duration::from_millis(5);
        while network.step(end) {
            talk.hear(&mut network);
        }
        network.now = end;
        network.sent.clear();
        network.said.iter_mut().for_each(|said| said.clear());
        round += 1;
    }
    // What is under way comes.
    network.hostile = None;
    let end = network.now + Duration::from_secs(60);
    while talk.came != talk.sent && network.step(end) {
        talk.hear(&mut network);
    }
    assert_eq!(talk.came, talk.sent);
    let (changed, grown) = (network.changed, resident().saturating_sub(early.unwrap()));
    println!(
        "{round} rounds, {changed} frames changed, {:?} messages, {grown} bytes more",
        talk.came
    );
    // It reached what it is to reach.
    assert!(talk.came.iter().all(|count| *count > 100) && changed > 1000);
    assert!(grown < GROWTH, "{grown} bytes more");
}
