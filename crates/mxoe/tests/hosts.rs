//! Hosts on a network of the kernel: namespaces, AF_PACKET sockets, and between them a program that
//! loses, duplicates and reorders frames. The peer is this crate, or an independent implementation
//! in Python. Needs root, `ip` and `python3`.
//!
//! The tests start this program again in a namespace (the test `child`). Environment variables tell
//! the child its role.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mxoe::wire::Mac;
use mxoe::{Address, Code, Config, Event, Message, Node, Port, Pull};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const ROLE: &str = "VICINITY_TEST_ROLE";
const PEER: &str = "VICINITY_TEST_PEER";
const WIRE: &str = "VICINITY_TEST_WIRE";

/// No step takes this long, so a test that does is stuck.
const TIMEOUT: Duration = Duration::from_secs(300);

const ENDPOINT: u8 = 5;
const KEY: u32 = 77;

/// Three namespaces in a row: two hosts, and the program between them.
struct Hosts {
    names: [String; 3],
    children: Vec<Child>,
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words:?}: {stderr}");
}

impl Hosts {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |part| format!("mxoe-{}-{number}-{part}", std::process::id());
        let hosts = Self {
            names: ["local", "wire", "remote"].map(name),
            children: Vec::new(),
        };
        for name in &hosts.names {
            ip(&["netns", "add", name]);
        }
        let [local, wire, remote] = &hosts.names;
        for (host, end) in [(local, "left"), (remote, "right")] {
            ip(&[
                "-n", host, "link", "add", "mx", "mtu", "4200", "type", "veth", "peer", "name",
                end, "mtu", "4200", "netns", wire,
            ]);
            ip(&["-n", host, "link", "set", "mx", "up"]);
            ip(&["-n", wire, "link", "set", end, "up"]);
        }
        hosts
    }

    fn within(&self, place: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[place]]);
        command.arg(program);
        command
    }

    /// Starts a program that prints `ready` and runs until the test ends.
    fn start(&mut self, command: &mut Command) {
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        self.children.push(child);
        let output = self.children.last_mut().unwrap().stdout.take().unwrap();
        let mut lines = BufReader::new(output).lines();
        let ready = lines.any(|line| line.unwrap() == "ready");
        assert!(ready, "{command:?} ended");
    }

    fn python(&mut self, place: usize, script: &str, words: &[&str]) {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent");
        let mut command = self.within(place, Path::new("python3"));
        command.arg(scripts.join(script)).args(words);
        self.start(&mut command);
    }

    fn wire(&mut self, loss: &str, duplication: &str, delay: &str) {
        let words = ["left", "right", loss, duplication, delay, "7"];
        self.python(1, "wire.py", &words);
    }

    /// Returns the command that runs this program with a role in a namespace.
    fn role(&self, place: usize, role: &str) -> Command {
        let mut command = self.within(place, &std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--ignored", "--nocapture"]);
        command.env(ROLE, role).env(PEER, self.mac(2));
        command.env(WIRE, &self.names[1]);
        command
    }

    /// Returns the MAC address of a host.
    fn mac(&self, place: usize) -> String {
        let mut command = self.within(place, Path::new("cat"));
        let output = command.arg("/sys/class/net/mx/address").output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs a role in the first namespace to its end.
    fn run(&mut self, role: &str) {
        let mut command = self.role(0, role);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{role}: {stderr}");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The child may have ended already.
            drop(child.kill());
            drop(child.wait());
        }
        for name in &self.names {
            drop(Command::new("ip").args(["netns", "del", name]).output());
        }
    }
}

#[test]
#[ignore = "the other tests start it"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let interface = if role == "flood" { "left" } else { "mx" };
    let mut port = Port::open(interface, []).unwrap();
    let mac = mxoe::address(interface).unwrap();
    let mut node = Node::new(Config::new(mac, &role, std::process::id()));
    node.open(port.now(), ENDPOINT, KEY, std::process::id());
    match role.as_str() {
        "echo" => echo(&mut port, &mut node),
        "drive" => drive(&mut port, &mut node),
        "find" => find(&mut port, &mut node),
        "flood" => flood(&mut port, &mut node),
        "overflow" => overflow(&mut port),
        "link_down" => link_down(&port),
        other => panic!("no role {other}"),
    }
}

fn peer() -> Address {
    let text = std::env::var(PEER).unwrap();
    let bytes = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap());
    let host = Mac(bytes.collect::<Vec<_>>().try_into().unwrap());
    Address {
        host,
        endpoint: ENDPOINT,
    }
}

