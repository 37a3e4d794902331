//! Replies to pulls in datagrams of real sockets, which the kernel cuts and joins, on the loopback interface. Frames pass in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::net::UdpSocket;
use std::time::Duration;

use mxoe::wire::{Frame, Mac, Packet};
use mxoe::{Address, Config, Datagrams, Message, Node, Offer, Pull};

const KEY: u32 = 7;
const ENDPOINT: u8 = 3;
/// Lengths of messages: 12 and 14 whole frames, of which a call passes seven, and a shorter one, which the call of the frames before it can pass,
/// or cannot. Those of the next message follow.
const LENGTHS: [u32; 2] = [12 * 8192 + 1697, 14 * 8192 + 8000];
const HOSTS: usize = 3;
const LIMIT: Duration = Duration::from_secs(60);

struct Host {
    node: Node,
    datagrams: Datagrams,
    /// Replies that came in datagrams, and those of them that were shorter than the others.
    replies: usize,
    short: usize,
}

struct Hosts {
    hosts: Vec<Host>,
    started: std::time::Instant,
    /// Replies that came in frames.
    frames: usize,
}

fn address(host: usize) -> Address {
    Address {
        host: Mac([2, 0, 0, 0, 0, u8::try_from(host).unwrap() + 1]),
        endpoint: ENDPOINT,
    }
}

impl Hosts {
    fn new() -> Self {
        let host = |number| {
            let socket = Datagrams::open_socket("lo").unwrap();
            let datagrams = Datagrams::adopt(socket).unwrap();
            let mut config = Config::new(address(number).host, "host", 1);
            config.udp = Some(datagrams.address());
            let mut node = Node::new(config);
            assert!(node.open(
                Duration::ZERO,
                ENDPOINT,
                KEY,
                u32::try_from(number).unwrap()
            ));
            Host {
                node,
                datagrams,
                replies: 0,
                short: 0,
            }
        };
        Self {
            hosts: (0..HOSTS).map(host).collect(),
            started: std::time::Instant::now(),
            frames: 0,
        }
    }

    fn turn(&mut self) {
        let now = self.started.elapsed();
        assert!(now < LIMIT, "nothing happens any more");
        for from in 0..HOSTS {
            while let Some(frame) = self.hosts[from].node.transmit() {
                let packet = Frame::decode(&frame).unwrap().packet;
                self.frames += usize::from(matches!(packet, Packet::Reply(_)));
                for host in &mut self.hosts {
                    host.node.receive(now, &frame);
                }
            }
        }
        for host in &mut self.hosts {
            assert!(host.datagrams.send(&mut host.node), "there is room");
        }
        for host in &mut self.hosts {
            let (node, replies, short) = (&mut host.node, &mut host.replies, &mut host.short);
            host.datagrams.receive(16, |from, frame| {
                if let Some(Packet::Reply(reply)) = Frame::decode(frame).map(|frame| frame.packet) {
                    *replies += 1;
                    *short += usize::from(reply.data.len() < 8192);
                }
                node.receive_datagram(now, from, frame);
            });
            host.node.tick(now);
        }
    }

    /// Connects host 0 with the others, until the paths were probed.
    fn connect(&mut self) {
        for to in 1..HOSTS {
            let now = self.started.elapsed();
            let node = &mut self.hosts[0].node;
            node.connect(now, ENDPOINT, address(to), KEY, 0).unwrap();
        }
        // Each turn carries frames and datagrams once: connects, probes, and their answers.
        for _ in 0..10 {
            self.turn();
        }
    }

    fn offered(&mut self, to: usize) -> Offer {
        loop {
            let now = self.started.elapsed();
            let node = &mut self.hosts[to].node;
            match node.next_message(now, ENDPOINT, address(0)) {
                Some(Message::Offered { offer, .. }) => return offer,
                _ => self.turn(),
            }
        }
    }

    /// Sends two messages from host 0 to each other one at the same time, and returns what they received.
    fn exchange(&mut self, length: u32) -> Vec<Vec<u8>> {
        let mut pulls: Vec<(usize, Pull, Vec<u8>)> = Vec::new();
        for to in receivers() {
            let now = self.started.elapsed();
            let (message, node) = ((0, pattern(to, length)), &mut self.hosts[0].node);
            node.send(now, ENDPOINT, address(to), message, false, 0)
                .unwrap();
        }
        for to in receivers() {
            let offer = self.offered(to);
            let now = self.started.elapsed();
            let node = &mut self.hosts[to].node;
            let pull = node.pull(now, ENDPOINT, offer, length, 0).unwrap();
            pulls.push((to, pull, Vec::new()));
        }
        while pulls
            .iter()
            .any(|(_, _, data)| data.len() < length as usize)
        {
            self.turn();
            for (to, pull, data) in &mut pulls {
                let now = self.started.elapsed();
                while let Some(piece) = self.hosts[*to].node.next_piece(now, ENDPOINT, *pull) {
                    data.extend(piece);
                }
            }
        }
        pulls.into_iter().map(|(_, _, data)| data).collect()
    }
}

/// The receivers of an exchange's messages.
fn receivers() -> impl Iterator<Item = usize> {
    (1..HOSTS).flat_map(|host| [host; 2])
}

fn pattern(seed: usize, length: u32) -> Vec<u8> {
    let sum = |at: usize| at.wrapping_mul(31).wrapping_add(at >> 8).wrapping_add(seed);
    (0..length as usize)
        .map(|at| u8::try_from(sum(at) & 0xff).unwrap())
        .collect()
}

fn assert_exchange(hosts: &mut Hosts, length: u32) {
    let expected: Vec<_> = receivers().map(|to| pattern(to, length)).collect();
    assert!(hosts.exchange(length) == expected, "{length} bytes");
}

/// The sender's frames for the two receivers wait in one queue.
#[test]
fn messages_to_several_hosts_arrive_whole() {
    let mut hosts = Hosts::new();
    hosts.connect();
    for length in LENGTHS {
        assert_exchange(&mut hosts, length);
    }
    // None was cut at another place, which would have it sent again.
    let replies: usize = LENGTHS
        .map(|length| (length as usize).div_ceil(8192))
        .iter()
        .sum();
    for host in &hosts.hosts[1..] {
        assert_eq!(host.replies, 2 * replies);
        assert_eq!(host.short, 4, "the end of each message");
        assert_eq!(host.node.counters().asked_again, 0);
    }
    assert_eq!(hosts.frames, 0);
}

/// A sender of other bytes knows nothing but the port. The kernel joins only datagrams of one sender.
#[test]
fn another_sender_does_not_disturb() {
    let mut hosts = Hosts::new();
    hosts.connect();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ignored = |hosts: &Hosts| hosts.hosts[1].node.counters().ignored;
    let before = ignored(&hosts);
    for bytes in [&[][..], &[0], &[0xff; 60], &[0; 8224], &[1; 60_000]] {
        stranger
            .send_to(bytes, hosts.hosts[1].datagrams.address())
            .unwrap();
    }
    assert_exchange(&mut hosts, LENGTHS[0]);
    // The kernel passes an empty datagram without a frame.
    assert_eq!(ignored(&hosts), before + 4);
}

#[test]
fn a_socket_needs_an_interface_with_an_address() {
    let missing = Datagrams::open_socket("no-such-interface").unwrap_err();
    assert!(
        missing.to_string().contains("neither an address"),
        "{missing}"
    );
}
