//! A host that sends anything to a node that it is connected to: packets with a valid header and
//! any body, and frames of any bytes.
//!
//! The input is a list of packets: two bytes of length, whose highest bit marks a whole frame, and the next one a frame in a datagram from
//! the host's address, and then the bytes. The target responds like a program: it opens endpoints, pulls offers, sends
//! messages back and supplies streamed messages. The node must not panic, and its memory and output
//! for each frame must be limited. A node whose frames all travel in datagrams gets all packets, too.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use mxoe::limits::{MAX_FRAME, MIN_FRAME};
use mxoe::wire::{Connect, Ends, Frame, Mac, Packet};
use mxoe::{Address, Config, Event, Message, Node};

const HERE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Address = Address {
    host: Mac([2, 0, 0, 0, 0, 2]),
    endpoint: 4,
};
const ENDPOINT: u8 = 3;
/// Where the peer takes datagrams, and sends them from.
const UDP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 4000);
const SESSION: u32 = 0x0a0b_0c0d;
const KEY: u32 = 7;

/// Number of peers from which the program takes messages.
const PEERS: usize = 8;

fuzz_target!(|data: &[u8]| {
    for only_datagrams in [false, true] {
        attack(data, only_datagrams);
    }
});

fn attack(data: &[u8], only_datagrams: bool) {
    let mut config = Config::new(HERE, "here", 1);
    config.peer_timeout = Duration::from_secs(2);
    config.udp = Some(SocketAddr::from(([10, 0, 0, 1], 4000)));
    config.only_datagrams = only_datagrams;
    let mut node = Node::new(config);
    assert!(node.open(Duration::ZERO, ENDPOINT, KEY, SESSION));
    let mut now = Duration::ZERO;
    assert_eq!(node.add_partner(now, ENDPOINT, PEER, UDP), only_datagrams);
    match only_datagrams {
        true => node.receive_datagram(now, UDP, &connect_frame()),
        false => node.receive(now, &connect_frame()),
    }
    for value in 0..4u64 {
        let length = [5, 200, 5000, 40_000][value as usize];
        let message = (value, vec![7; length]);
        node.send(now, ENDPOINT, PEER, message, false, value)
            .expect("it connected");
    }
    node.offer(now, ENDPOINT, PEER, (4, 1 << 20), 4)
        .expect("it connected");
    let mut program = Program::default();
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = u16::from_le_bytes(*length);
        let (whole, by_datagram) = (length & 1 << 15 != 0, length & 1 << 14 != 0);
        let length = usize::from(length & 0x3fff);
        let (bytes, after) = after.split_at(length.min(after.len()));
        rest = after;
        let frame = if whole {
            bytes.to_vec()
        } else {
            with_header(bytes)
        };
        if let Some(decoded) = Frame::decode(&frame) {
            assert_eq!(Frame::decode(&decoded.encode()), Some(decoded));
        }
        match by_datagram || only_datagrams {
            true => node.receive_datagram(now, UDP, &frame),
            false => node.receive(now, &frame),
        }
        program.respond(&mut node, now);
        now += Duration::from_millis(100);
        node.tick(now);
        drain(&mut node);
    }
}

/// Returns the peer's connect.
fn connect_frame() -> Vec<u8> {
    let connect = Connect {
        ends: Ends {
            to: ENDPOINT,
            from: PEER.endpoint,
        },
        index: 0,
        session: 1,
        key_or_session: KEY,
        expected_seq: 1,
        number: 1,
        status: None,
        own_key: Some(KEY),
        pipeline: Some(13),
        udp: Some(UDP),
        program: None,
    };
    let frame = Frame {
        destination: HERE,
        source: PEER.host,
        index: 0xffff,
        packet: Packet::Connect(connect),
    };
    frame.encode()
}

fn with_header(body: &[u8]) -> Vec<u8> {
    let mut frame = [HERE.0, PEER.host.0].concat();
    frame.extend([0x86, 0xdf, 0, 0]);
    frame.extend(body);
    frame
}