/// Sends queued frames, waits for a frame or a deadline, and receives what arrived.
fn exchange_once(port: &mut Port, node: &mut Node, limit: Duration) {
    let sent = port.send(node).unwrap();
    let due = node.deadline().map(|at| at.saturating_sub(port.now()));
    let pause = due.unwrap_or(limit).min(limit);
    let pause = Timespec::try_from(pause).unwrap();
    let wanted = match sent {
        true => PollFlags::IN,
        false => PollFlags::IN | PollFlags::OUT,
    };
    poll(&mut [PollFd::new(port, wanted)], Some(&pause)).unwrap();
    let now = port.now();
    port.receive(|frame| node.receive(now, frame));
    node.tick(now);
    port.send(node).unwrap();
}

/// Running pulls: their match values, and the bytes that arrived.
#[derive(Default)]
struct Pulls(Vec<(u64, Pull, Vec<u8>)>);

impl Pulls {
    fn take(&mut self, port: &Port, node: &mut Node) {
        for (_, pull, data) in &mut self.0 {
            while let Some(piece) = node.next_piece(port.now(), ENDPOINT, *pull) {
                data.extend(piece);
            }
        }
    }

    fn end(&mut self, value: u64) -> Vec<u8> {
        let place = self.0.iter().position(|pull| pull.0 == value).unwrap();
        self.0.remove(place).2
    }
}

/// Sends every message back.
fn echo(port: &mut Port, node: &mut Node) {
    node.announce(port.now());
    println!("\nready");
    let mut pulls = Pulls::default();
    let mut peer = None;
    loop {
        exchange_once(port, node, TIMEOUT);
        let now = port.now();
        while let Some(message) = peer.and_then(|peer| node.next_message(now, ENDPOINT, peer)) {
            match message {
                Message::Whole { value, data } => {
                    let to = peer.unwrap();
                    node.send(now, ENDPOINT, to, (value, data), false, value)
                        .unwrap();
                }
                Message::Offered {
                    value,
                    length,
                    offer,
                } => {
                    let pull = node.pull(now, ENDPOINT, offer, length, value).unwrap();
                    pulls.0.push((value, pull, Vec::new()));
                }
            }
        }
        pulls.take(port, node);
        while let Some(event) = node.event() {
            match event {
                Event::PeerConnected { from, .. } => peer = Some(from),
                Event::Pulled { token, code } => {
                    assert_eq!(code, Code::Success);
                    let message = (token, pulls.end(token));
                    node.send(now, ENDPOINT, peer.unwrap(), message, true, token)
                        .unwrap();
                }
                Event::Sent { code, .. } => assert_eq!(code, Code::Success),
                _ => {}
            }
        }
    }
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let byte = |at: usize| (at as u64).wrapping_mul(31).wrapping_add(seed) as u8;
    (0..length).map(byte).collect()
}

/// Lengths on both sides of every boundary between kinds; multiples of a page and others.
const LENGTHS: [usize; 16] = [
    1, 32, 33, 128, 129, 4095, 4096, 4097, 20_000, 32_768, 32_769, 65_436, 65_437, 65_536, 100_000,
    300_001,
];

const ROUNDS: usize = 3;

/// Sends every length several times, and checks that each message returns once, whole and in order.
fn drive(port: &mut Port, node: &mut Node) {
    let end = port.now() + TIMEOUT;
    node.connect(port.now(), ENDPOINT, peer(), KEY, 0).unwrap();
    let count = (LENGTHS.len() * ROUNDS) as u64;
    let length = |value: u64| LENGTHS[value as usize % LENGTHS.len()];
    let (mut sent, mut back) = (0, 0);
    // Small messages return in the order of their sends, and so do large ones; the echo of a large
    // message takes longer than that of a small one that was sent later.
    let mut last = [None; 2];
    let mut pulls = Pulls::default();
    while sent < count || back < count {
        assert!(port.now() < end, "{sent} sent, {back} back of {count}");
        exchange_once(port, node, Duration::from_millis(100));
        let now = port.now();
        while let Some(message) = node.next_message(now, ENDPOINT, peer()) {
            match message {
                Message::Whole { value, data } => {
                    assert_eq!(data, pattern(length(value), value), "{value}");
                    assert!(last[0] < Some(value));
                    last[0] = Some(value);
                    back += 1;
                }
                Message::Offered {
                    value,
                    length,
                    offer,
                } => {
                    let pull = node.pull(now, ENDPOINT, offer, length, value).unwrap();
                    pulls.0.push((value, pull, Vec::new()));
                }
            }
        }
        pulls.take(port, node);
        while let Some(event) = node.event() {
            match event {
                Event::Connected { code, .. } => {
                    assert_eq!(code, Code::Success);
                    for value in 0..count {
                        // Some short messages are synchronous.
                        let synchronous = value % 7 == 3;
                        let message = (value, pattern(length(value), value));
                        node.send(now, ENDPOINT, peer(), message, synchronous, value)
                            .unwrap();
                    }
                }
                Event::Sent { token, code, taken } => {
                    assert_eq!((code, taken as usize), (Code::Success, length(token)));
                    sent += 1;
                }
                Event::Pulled { token, code } => {
                    let data = pulls.end(token);
                    assert_eq!((code, data), (Code::Success, pattern(length(token), token)));
                    last[1] = Some(token);
                    back += 1;
                }
                _ => {}
            }
        }
    }
}

