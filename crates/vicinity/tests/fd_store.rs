//! Files that VMs published in spaces outlive the supervisor if a service manager keeps descriptors. The
//! service manager here is [`common::manager`]; the test `package` uses real systemd.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod common;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::manager::Manager;
use common::mount::Mount;
use common::{Daemon, until};
use rustix::process::Signal;
use serde_json::Value;

const RED: &str =
    "[[space]]\nvm = \"red\"\nslots = 256\nlisten = \"127.0.0.1:0\"\nallow = [\"127.0.0.1\"]\n";

/// Most files that are written: each takes a slot.
const FILES: usize = 250;

/// How often the test kills the supervisor, each time after the guest has written `STEP` more
/// files.
const KILLS: usize = 4;
const STEP: usize = 20;

fn space(daemon: &Daemon, words: &[&str]) -> Result<String, String> {
    let output = daemon.command(&[&["space"], words].concat());
    let said = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(said(output.stdout)),
        false => Err(said(output.stderr)),
    }
}

fn show(daemon: &Daemon, vm: &str) -> Value {
    serde_json::from_str(&space(daemon, &["show", vm]).unwrap()).unwrap()
}

/// Returns the file that a client gets.
fn fetch(daemon: &Daemon, name: &str) -> Vec<u8> {
    let at = show(daemon, "red")["listen"].as_str().unwrap().to_owned();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", &format!("http://{at}/{name}")]);
    let output = curl.output().unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
    output.stdout
}

/// Returns the content of the file of this number.
fn content(number: usize) -> Vec<u8> {
    let length = 1 + number * 7919 % 200_000;
    (0..length).map(|at| (at * 31 + number * 7) as u8).collect()
}

/// Kills the daemon and waits for the end of its processes, as systemd does before it restarts a
/// service.
fn kill(mut daemon: Daemon) {
    let children = daemon.children();
    daemon.signal(Signal::KILL);
    daemon.ended();
    until("the end of its processes", || {
        let mut children = children.iter();
        !children.any(|id| Path::new("/proc").join(id.to_string()).exists())
    });
}

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_was_acknowledged_outlives_a_supervisor_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::new(folder.path());
    let socket = folder.path().join("run/space/red.sock");
    let (written, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut acknowledged = Vec::new();
    std::thread::scope(|scope| {
        // A guest that writes all the time. When the device fails, it mounts the space again, as if the
        // device had been plugged in again.
        let writer = scope.spawn(|| {
            let (mut acknowledged, mut number, mut broken) = (Vec::new(), 0, 0);
            while broken < KILLS && number < FILES && !over.load(Ordering::Relaxed) {
                let Some(mut mount) = Mount::new(&socket) else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                while number < FILES {
                    number += 1;
                    let name = format!("f{number}");
                    if mount.publish(&name, &content(number)).is_none() {
                        broken += 1;
                        break;
                    }
                    acknowledged.push((name, number));
                    written.store(number, Ordering::Release);
                }
            }
            (acknowledged, broken)
        });
        // The writer ends when this thread ends, also when this thread panics.
        let _over = Over(&over);
        for number in 0..KILLS {
            let daemon = manager.start((number == 0).then_some(RED), "error");
            // Wait for a file written to this daemon: before the guest has mounted the space, no
            // write is in flight.
            let before = written.load(Ordering::Acquire);
            until("files", || written.load(Ordering::Acquire) >= before + STEP);
            kill(daemon);
        }
        let broken;
        (acknowledged, broken) = writer.join().unwrap();
        assert_eq!(broken, KILLS, "files under way when it was killed");
    });
    assert!(acknowledged.len() > 10, "{acknowledged:?}");
    let daemon = manager.start(None, "error");
    for (name, number) in &acknowledged {
        let got = fetch(&daemon, name);
        assert!(got == content(*number), "{name} is not as it was written");
    }
    // The daemon is stopped in order and started again, as by `systemctl restart`.
    assert_eq!(daemon.stop(), Some(0));
    let daemon = manager.start(None, "error");
    let (name, number) = &acknowledged[0];
    assert!(fetch(&daemon, name) == content(*number));
    assert_eq!(manager.log(), "");
}