/// The state of a program that uses the node.
#[derive(Default)]
struct Program {
    peers: Vec<(u8, Address)>,
    /// How often a program has ended: the next one has another session.
    ended: u32,
    pulls: Vec<(u8, mxoe::Pull)>,
}

impl Program {
    fn respond(&mut self, node: &mut Node, now: Duration) {
        for count in 0.. {
            assert!(count < 1000, "events do not end");
            match node.event() {
                None => break,
                Some(Event::ConnectRequest {
                    endpoint,
                    from,
                    key,
                    ..
                }) if key % 2 == 0 => {
                    node.refuse(now, endpoint, from, None);
                }
                Some(Event::ConnectRequest {
                    endpoint,
                    from,
                    key,
                    program: Some(program),
                    ..
                }) if key % 4 == 1 => {
                    node.answer_introduction(endpoint, from, program);
                }
                Some(Event::ConnectRequest {
                    endpoint,
                    from,
                    key,
                    program,
                    ..
                }) => {
                    let session = SESSION + u32::from(endpoint) + (self.ended << 8);
                    let opened = node.open(now, endpoint, key, session);
                    // An introduction may be to an endpoint that is open.
                    assert!(opened || program.is_some());
                    node.accept(now, endpoint, from);
                }
                Some(Event::PeerConnected { endpoint, from, .. }) => {
                    if self.peers.len() < PEERS {
                        self.peers.push((endpoint, from));
                    } else {
                        node.disconnect(now, endpoint, from);
                    }
                }
                Some(Event::Disconnected { endpoint, from, .. }) => {
                    self.peers.retain(|peer| *peer != (endpoint, from));
                }
                Some(Event::PullRequest {
                    endpoint, source, ..
                }) => {
                    let count = node.send_buffer(endpoint, source).len() / 2;
                    node.commit(now, endpoint, source, count);
                }
                Some(_) => {}
            }
        }
        // In every fifth second, a program ends, and its connections stay.
        let ended = self.peers.first().filter(|_| now.as_secs() % 5 == 4);
        if let Some(&(endpoint, _)) = ended {
            node.retire(endpoint);
            self.ended = self.ended.wrapping_add(1);
        }
        for &(endpoint, from) in &self.peers {
            // In every third second, the program takes no messages.
            if now.as_secs() % 3 == 0 {
                continue;
            }
            while let Some(message) = node.next_message(now, endpoint, from) {
                match message {
                    Message::Whole { value, data } => {
                        assert!(data.len() <= 32_768);
                        // The node may refuse the send.
                        let message = (value, data);
                        let _refused =
                            node.send(now, endpoint, from, message, value % 2 == 0, value);
                    }
                    Message::Offered {
                        length,
                        offer,
                        value,
                    } => {
                        if let Ok(pull) = node.pull(now, endpoint, offer, length, value) {
                            self.pulls.push((endpoint, pull));
                        }
                    }
                }
            }
        }
        for &(endpoint, pull) in &self.pulls {
            while node.next_piece(now, endpoint, pull).is_some() {}
        }
        if self.pulls.len() > 1000 {
            self.pulls.clear();
        }
    }
}

/// Checks that one packet causes a limited number of frames, each with the node's own address.
fn drain(node: &mut Node) {
    let mut count = 0;
    while let Some(frame) = node.transmit() {
        assert!((MIN_FRAME..=MAX_FRAME).contains(&frame.len()));
        assert_eq!(frame[6..12], HERE.0);
        count += 1;
    }
    loop {
        node.drop_old_datagrams();
        let Some((_, parts)) = node.datagrams().next() else {
            break;
        };
        let frame = parts.concat();
        assert!(frame.len() <= MAX_FRAME && Frame::decode(&frame).is_some());
        assert_eq!(frame[6..12], HERE.0);
        node.datagrams_sent(1);
        count += 1;
    }
    assert!(count < 10_000, "{count} frames for one");
}
