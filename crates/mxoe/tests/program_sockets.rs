//! All frames of two nodes in datagrams of real sockets, on loopback interfaces that carry the longest frame or do not. Needs root and `ip`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::process::Command;
use std::time::{Duration, Instant};

use mxoe::wire::Mac;
use mxoe::{Address, Code, Config, Datagrams, Event, Message, Node, Pull};

const KEY: u32 = 7;
const LIMIT: Duration = Duration::from_secs(60);
/// What an ordinary user gets by default.
const RECEIVE_BUFFER: usize = 212_992;
const LENGTHS: [usize; 6] = [0, 100, 5000, 32_768, 100_000, 4_000_000];

struct Program {
    node: Node,
    datagrams: Datagrams,
    events: Vec<Event>,
}

struct Programs {
    both: Vec<Program>,
    started: Instant,
}

fn address(program: usize) -> Address {
    Address {
        host: Mac([2, 0, 0, 0, 0, 1]),
        endpoint: program as u8 + 3,
    }
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| at.wrapping_mul(31).wrapping_add(at >> 8).wrapping_add(seed) as u8;
    (0..length).map(byte).collect()
}

impl Programs {
    /// Makes two programs of one host that know each other.
    fn new() -> Self {
        let program = |number: usize| {
            let socket = Datagrams::open_program_socket("lo").unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER).unwrap();
            let datagrams = Datagrams::adopt(socket).unwrap();
            assert_eq!(datagrams.receive_buffer(), 2 * RECEIVE_BUFFER);
            let mut config = Config::new(address(number).host, "program", 1);
            config.only_datagrams = true;
            config.udp = Some(datagrams.address());
            config.receive_buffer = Some(datagrams.receive_buffer());
            let mut node = Node::new(config);
            let endpoint = address(number).endpoint;
            assert!(node.open(Duration::ZERO, endpoint, KEY, number as u32 + 1));
            Program {
                node,
                datagrams,
                events: Vec::new(),
            }
        };
        let mut both: Vec<_> = (0..2).map(program).collect();
        let sockets = [0, 1].map(|number| both[number].datagrams.address());
        for (number, program) in both.iter_mut().enumerate() {
            let (own, other) = (address(number).endpoint, address(1 - number));
            let socket = sockets[1 - number];
            assert!(program.node.add_partner(Duration::ZERO, own, other, socket));
        }
        Self {
            both,
            started: Instant::now(),
        }
    }

    fn turn(&mut self) {
        let now = self.started.elapsed();
        assert!(now < LIMIT, "nothing happens any more");
        for program in &mut self.both {
            assert!(program.node.transmit().is_none());
            assert!(program.datagrams.send(&mut program.node), "there is room");
        }
        for Program {
            node,
            datagrams,
            events,
        } in &mut self.both
        {
            datagrams.receive(16, |from, frame| node.receive_datagram(now, from, frame));
            node.tick(now);
            events.extend(std::iter::from_fn(|| node.event()));
        }
    }

    fn connect(&mut self) {
        let node = &mut self.both[0].node;
        let (own, to) = (address(0).endpoint, address(1));
        node.connect(Duration::ZERO, own, to, KEY, 0).unwrap();
        while self.both.iter().any(|program| program.events.is_empty()) {
            self.turn();
        }
        let code = Code::Success;
        assert_eq!(self.both[0].events, [Event::Connected { token: 0, code }]);
        let peer = Event::PeerConnected {
            endpoint: to.endpoint,
            from: address(0),
            peer_key: Some(KEY),
        };
        assert_eq!(self.both[1].events, [peer]);
    }

    /// Sends a message to the other program and returns what it receives.
    fn pass(&mut self, from: usize, data: Vec<u8>) -> Vec<u8> {
        let (now, to) = (self.started.elapsed(), 1 - from);
        let (own, other) = (address(to).endpoint, address(from));
        let node = &mut self.both[from].node;
        node.send(now, other.endpoint, address(to), (0, data), false, 0)
            .unwrap();
        let mut pull: Option<(Pull, usize)> = None;
        let mut received = Vec::new();
        loop {
            let (now, node) = (self.started.elapsed(), &mut self.both[to].node);
            match pull {
                None => match node.next_message(now, own, other) {
                    Some(Message::Whole { data, .. }) => return data,
                    Some(Message::Offered { offer, length, .. }) => {
                        let started = node.pull(now, own, offer, length, 0).unwrap();
                        pull = Some((started, length as usize));
                    }
                    None => {}
                },
                Some((pull, length)) => {
                    while let Some(piece) = node.next_piece(now, own, pull) {
                        received.extend(piece);
                    }
                    if received.len() == length {
                        return received;
                    }
                }
            }
            self.turn();
        }
    }
}

/// Returns a counter of this network namespace (proc_pid_net_snmp: a line of names, and one of numbers).
fn counter(protocol: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|one| one == name).unwrap();
    numbers.split(' ').nth(place).unwrap().parse().unwrap()
}

fn exchange() {
    let mut programs = Programs::new();
    programs.connect();
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        for from in [0, 1] {
            assert!(
                programs.pass(from, pattern(length, seed)) == pattern(length, seed),
                "{length}"
            );
        }
    }
    // The blocks in flight fit into the receive buffer.
    assert_eq!(counter("Udp:", "RcvbufErrors"), 0);
    for program in &programs.both {
        let counters = program.node.counters();
        assert_eq!((counters.asked_again, counters.ignored), (0, 0));
    }
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "ip {words:?}: {output:?}");
}

/// Runs one of the tests below in a network namespace of its own.
fn run(mtu: &str, test: &str) {
    let name = format!("mxoe-programs-{mtu}-{}", std::process::id());
    ip(&["netns", "add", &name]);
    ip(&["-n", &name, "link", "set", "lo", "mtu", mtu, "up"]);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &name]);
    command.arg(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    ip(&["netns", "del", &name]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn all_frames_pass_interfaces_of_any_mtu() {
    run("1500", "fragments");
    run("9000", "segments");
    run("65536", "segments");
}

#[test]
#[ignore = "runs in a network namespace"]
fn fragments() {
    exchange();
    let fragments = counter("Ip:", "FragCreates");
    assert!(
        fragments > 6000,
        "{fragments} fragments of nearly 1000 frames"
    );
}

#[test]
#[ignore = "runs in a network namespace"]
fn segments() {
    exchange();
    assert_eq!(counter("Ip:", "FragCreates"), 0);
    // The kernel counts a batch as one datagram. The large messages alone have 1000 frames.
    let batches = counter("Udp:", "OutDatagrams");
    assert!(batches < 800, "{batches}");
}
