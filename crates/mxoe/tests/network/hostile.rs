//! One host is connected to two others and sends them corrupted frames at any rate, while unknown
//! hosts announce themselves. The two others must not lose a message, and their memory must stay
//! within its bounds.
//!
//! `VICINITY_SOAK_SECONDS` sets the duration.

use std::time::{Duration, Instant};

use mxoe::wire::{Frame, Mac, Packet};
use mxoe::{Code, Event, Message};

use crate::net::{Network, at, pattern, udp};

/// The hostile host. The other two hosts are 0 and 1.
const HOSTILE: usize = 2;

/// Lengths of messages of every kind that is sent without a pull.
const LENGTHS: [usize; 6] = [0, 5, 33, 129, 4097, 32_768];

/// Bytes by which the memory of this process may grow after the first quarter of the time.
const GROWTH: u64 = 64 << 20;

/// Messages between the two other hosts.
#[derive(Default)]
struct Traffic {
    /// Messages that were sent and that arrived, by sender.
    sent: [u64; 2],
    received: [u64; 2],
}

impl Traffic {
    fn send_some(&mut self, network: &mut Network) {
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

    /// Takes all messages and checks that they arrive whole and in order. Pulls the offers of the
    /// hostile host, as a program would.
    fn receive_all(&mut self, network: &mut Network) {
        for node in 0..2 {
            let from = 1 - node;
            while let Some((address, message)) = network.take_message(node) {
                let (now, value) = (network.now, self.received[from]);
                match message {
                    _ if address == at(HOSTILE, 3) => {
                        if let Message::Offered { offer, length, .. } = message {
                            let _ = network.nodes[node].pull(now, 3, offer, length, 0);
                        }
                    }
                    Message::Whole { value: is, data } => {
                        let length = LENGTHS[value as usize % LENGTHS.len()];
                        assert_eq!((is, data), (value, pattern(length, value)));
                        self.received[from] += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// What the hostile host does in a round, in addition to sending corrupted frames.
fn attack(network: &mut Network, value: u64) {
    let (from, now) = (&mut network.nodes[HOSTILE], network.now);
    for to in 0..2 {
        // Its own corrupted frames end its connections again and again.
        if from.connect(now, 3, at(to, 3), crate::net::KEY, 1).is_ok() {
            for length in [5, 129, 32_768, 100_000] {
                let _ = from.send(now, 3, at(to, 3), (value, pattern(length, value)), false, 2);
            }
        }
    }
    let mut rng = network.rng.fork();
    for _ in 0..rng.u32(0..50) {
        let [a, b, c, d] = rng.u32(..).to_be_bytes();
        let source = Mac([2, 1, a, b, c, d]);
        let packet = match rng.u8(0..3) {
            0 => Packet::Announce {
                nic: source.nic(),
                serial: rng.u32(..),
            },
            1 => Packet::HostQuery {
                index: 0,
                magic: rng.u32(..),
            },
            _ => Packet::HostReply {
                index: 0,
                magic: rng.u32(..),
                name: b"name",
            },
        };
        let destination = [Mac::BROADCAST, crate::net::mac(0), crate::net::mac(1)];
        let destination = destination[rng.usize(0..3)];
        let frame = Frame {
            destination,
            source,
            index: 0,
            packet,
        };
        network.deliver(frame.encode());
    }
}

/// Returns the resident bytes of this process (proc_pid_statm(5)).
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

#[test]
fn corrupted_frames_of_a_host_do_not_disturb_other_connections() {
    let seconds = std::env::var("VICINITY_SOAK_SECONDS");
    let seconds = seconds.map_or(2, |seconds| seconds.parse().unwrap());
    let (begin, time) = (Instant::now(), Duration::from_secs(seconds));
    let mut network = Network::with_udp(3, 20, |node| Some(udp(node)));
    network.hostile = Some(HOSTILE);
    assert_eq!(network.connect(0, 1), Code::Success);
    let (mut talk, mut round, mut early) = (Traffic::default(), 0, None);
    let mut datagrams = 0;
    while begin.elapsed() < time || round < 100 {
        if begin.elapsed() >= time / 4 {
            early.get_or_insert_with(resident);
        }
        talk.send_some(&mut network);
        attack(&mut network, round);
        let end = network.now + Duration::from_millis(5);
        while network.step(end) {
            talk.receive_all(&mut network);
        }
        network.now = end;
        network.sent.clear();
        datagrams += network.datagrams.len();
        network.datagrams.clear();
        network.events.iter_mut().for_each(|events| events.clear());
        round += 1;
    }
    // The messages in flight must still arrive.
    network.hostile = None;
    let end = network.now + Duration::from_secs(60);
    while talk.received != talk.sent && network.step(end) {
        talk.receive_all(&mut network);
    }
    assert_eq!(talk.received, talk.sent);
    let (corrupted, grown) = (network.corrupted, resident().saturating_sub(early.unwrap()));
    println!(
        "{round} rounds, {corrupted} frames corrupted, {datagrams} datagrams, {:?} messages, {grown} bytes more",
        talk.received
    );
    // The test exercised what it is for.
    assert!(talk.received.iter().all(|count| *count > 100) && corrupted > 1000 && datagrams > 1000);
    assert!(grown < GROWTH, "{grown} bytes more");
}

#[test]
fn a_request_beyond_its_own_total_begins_no_send() {
    let mut network = Network::new(2, 20);
    assert_eq!(network.connect(0, 1), Code::Success);
    let now = network.now;
    let offered = network.nodes[0].offer(now, 3, at(1, 3), (1, 200_000), 7);
    offered.unwrap();
    let offer = network.offered(1);
    let now = network.now;
    network.nodes[1].pull(now, 3, offer, 200_000, 9).unwrap();
    network.sent.clear();
    network.collect_frames();
    let sent = std::mem::take(&mut network.sent);
    let request = sent.iter().find_map(|sent| {
        let frame = Frame::decode(sent).unwrap();
        match frame.packet {
            Packet::Pull(pull) => Some((frame, pull)),
            _ => None,
        }
    });
    let (mut frame, mut pull) = request.unwrap();
    let total = pull.total;
    let mut begun = |network: &mut Network, total| {
        pull.total = total;
        frame.packet = Packet::Pull(pull);
        for _ in 0..10 {
            network.nodes[0].receive(network.now, &frame.encode());
        }
        let events = std::iter::from_fn(|| network.next_event(0));
        events
            .filter(|event| matches!(event, Event::PullRequest { .. }))
            .count()
    };
    assert_eq!(begun(&mut network, 0), 0);
    assert_eq!(begun(&mut network, 100), 0, "less than the block");
    assert_eq!(begun(&mut network, total), 1, "once");
}
