//! Endpoints of two hosts, which are network namespaces with an Ethernet link between them: real
//! uplinks, real frames. Needs root, `ip` and `python3`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::vicinity;
use message::{Address, Board, Code, Completion, Endpoint, Options, Pattern, Peer, Request};

/// So long nothing takes; what takes longer is stuck.
const HANG: Duration = Duration::from_secs(120);

/// Lengths on both sides of every change of class, on the wire and in windows.
const LENGTHS: [usize; 12] = [
    0, 8, 48, 49, 128, 129, 4096, 4097, 32_768, 32_769, 100_000, 1_000_003,
];

/// Two hosts, or what is there of them.
struct Hosts {
    names: [String; 3],
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words:?}: {said}");
}

impl Hosts {
    /// Two namespaces and a link, or one from each to a wire in a third.
    fn new(wire: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |part| format!("between-{}-{number}-{part}", std::process::id());
        let hosts = Self {
            names: ["a", "b", "wire"].map(name),
            folder: tempfile::tempdir().unwrap(),
            children: Vec::new(),
        };
        for name in &hosts.names {
            ip(&["netns", "add", name]);
        }
        let [a, b, between] = &hosts.names;
        let link = |(one, left), (other, right)| {
            ip(&[
                "-n", one, "link", "add", left, "mtu", "4200", "type", "veth", "peer", "name",
                right, "mtu", "4200", "netns", other,
            ]);
            ip(&["-n", one, "link", "set", left, "up"]);
            ip(&["-n", other, "link", "set", right, "up"]);
        };
        match wire {
            false => link((a, "mx"), (b, "mx")),
            true => {
                link((a, "mx"), (between, "left"));
                link((b, "mx"), (between, "right"));
            }
        }
        hosts
    }

    fn within(&self, place: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[place]]);
        command.arg(program);
        command
    }

    /// Start something that goes on until the test ends, and wait until it says that it is ready.
    fn start(&mut self, command: &mut Command, ready: impl Fn(&str) -> bool) -> usize {
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        self.children.push(child);
        let output = self.children.last_mut().unwrap().stderr.take().unwrap();
        let mut lines = BufReader::new(output).lines();
        assert!(lines.any(|line| ready(&line.unwrap())), "{command:?} ended");
        // Whatever else it says has a reader.
        std::thread::spawn(move || lines.for_each(drop));
        self.children.len() - 1
    }

    fn python(&mut self, place: usize, script: &str, words: &[&str]) {
        let scripts = "../mxoe/tests/witness";
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(scripts)
            .join(script);
        let mut command = self.within(place, Path::new("sh"));
        // What they say is said on standard output.
        command.args(["-c", "exec python3 \"$@\" >&2", "sh"]);
        command.arg(script).args(words);
        self.start(&mut command, |line| line == "ready");
    }

    fn wire(&mut self, loss: &str, doubling: &str, delay: &str) {
        self.python(2, "wire.py", &["left", "right", loss, doubling, delay, "7"]);
    }

    fn runtime(&self, place: usize) -> PathBuf {
        self.folder.path().join(["a", "b"][place])
    }

    /// The daemon of a host.
    fn serve(&mut self, place: usize) -> usize {
        let program = vicinity().get_program().to_owned();
        let mut command = self.within(place, Path::new(&program));
        command.arg("--runtime-dir").arg(self.runtime(place));
        let name = ["alpha", "beta"][place];
        command.args([
            "message",
            "serve",
            "host",
            "--uplink",
            "mx",
            "--host-name",
            name,
        ]);
        command.args(["--give-up", "5"]);
        self.start(&mut command, |line| line == "serving 2 members")
    }

    fn board(&self, place: usize) -> Board {
        Board::open(&self.runtime(place).join("message")).unwrap()
    }

    /// Wait until a host knows another, and open an endpoint there.
    fn open(&self, place: usize, other: &str) -> Endpoint {
        let board = loop {
            // There is a board as soon as the uplink is there.
            let hosts = self.runtime(place).join("message/hosts");
            let text = std::fs::read_to_string(hosts).unwrap_or_default();
            if text.lines().any(|line| line.ends_with(other)) {
                let board = self.board(place);
                if board.has_gateway() {
                    break board;
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Endpoint::open(&board, &Options::default()).unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended itself.
            drop(child.kill());
            drop(child.wait());
        }
        for name in &self.names {
            drop(Command::new("ip").args(["netns", "del", name]).output());
        }
    }
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let byte = |at: usize| (at as u64).wrapping_mul(31).wrapping_add(seed) as u8;
    (0..length).map(byte).collect()
}

/// Work with both until a request of one ends.
fn both(one: &mut Endpoint, other: &mut Endpoint, request: Request) -> Completion {
    let end = std::time::Instant::now() + HANG;
    loop {
        assert!(std::time::Instant::now() < end, "nothing happens any more");
        if let Some(done) = one.test(request).unwrap() {
            return done;
        }
        other.progress();
        // The uplinks have as few processors.
        std::thread::yield_now();
    }
}

/// Connect two endpoints; what each is to the other.
fn connect(a: &mut Endpoint, b: &mut Endpoint) -> (Peer, Peer) {
    let request = a.iconnect(b.address(), 0, 0).unwrap();
    let to_b = both(a, b, request).status.peer.unwrap();
    let request = b.iconnect(a.address(), 0, 0).unwrap();
    let to_a = both(b, a, request).status.peer.unwrap();
    assert_eq!(a.address_of(to_b), Some(b.address()));
    assert_eq!(b.address_of(to_a), Some(a.address()));
    (to_b, to_a)
}

/// Every length, buffered and synchronous, there and back, awaited and not.
fn exchange(a: &mut Endpoint, b: &mut Endpoint, peer: Peer) {
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        for (synchronous, early) in [(false, true), (true, false)] {
            let bytes = pattern(length, seed as u64);
            let early = early.then(|| b.irecv(Pattern::ANY, vec![0; length]).unwrap());
            let sent = match synchronous {
                true => a.issend(peer, 7, bytes.clone()).unwrap(),
                false => a.isend(peer, 7, bytes.clone()).unwrap(),
            };
            let receive = early.unwrap_or_else(|| b.irecv(Pattern::ANY, vec![0; length]).unwrap());
            let got = both(b, a, receive);
            assert_eq!(got.status.code, Code::Success);
            assert_eq!(got.memory.bytes(), bytes, "{length} bytes");
            let sent = both(a, b, sent).status;
            assert_eq!((sent.code, sent.taken), (Code::Success, length as u64));
        }
    }
}

