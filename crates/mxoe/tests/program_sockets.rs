//! All frames of two nodes in datagrams of real sockets, on loopback interfaces that carry the longest frame or do not. Needs root and `ip`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use mxoe::wire::Mac;
use mxoe::{Address, Code, Config, Datagrams, Event, Message, Node, Pull};
use rustix::net::{self, RecvFlags};

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
            net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER).unwrap();
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

/// Has a socket connected to each partner's program.
fn connect_sockets(programs: &mut Programs) {
    for program in &mut programs.both {
        let partners = program.node.partner_programs(Duration::ZERO);
        program.datagrams.connect_to(&partners);
    }
}

fn pass_all(programs: &mut Programs) {
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        for from in [0, 1] {
            assert!(
                programs.pass(from, pattern(length, seed)) == pattern(length, seed),
                "{length}"
            );
        }
    }
}

fn exchange() {
    let mut programs = Programs::new();
    programs.connect();
    pass_all(&mut programs);
    connect_sockets(&mut programs);
    pass_all(&mut programs);
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
        fragments > 12_000,
        "{fragments} fragments of nearly 2000 frames"
    );
}

#[test]
#[ignore = "runs in a network namespace"]
fn segments() {
    exchange();
    assert_eq!(counter("Ip:", "FragCreates"), 0);
    // The kernel counts a batch as one datagram. The large messages alone have 2000 frames.
    let batches = counter("Udp:", "OutDatagrams");
    assert!(batches < 1600, "{batches}");
}

/// Returns for each socket of a program whether a datagram has arrived there.
fn arrived(program: &Program) -> Vec<bool> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let sockets = program.datagrams.sockets();
    sockets
        .map(|socket| net::recv(socket, &mut [0; 1], flags).is_ok())
        .collect()
}

/// Receives once, and returns how many frames came from where.
fn receive(program: &mut Program) -> BTreeMap<SocketAddr, usize> {
    let mut found = BTreeMap::new();
    program
        .datagrams
        .receive(16, |from, _| *found.entry(from).or_default() += 1);
    found
}

/// udp(7), socket(7): a connected socket takes the datagrams of its peer, and the one beside it takes all others.
#[test]
fn what_a_partners_program_sends_arrives_at_the_socket_that_is_connected_to_it() {
    let mut programs = Programs::new();
    programs.connect();
    connect_sockets(&mut programs);
    let [one, other] = [0, 1].map(|number| programs.both[number].datagrams.address());
    // Both have nothing left of the connect.
    for program in &mut programs.both {
        assert_eq!(program.datagrams.sockets().count(), 2);
        receive(program);
        program.datagrams.look_everywhere();
        receive(program);
        assert_eq!(arrived(program), [false, false]);
    }
    let to = address(1);
    let sender = &mut programs.both[0];
    let now = programs.started.elapsed();
    let message = (0, vec![7; 8]);
    sender
        .node
        .send(now, address(0).endpoint, to, message, false, 0)
        .unwrap();
    assert!(sender.datagrams.send(&mut sender.node));
    assert_eq!(arrived(&programs.both[1]), [false, true]);
    assert_eq!(receive(&mut programs.both[1]), BTreeMap::from([(one, 1)]));

    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&[7; 60], other).unwrap();
    assert_eq!(arrived(&programs.both[1]), [true, false]);
    let from = stranger.local_addr().unwrap();
    let looks = (1..=200).find(|_| !receive(&mut programs.both[1]).is_empty());
    // It does not wait for long, and the looks do not cost much.
    assert!((50..=100).contains(&looks.unwrap()), "{looks:?}");
    stranger.send_to(&[7; 60], other).unwrap();
    programs.both[1].datagrams.look_everywhere();
    assert_eq!(receive(&mut programs.both[1]), BTreeMap::from([(from, 1)]));
}

#[test]
fn a_program_with_many_partners_has_one_socket_and_with_few_ones_again_more() {
    let mut programs = Programs::new();
    programs.connect();
    let [ours, other] = [0, 1].map(|number| programs.both[number].datagrams.address());
    let sockets: Vec<_> = (0..2)
        .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
        .collect();
    let further = [0, 1].map(|number: usize| sockets[number].local_addr().unwrap());
    let mut count = |partners: &[SocketAddr]| {
        let datagrams = &mut programs.both[0].datagrams;
        datagrams.connect_to(partners);
        datagrams.sockets().count()
    };
    assert_eq!(count(&[other, further[0]]), 3);
    assert_eq!(count(&[other, further[0], further[1]]), 1);
    assert_eq!(count(&[other, further[1]]), 3);
    assert_eq!(count(&[other]), 2);
    // An address of another family cannot be connected.
    assert_eq!(count(&[other, "[::1]:5".parse().unwrap()]), 1);
    assert_eq!(count(&[other]), 2);
    assert_eq!(programs.both[0].datagrams.address(), ours);
    assert!(programs.pass(0, pattern(100, 1)) == pattern(100, 1));
    assert!(programs.pass(1, pattern(100_000, 2)) == pattern(100_000, 2));
}

#[test]
fn what_has_arrived_at_a_connected_socket_is_received_although_it_is_not_needed_any_more() {
    let mut programs = Programs::new();
    programs.connect();
    let own = programs.both[0].datagrams.address();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let from = sender.local_addr().unwrap();
    let program = &mut programs.both[0];
    receive(program);
    program.datagrams.connect_to(&[from]);
    sender.send_to(&[7; 60], own).unwrap();
    assert_eq!(arrived(program), [false, true]);
    program.datagrams.connect_to(&[]);
    assert_eq!(arrived(program), [false]);
    assert_eq!(receive(program), BTreeMap::from([(from, 1)]));
    sender.send_to(&[7; 60], own).unwrap();
    assert_eq!(receive(program), BTreeMap::from([(from, 1)]));
}

/// The kernel joins no datagrams of programs that answer each other, and joins those of longer messages.
#[test]
fn messages_of_any_length_follow_short_ones_that_were_answered() {
    let mut programs = Programs::new();
    programs.connect();
    connect_sockets(&mut programs);
    for _ in 0..2 {
        let end = Instant::now() + Duration::from_millis(150);
        while Instant::now() < end {
            for from in [0, 1] {
                assert_eq!(programs.pass(from, vec![7; 8]), [7; 8]);
            }
        }
        pass_all(&mut programs);
    }
    for program in &programs.both {
        let counters = program.node.counters();
        assert_eq!((counters.asked_again, counters.ignored), (0, 0));
    }
}

/// RFC 1122, section 4.1.3.1: the host of a program that has ended refuses its datagrams.
#[test]
fn a_connected_socket_tells_that_the_program_has_ended() {
    let mut programs = Programs::new();
    programs.connect();
    connect_sockets(&mut programs);
    let ended = programs.both.pop().unwrap().datagrams.address();
    let Program {
        node, datagrams, ..
    } = &mut programs.both[0];
    let now = programs.started.elapsed();
    let own = address(0).endpoint;
    node.send(now, own, address(1), (0, vec![7; 8]), false, 0)
        .unwrap();
    assert!(datagrams.send(node));
    datagrams.receive(16, |_, _| {});
    assert_eq!(datagrams.refused(), [ended]);
    node.program_ended(now, ended);
    let disconnected = |event: &Event| matches!(event, Event::Disconnected { .. });
    assert!(std::iter::from_fn(|| node.event()).any(|event| disconnected(&event)));
}