#[test]
fn a_space_comes_back_with_its_size_and_goes_when_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::new(folder.path());
    let config = RED.replace("256", "8");
    let daemon = manager.start(Some(&config), "warn");
    let socket = daemon.path("space/red.sock");
    Mount::new(&socket)
        .unwrap()
        .publish("a", &content(5))
        .unwrap();
    space(&daemon, &["set", "red", "slots=20"]).unwrap();
    kill(daemon);
    let daemon = manager.start(None, "warn");
    assert_eq!(show(&daemon, "red")["slots"], 20);
    assert!(fetch(&daemon, "a") == content(5));
    // The limit is four times the eight slots with which the space was created, not four times
    // twenty.
    space(&daemon, &["set", "red", "slots=32"]).unwrap();
    // When a running daemon creates or removes a space, the store follows.
    space(&daemon, &["create", "green", "slots=8"]).unwrap();
    until("four descriptors", || manager.names().len() == 4);
    space(&daemon, &["remove", "green"]).unwrap();
    until("two descriptors", || manager.names().len() == 2);
    assert_eq!(manager.log(), "");
    let large = space(&daemon, &["set", "red", "slots=33"]).unwrap_err();
    assert!(large.contains("at most 32 slots"), "{large}");
    kill(daemon);
    // The file asks for more slots than the memory has room for. Keeping the published files takes
    // precedence.
    let config = RED.replace("256", "40");
    let daemon = manager.start(Some(&config), "warn");
    assert_eq!(show(&daemon, "red")["slots"], 32);
    assert!(fetch(&daemon, "a") == content(5));
    assert!(
        manager.log().contains("has room for 32"),
        "{}",
        manager.log()
    );
    kill(daemon);
    let daemon = manager.start(Some("[[network]]\nname = \"lan\"\naccept = true\n"), "warn");
    until("an empty store", || manager.names().is_empty());
    let log = manager.log();
    for part in ["slots-red", "ledger-red", "not in the configuration"] {
        assert!(log.contains(part), "{log}");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn invalid_descriptors_in_the_store_are_removed_and_stop_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::new(folder.path());
    let file = || OwnedFd::from(tempfile::tempfile().unwrap());
    let (hung_up, other_end) = rustix::pipe::pipe().unwrap();
    drop(other_end);
    manager.store("vicinity-hung-up", hung_up);
    manager.store("vicinity-space-1-slots-red", file());
    let (open, _other_end) = rustix::pipe::pipe().unwrap();
    manager.store("vicinity-space-1-ledger-red", open);
    manager.store("vicinity-space-1-slots-gone", file());
    manager.store("vicinity-space-999-slots-red", file());
    manager.store("stored", file());
    let daemon = manager.start(Some(RED), "warn");
    let kept = ["ledger", "slots"].map(|kind| format!("vicinity-space-1-{kind}-red"));
    until("the space's alone", || manager.names() == kept);
    let log = manager.log();
    for part in [
        "not a sealed memfd",
        "slots-gone",
        "space-999-slots-red",
        "stored",
    ] {
        assert!(log.contains(part), "{log}");
    }
    assert!(
        !log.contains("hung-up"),
        "the manager has dropped it: {log}"
    );
    let socket = daemon.path("space/red.sock");
    Mount::new(&socket)
        .unwrap()
        .publish("a", &content(9))
        .unwrap();
    assert!(fetch(&daemon, "a") == content(9));
    kill(daemon);
    // The memory that was stored anew comes back.
    let daemon = manager.start(None, "warn");
    assert!(fetch(&daemon, "a") == content(9));
    assert_eq!(manager.log(), "");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn without_a_manager_it_says_how_long_files_live() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = common::vicinity();
    command.env_remove("NOTIFY_SOCKET");
    let log = folder.path().join("log");
    command.stderr(std::fs::File::create(&log).unwrap());
    let daemon = Daemon::start_logging(command, folder.path(), Some(RED), "warn");
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(
        log.matches("are lost when this process ends").count(),
        1,
        "{log}"
    );
    assert_eq!(daemon.stop(), Some(0));
}