fn two_hosts(wire: Option<[&str; 3]>) -> (Hosts, Endpoint, Endpoint) {
    let mut hosts = Hosts::new(wire.is_some());
    if let Some([loss, doubling, delay]) = wire {
        hosts.wire(loss, doubling, delay);
    }
    hosts.serve(0);
    hosts.serve(1);
    let (a, b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    (hosts, a, b)
}

#[test]
fn endpoints_of_two_hosts_exchange_every_length_both_ways() {
    let (hosts, mut a, mut b) = two_hosts(None);
    let (to_b, to_a) = connect(&mut a, &mut b);
    exchange(&mut a, &mut b, to_b);
    exchange(&mut b, &mut a, to_a);
    // A receiver with too little room: both sides are told how much was taken, if it is large.
    for (length, taken) in [(1000, 1000), (100_000, 10)] {
        let sent = a.isend(to_b, 1, pattern(length, 1)).unwrap();
        let receive = b.irecv(Pattern::ANY, vec![0; 10]).unwrap();
        let got = both(&mut b, &mut a, receive).status;
        assert_eq!((got.code, got.taken), (Code::Truncated, 10));
        assert_eq!(both(&mut a, &mut b, sent).status.taken, taken);
    }
    // Nobody is let in without the key, and nobody is where there is nobody.
    let address = b.address();
    let mut other = hosts.open(0, " beta");
    let refused = other.iconnect(address, 5, 0).unwrap();
    assert_eq!(both(&mut other, &mut b, refused).status.code, Code::BadKey);
    let nobody = Address {
        endpoint: 99,
        ..address
    };
    let refused = other.iconnect(nobody, 0, 0).unwrap();
    assert_eq!(both(&mut other, &mut b, refused).status.code, Code::Closed);
    // What was sent before an endpoint closed arrives; what waits for it ends.
    let last = b.isend(to_a, 9, pattern(3000, 9)).unwrap();
    assert!(b.test(last).unwrap().is_some());
    let waits = a.issend(to_b, 2, pattern(100_000, 2)).unwrap();
    drop(b);
    let receive = a.irecv(Pattern::exactly(9), vec![0; 3000]).unwrap();
    let got = both(&mut a, &mut other, receive);
    assert_eq!(got.memory.bytes(), pattern(3000, 9));
    let ended = both(&mut a, &mut other, waits).status.code;
    assert_eq!(ended, Code::Closed);
}

#[test]
fn endpoints_of_two_hosts_through_loss_doubling_and_reordering() {
    let (_hosts, mut a, mut b) = two_hosts(Some(["3", "5", "3"]));
    let (to_b, to_a) = connect(&mut a, &mut b);
    exchange(&mut a, &mut b, to_b);
    exchange(&mut b, &mut a, to_a);
}

#[test]
fn a_receiver_that_does_not_take_holds_back_a_sender_on_another_host() {
    const COUNT: u64 = 2000;
    const LENGTH: usize = 30_000;
    let (_hosts, mut a, mut b) = two_hosts(None);
    let (to_b, _) = connect(&mut a, &mut b);
    // More than anybody keeps for anybody: it does not all fit, however long it is tried.
    let send = |a: &mut Endpoint, value| a.isend(to_b, value, pattern(LENGTH, value)).unwrap();
    let sent: Vec<_> = (0..COUNT).map(|value| send(&mut a, value)).collect();
    let end = std::time::Instant::now() + Duration::from_secs(7);
    while std::time::Instant::now() < end {
        // It is there, and listens until it has too much: it is not given up.
        b.progress();
        a.progress();
        std::thread::yield_now();
    }
    assert!(!a.is_ended(*sent.last().unwrap()).unwrap());
    for value in 0..COUNT {
        let receive = b.irecv(Pattern::ANY, vec![0; LENGTH]).unwrap();
        let got = both(&mut b, &mut a, receive);
        assert_eq!((got.status.code, got.status.value), (Code::Success, value));
        assert_eq!(got.memory.bytes(), pattern(LENGTH, value));
    }
    for request in sent {
        assert_eq!(both(&mut a, &mut b, request).status.code, Code::Success);
    }
}

#[test]
fn a_host_that_dies_is_given_up_and_can_come_again() {
    let mut hosts = Hosts::new(false);
    hosts.serve(0);
    let other = hosts.serve(1);
    let (mut a, mut b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    let (to_b, _) = connect(&mut a, &mut b);
    let waits = a.issend(to_b, 1, pattern(100_000, 1)).unwrap();
    hosts.children[other].kill().unwrap();
    hosts.children[other].wait().unwrap();
    drop(b);
    let ended = a.wait(waits, Some(HANG)).unwrap().unwrap();
    assert_eq!(ended.status.code, Code::Unreachable);
    hosts.serve(1);
    let mut b = hosts.open(1, " alpha");
    let (to_b, _) = connect(&mut a, &mut b);
    exchange(&mut a, &mut b, to_b);
}

#[test]
fn an_independent_host_talks_to_an_endpoint() {
    let mut hosts = Hosts::new(true);
    hosts.wire("2", "3", "2");
    hosts.serve(0);
    hosts.python(1, "mxoe.py", &["mx", "5", "77"]);
    let mut a = hosts.open(0, " witness");
    let nic = hosts.board(0).find("witness");
    let to = Address { nic, endpoint: 5 };
    let peer = a.connect(to, 77, Some(HANG)).unwrap();
    for (value, length) in (0..).zip(LENGTHS) {
        let bytes = pattern(length, value);
        let sent = a.isend(peer, value, bytes.clone()).unwrap();
        let back = a.irecv(Pattern::exactly(value), vec![0; length]).unwrap();
        let got = a.wait(back, Some(HANG)).unwrap().unwrap();
        assert_eq!(got.memory.bytes(), bytes, "{length} bytes");
        let sent = a.wait(sent, Some(HANG)).unwrap().unwrap();
        assert_eq!(sent.status.code, Code::Success);
    }
}

#[test]
fn hosts_are_pinged_by_name() {
    let mut hosts = Hosts::new(false);
    hosts.serve(0);
    hosts.serve(1);
    drop((hosts.open(0, " beta"), hosts.open(1, " alpha")));
    let run = |place: usize, words: &[&str]| {
        let mut command = vicinity();
        command.arg("--runtime-dir").arg(hosts.runtime(place));
        command.arg("message").args(words);
        command
    };
    let answer = run(1, &["answer", "--endpoint", "7"])
        .stderr(Stdio::piped())
        .spawn();
    let mut answer = Killed(answer.unwrap());
    let mut line = String::new();
    let said = answer.0.stderr.as_mut().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    assert!(line.contains("answers"), "{line}");
    for length in ["0", "8", "5000", "524288"] {
        let words = ["ping", "beta:7", "--length", length, "--count", "10"];
        let output = run(0, &words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains(&format!("10 round trips of {length} B")),
            "{output:?}"
        );
    }
    let output = run(0, &["ping", "gamma:7"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("not open"), "{text}");
}

/// Killed when the test ends, however it ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