/// Finds the other host by its announcements.
fn find(port: &mut Port, node: &mut Node) {
    let end = port.now() + TIMEOUT;
    node.announce(port.now());
    loop {
        assert!(port.now() < end);
        exchange_once(port, node, Duration::from_millis(100));
        while let Some(event) = node.event() {
            if let Event::Host { host, name } = event {
                assert_eq!((host, name.as_str()), (peer().host, "echo"));
                return;
            }
        }
    }
}

/// Many more frames than the receive ring holds.
const FLOOD: u64 = 10_000;

/// Announces this host many times.
fn flood(port: &mut Port, node: &mut Node) {
    node.announce(Duration::ZERO);
    for number in 1..FLOOD {
        // Later than the deadline of the next announcement.
        node.tick(Duration::from_secs(number * 200));
        while !port.send(node).unwrap() {
            poll(&mut [PollFd::new(port, PollFlags::OUT)], None).unwrap();
        }
    }
}

/// Takes no frame until another host has sent all of its frames.
fn overflow(port: &mut Port) {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &std::env::var(WIRE).unwrap()]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--ignored"]);
    assert!(command.env(ROLE, "flood").status().unwrap().success());
    let end = port.now() + TIMEOUT;
    while port.lost().unwrap() == 0 {
        assert!(port.now() < end, "nothing was lost");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The frames that fit into the ring are there, and complete.
    let mut taken = 0;
    while port.receive(|frame| assert_eq!(frame.len(), 64)) > 0 {
        taken += 1;
    }
    assert!(taken > 10, "{taken} rounds");
}

/// Checks that the port reports that the interface went down, although nothing is sent.
fn link_down(port: &Port) {
    port.check().unwrap();
    ip(&["link", "set", "mx", "down"]);
    let limit = Timespec::try_from(TIMEOUT).unwrap();
    let ready = poll(&mut [PollFd::new(port, PollFlags::IN)], Some(&limit));
    assert_eq!(ready.unwrap(), 1, "the port did not become readable");
    let error = port.check().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown, "{error}");
}

fn with_echo(loss: &str, duplication: &str, delay: &str) -> Hosts {
    let mut hosts = Hosts::new();
    hosts.wire(loss, duplication, delay);
    let mut echo = hosts.role(2, "echo");
    hosts.start(&mut echo);
    hosts
}

#[test]
fn mxoe_5_messages_of_every_class_between_two_hosts() {
    with_echo("0", "0", "0").run("drive");
}

#[test]
fn mxoe_4_two_hosts_with_loss_duplication_and_reordering() {
    with_echo("3", "5", "3").run("drive");
}

#[test]
fn mxoe_6_two_hosts_find_each_other() {
    with_echo("5", "5", "3").run("find");
}

#[test]
fn frames_that_overflow_the_receive_ring_are_counted() {
    Hosts::new().run("overflow");
}

#[test]
fn a_port_reports_an_interface_that_goes_down() {
    Hosts::new().run("link_down");
}

fn with_independent(loss: &str, duplication: &str, delay: &str) -> Hosts {
    let mut hosts = Hosts::new();
    hosts.wire(loss, duplication, delay);
    hosts.python(
        2,
        "mxoe.py",
        &["mx", &ENDPOINT.to_string(), &KEY.to_string()],
    );
    hosts
}

#[test]
fn mxoe_5_messages_of_every_class_with_an_independent_host() {
    with_independent("0", "0", "0").run("drive");
}

#[test]
fn mxoe_4_an_independent_host_with_loss_duplication_and_reordering() {
    with_independent("3", "5", "3").run("drive");
}
