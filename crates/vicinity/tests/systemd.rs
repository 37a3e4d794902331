//! `vicinity serve` under a service manager. This test acts as systemd, whose protocols consist of
//! a datagram socket, a descriptor and some variables in the environment.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Daemon, vicinity};
use rustix::process::Signal;

const LAN: &str = "[[network]]\nname = \"lan\"\naccept = true\n";

/// The socket to which a daemon sends its notifications.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        // A limit that ends a test that hangs.
        let guard = Some(Duration::from_secs(60));
        socket.set_read_timeout(guard).unwrap();
        Self { socket, path }
    }

    fn command(&self) -> Command {
        let mut command = vicinity();
        command.env("NOTIFY_SOCKET", &self.path);
        command
    }

    fn next(&self) -> String {
        let mut bytes = [0; 1000];
        let length = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// Returns how many messages wait in the socket.
    fn waiting(&self) -> usize {
        self.socket.set_nonblocking(true).unwrap();
        let count = std::iter::from_fn(|| self.socket.recv(&mut [0; 1000]).ok()).count();
        self.socket.set_nonblocking(false).unwrap();
        count
    }
}

#[test]
fn it_tells_when_it_serves_loads_again_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::new(folder.path());
    let daemon = Daemon::start_by(manager.command(), folder.path(), Some(LAN));
    assert_eq!(manager.next(), "READY=1\n");
    assert!(daemon.command(&["reload"]).status.success());
    let reloading = manager.next();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(manager.next(), "READY=1\n");
    daemon.write("nonsense");
    assert!(!daemon.command(&["reload"]).status.success());
    assert!(manager.next().starts_with("RELOADING=1"));
    assert_eq!(manager.next(), "READY=1\n", "it serves as before");
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(manager.next(), "STOPPING=1\n");
}

/// The supervisor notifies the watchdog. It continues to do so while a network does not answer, and ends that
/// network's data plane.
#[test]
fn the_watchdog_is_notified_while_the_supervisor_answers_whatever_a_network_does() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::new(folder.path());
    let mut command = manager.command();
    command.env("WATCHDOG_USEC", "1000000");
    let daemon = Daemon::start_by(command, folder.path(), Some(LAN));
    let mut said: Vec<String> = (0..4).map(|_| manager.next()).collect();
    said.sort();
    said.dedup();
    assert_eq!(said, ["READY=1\n", "WATCHDOG=1\n"]);
    daemon.signal_data_plane("lan", Signal::STOP);
    while daemon.network("lan")["restarts"] == 0 {
        manager.waiting();
        let started = Instant::now();
        assert_eq!(manager.next(), "WATCHDOG=1\n");
        assert!(started.elapsed() < Duration::from_secs(2));
    }
    assert_eq!(daemon.network("lan")["restarts"], 1);
}

/// Returns the command that starts the daemon, by the program `by` if that is not empty. Descriptor
/// 3 is a socket on which the test listens already.
fn activated(by: &str, socket: UnixListener) -> Command {
    let mut command = Command::new("sh");
    let line = format!("exec 3<&0 </dev/null; LISTEN_FDS=1 exec {by} \"$0\" \"$@\"");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_vicinity")]);
    command.stdin(Stdio::from(OwnedFd::from(socket)));
    command
}

#[test]
fn a_request_before_the_daemon_runs_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    fs::create_dir(&run).unwrap();
    let control = run.join("control.sock");
    let socket = UnixListener::bind(&control).unwrap();
    let early = vicinity()
        .args(["network", "list", "--runtime-dir"])
        .arg(&run)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let daemon = Daemon::start_by(activated("", socket), folder.path(), Some(LAN));
    let early = early.wait_with_output().unwrap();
    assert!(early.status.success());
    assert!(String::from_utf8(early.stdout).unwrap().contains("lan"));
    assert_eq!(daemon.stop(), Some(0));
    assert!(control.exists(), "the socket is the service manager's");
    assert_eq!(fs::read_dir(run).unwrap().count(), 1);
}

#[test]
fn a_socket_at_another_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere.sock");
    // If the program serves nevertheless, `timeout` ends it with another exit code than the
    // expected one.
    let output = activated("timeout 20", UnixListener::bind(&elsewhere).unwrap())
        .args(["serve", "--runtime-dir"])
        .arg(folder.path().join("run"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    for part in ["elsewhere.sock", "run/control.sock", "ListenStream="] {
        assert!(said.contains(part), "{said}");
    }
    common::page::assert_quoted(&said);
}

/// The unit starts the program under test in place of the installed one.
#[test]
fn systemd_understands_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for unit in [
        "vicinity.service",
        "vicinity.socket",
        "vicinity-gateway.service",
    ] {
        let text = fs::read_to_string(source.join(unit)).unwrap();
        let text = text.replace("/usr/bin/vicinity", env!("CARGO_BIN_EXE_vicinity"));
        let file = folder.path().join(unit);
        fs::write(&file, text).unwrap();
        verify.arg(file);
    }
    let output = verify.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// The unit gives up every permission that the daemon does not need; the unit has the reasons. The threshold
/// is ten times the score.
#[test]
fn the_unit_gives_up_what_it_does_not_need() {
    let unit =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/vicinity.service");
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=yes", "--threshold=40", "--no-pager"]);
    let output = analyze.arg(unit).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Overall exposure level"), "{said}");
}
