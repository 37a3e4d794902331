//! Two hosts, and the exchange of messages between their endpoints.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use message::{Board, Code, Completion, Endpoint, Options, Pattern, Peer, Request};

use crate::common::{self, HANG, until, vicinity};

/// Lengths on both sides of every boundary between message classes, both on the wire and in
/// windows.
pub(crate) const LENGTHS: [usize; 12] = [
    0, 8, 48, 49, 128, 129, 4096, 4097, 32_768, 32_769, 100_000, 1_000_003,
];

/// Two hosts with the processes that have been started on them.
pub(crate) struct Hosts {
    names: [String; 3],
    pub(crate) folder: tempfile::TempDir,
    pub(crate) children: Vec<Child>,
}

/// The kernel's counters of received datagrams of UDP: a file of `/proc/net`, and the name in front of the number.
pub(crate) const V4: &str = "snmp Udp: ";
pub(crate) const V6: &str = "snmp6 Udp6InDatagrams";

fn ip(words: &[&str]) -> String {
    let output = Command::new("ip").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

impl Hosts {
    /// Creates two network namespaces with a link between them, or with `wire`, a link from each to
    /// a third namespace.
    pub(crate) fn new(wire: bool) -> Self {
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

    /// Sets a host's interface down, or up again.
    pub(crate) fn set_interface(&self, place: usize, state: &str) {
        ip(&["-n", &self.names[place], "link", "set", "mx", state]);
    }

    /// Sets the MTU of both hosts' interfaces.
    pub(crate) fn set_mtu(&self, mtu: u32) {
        for place in [0, 1] {
            self.ip(place, &["link", "set", "mx", "mtu", &mtu.to_string()]);
        }
    }

    /// Runs `ip` on a host and returns what it prints.
    pub(crate) fn ip(&self, place: usize, words: &[&str]) -> String {
        ip(&[&["-n", &self.names[place]], words].concat())
    }

    /// Returns how many datagrams of UDP a host has received.
    pub(crate) fn datagrams_received(&self, place: usize, family: &str) -> u64 {
        let (file, name) = family.split_once(' ').unwrap();
        let mut command = self.within(place, Path::new("cat"));
        let output = command.arg(format!("/proc/net/{file}")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // The last one: in `snmp`, a line with names comes before that with numbers.
        let line = text.lines().rfind(|line| line.starts_with(name)).unwrap();
        let number = line[name.len()..].split_whitespace().next();
        number.unwrap().parse().unwrap()
    }

    pub(crate) fn within(&self, place: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[place]]);
        command.arg(program);
        command
    }

    /// Starts a program that runs until the test ends, and waits until its output shows that it is
    /// ready.
    pub(crate) fn start(&mut self, command: &mut Command, ready: impl Fn(&str) -> bool) -> usize {
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        self.children.push(child);
        let output = self.children.last_mut().unwrap().stderr.take().unwrap();
        let mut lines = BufReader::new(output).lines();
        assert!(lines.any(|line| ready(&line.unwrap())), "{command:?} ended");
        // Read the rest of the output, so that the pipe does not fill.
        std::thread::spawn(move || lines.for_each(drop));
        self.children.len() - 1
    }

    pub(crate) fn python(&mut self, place: usize, script: &str, words: &[&str]) {
        let scripts = "../mxoe/tests/independent";
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(scripts)
            .join(script);
        let mut command = self.within(place, Path::new("sh"));
        // The scripts print to standard output, but `start` reads standard error.
        command.args(["-c", "exec python3 \"$@\" >&2", "sh"]);
        command.arg(script).args(words);
        self.start(&mut command, |line| line == "ready");
    }

    pub(crate) fn wire(&mut self, loss: &str, doubling: &str, delay: &str) {
        self.python(2, "wire.py", &["left", "right", loss, doubling, delay, "7"]);
    }

    pub(crate) fn runtime(&self, place: usize) -> PathBuf {
        self.folder.path().join(["a", "b"][place])
    }

    /// Starts the daemon of a host, with these members in addition to the host itself.
    pub(crate) fn serve_with(&mut self, place: usize, members: &[&str]) -> usize {
        self.serve_with_keys(place, members, ["", ""])
    }

    /// The same, with further keys of `[message]` and of its uplink.
    pub(crate) fn serve_with_keys(
        &mut self,
        place: usize,
        members: &[&str],
        [keys, uplink_keys]: [&str; 2],
    ) -> usize {
        let name = ["alpha", "beta"][place];
        let member = |name| format!("[[message.member]]\nname = \"{name}\"\n");
        let members: String = members.iter().chain(&["host"]).map(member).collect();
        let config = self.folder.path().join(format!("{name}.toml"));
        let text = format!(
            "[message]\n{keys}\n\
             uplink = {{ interface = \"mx\", host-name = \"{name}\", peer-timeout = 5{uplink_keys} }}\n{members}"
        );
        std::fs::write(&config, text).unwrap();
        let program = vicinity().get_program().to_owned();
        let mut command = self.within(place, Path::new(&program));
        command.arg("--runtime-dir").arg(self.runtime(place));
        command.arg("serve").arg("--config").arg(config);
        self.start(&mut command, |line| line.contains("serving"))
    }

    pub(crate) fn serve(&mut self, place: usize) -> usize {
        self.serve_with(place, &[])
    }

    /// Starts the message plane of a host without a configuration, a supervisor and a sandbox.
    pub(crate) fn serve_plainly(&mut self, place: usize) -> usize {
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
        command.args(["--peer-timeout", "5"]);
        self.start(&mut command, |line| line == "serving 2 members")
    }

    pub(crate) fn board(&self, place: usize) -> Board {
        Board::open(&self.runtime(place).join("message")).unwrap()
    }

    /// Waits until a host knows another, and opens an endpoint on it.
    pub(crate) fn open(&self, place: usize, other: &str) -> Endpoint {
        until(other, || {
            self.knows(&self.runtime(place).join("message"), other)
        });
        Endpoint::open(&self.board(place), &Options::default()).unwrap()
    }

    /// Returns whether a board knows a name.
    pub(crate) fn knows(&self, board: &Path, name: &str) -> bool {
        let text = std::fs::read_to_string(board.join("hosts")).unwrap_or_default();
        text.lines().any(|line| line.ends_with(name))
    }

    /// Returns the daemon's counters of a host's message plane.
    pub(crate) fn counters(&self, place: usize) -> serde_json::Value {
        let mut command = vicinity();
        command.arg("--runtime-dir").arg(self.runtime(place));
        let output = command
            .args(["message", "counters", "--json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the process id of a daemon's child process of this name.
    pub(crate) fn process(&self, daemon: usize, name: &str) -> u32 {
        let id = self.children[daemon].id();
        let mut found = None;
        until(name, || {
            found = common::child_of(id, name);
            found.is_some()
        });
        found.unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The process may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
        for name in &self.names {
            drop(Command::new("ip").args(["netns", "del", name]).output());
        }
    }
}

pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let byte = |at: usize| (at as u64).wrapping_mul(31).wrapping_add(seed) as u8;
    (0..length).map(byte).collect()
}

/// Polls both endpoints until a request of one ends. The other one polls without success, as an MPI library does. If the programs lose their processor, such
/// a poll looks for connects; `progress` alone does that once in a thousand calls, which takes seconds beside busy programs.
pub(crate) fn both(one: &mut Endpoint, other: &mut Endpoint, request: Request) -> Completion {
    let end = std::time::Instant::now() + HANG;
    loop {
        assert!(std::time::Instant::now() < end, "nothing happens any more");
        if let Some(done) = one.test(request).unwrap() {
            return done;
        }
        other.progress();
        other.polled(false);
        // Yield, because the uplinks run on the same few processors.
        std::thread::yield_now();
    }
}

/// Connects two endpoints. Returns each endpoint's peer.
pub(crate) fn connect(a: &mut Endpoint, b: &mut Endpoint) -> (Peer, Peer) {
    let request = a.iconnect(b.address(), 0, 0).unwrap();
    let status = both(a, b, request).status;
    let to_b = status.peer.unwrap_or_else(|| panic!("{status:?}"));
    let request = b.iconnect(a.address(), 0, 0).unwrap();
    let to_a = both(b, a, request).status.peer.unwrap();
    assert_eq!(a.address_of(to_b), Some(b.address()));
    assert_eq!(b.address_of(to_a), Some(a.address()));
    (to_b, to_a)
}

/// Exchanges messages of every length in both directions, buffered and synchronous, with the
/// receive posted before and after the message.
pub(crate) fn exchange(a: &mut Endpoint, b: &mut Endpoint, peer: Peer) {
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

pub(crate) fn two_hosts(wire: Option<[&str; 3]>) -> (Hosts, Endpoint, Endpoint) {
    let mut hosts = Hosts::new(wire.is_some());
    if let Some([loss, doubling, delay]) = wire {
        hosts.wire(loss, doubling, delay);
    }
    hosts.serve(0);
    hosts.serve(1);
    let (a, b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    (hosts, a, b)
}

/// Connects two endpoints. Retries until there is a connection between the hosts.
pub(crate) fn connect_again(a: &mut Endpoint, b: &mut Endpoint) -> (Peer, Peer) {
    until("a way", || {
        // Without a gateway, the request itself fails.
        let request = a.iconnect(b.address(), 0, 0);
        request.is_ok_and(|request| both(a, b, request).status.code == Code::Success)
    });
    connect(a, b)
}
