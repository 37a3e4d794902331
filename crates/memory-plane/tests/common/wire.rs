//! A veth pair between two network namespaces on which the kernel does not copy zero-copy sends at the sender: see `xdp.py`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The addresses of the two ends.
pub(crate) const SERVER_ADDRESS: &str = "10.77.0.1";
const CLIENT_ADDRESS: &str = "10.77.0.2";

pub(crate) struct Wire {
    /// The namespaces of the two ends.
    pub(crate) server: String,
    pub(crate) client: String,
    program: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments:?}: {stderr}");
}

impl Wire {
    /// Creates the namespaces and the pair. Without root, prints that the test is skipped and returns `None`.
    pub(crate) fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |part| format!("lent-{}-{number}-{part}", std::process::id());
        let (server, client) = (name("here"), name("there"));
        for name in [&server, &client] {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        let ends = ["-n", &server, "link", "add", "wire", "type", "veth"];
        let peer = ["peer", "name", "wire", "netns", &client];
        ip(&[&ends[..], &peer].concat());
        for (name, address) in [(&server, SERVER_ADDRESS), (&client, CLIENT_ADDRESS)] {
            let address = format!("{address}/24");
            ip(&["-n", name, "address", "add", &address, "dev", "wire"]);
            ip(&["-n", name, "link", "set", "wire", "up"]);
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/xdp.py");
        let mut program = Command::new("ip")
            .args(["netns", "exec", &client, "python3", script, "wire"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = program.stdin.take().unwrap();
        let stdout = BufReader::new(program.stdout.take().unwrap());
        let mut wire = Self {
            server,
            client,
            program,
            stdin,
            stdout,
        };
        wire.expect("pass");
        Some(wire)
    }

    /// Passes or drops the frames from the server to the client. The other direction is always open.
    pub(crate) fn set_pass(&mut self, pass: bool) {
        let word = if pass { "pass" } else { "drop" };
        writeln!(self.stdin, "{word}").unwrap();
        self.expect(word);
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }
}

/// Runs `work` in a network namespace. Sockets that it creates stay in that namespace.
pub(crate) fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let client = || {
            enter(namespace);
            work()
        };
        scope.spawn(client).join().unwrap()
    })
}

/// Moves this thread into a network namespace.
pub(crate) fn enter(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&file),
        Some(LinkNameSpaceType::Network),
    )
    .unwrap();
}

impl Drop for Wire {
    fn drop(&mut self) {
        drop(self.program.kill());
        drop(self.program.wait());
        for name in [&self.server, &self.client] {
            drop(Command::new("ip").args(["netns", "delete", name]).status());
        }
    }
}
