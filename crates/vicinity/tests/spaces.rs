//! Spaces without a VM: how they are created, sized and removed, and which clients may fetch.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Daemon, until};
use rustix::process::Signal;
use serde_json::Value;

/// Returns the output of a command, which must succeed.
fn said(daemon: &Daemon, words: &[&str]) -> String {
    let output = daemon.command(&[&["space"], words].concat());
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error message of a command, which must fail.
fn refused(daemon: &Daemon, words: &[&str]) -> String {
    let output = daemon.command(&[&["space"], words].concat());
    assert!(!output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn show(daemon: &Daemon, vm: &str) -> Value {
    serde_json::from_str(&said(daemon, &["show", vm])).unwrap()
}

fn slots(daemon: &Daemon, vm: &str) -> u64 {
    show(daemon, vm)["slots"].as_u64().unwrap()
}

#[test]
fn spaces_come_change_and_go_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let config = "space-budget = 24\n\n[[space]]\nvm = \"red\"\n";
    let daemon = Daemon::start(folder.path(), Some(config));
    assert_eq!(slots(&daemon, "red"), 24);
    said(&daemon, &["create", "green", "objective.weight=2"]);
    assert_eq!((slots(&daemon, "red"), slots(&daemon, "green")), (12, 12));
    assert!(daemon.config().contains("vm = \"green\""));
    // One space gets a fixed number of slots, and the other the rest of the budget.
    said(&daemon, &["set", "red", "slots=16"]);
    assert_eq!((slots(&daemon, "red"), slots(&daemon, "green")), (16, 8));
    for (words, why) in [
        (
            ["set", "red", "slots=17"],
            "more slots than the budget of 24",
        ),
        (["set", "red", "slots=7"], "8 to"),
        (
            ["set", "red", "allow=[\"::/0\"]"],
            "only `slots`, `objective` and `rate`",
        ),
        (["create", "red", "slots=8"], "a space red already exists"),
        (["set", "gren", "slots=8"], "did you mean green"),
    ] {
        let error = refused(&daemon, &words);
        assert!(error.contains(why), "{words:?}: {error}");
    }
    assert!(refused(&daemon, &["show", "gren"]).contains("did you mean green"));
    assert_eq!(slots(&daemon, "red"), 16);
    // A rate is set and removed, and the space continues to serve.
    for (pair, rate) in [
        ("rate=8 Mbit/s", Value::from(1_000_000)),
        ("rate=", Value::Null),
    ] {
        said(&daemon, &["set", "red", pair]);
        let red = show(&daemon, "red");
        assert_eq!((&red["rate"], &red["restarts"]), (&rate, &0.into()));
    }
    let fast = refused(&daemon, &["set", "red", "rate=fast"]);
    assert!(fast.contains("`fast` is not a rate"), "{fast}");
    let top = said(&daemon, &["top", "--once"]);
    assert!(
        top.contains("fixed") && top.contains("budget 8 slots"),
        "{top}"
    );
    let said_why = said(&daemon, &["explain", "red"]);
    assert!(said_why.contains("SHRINK_LENT"), "{said_why}");
    said(&daemon, &["remove", "red"]);
    let list: Value = serde_json::from_str(&said(&daemon, &["list", "--json"])).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert!(!daemon.path("space/red.sock").exists());
    assert_eq!(daemon.stop(), Some(0));
    assert!(!folder.path().join("run").exists());
}

/// Creates a certificate for `localhost`, and its key.
fn certificate(folder: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]);
    openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args([
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]);
    openssl.arg("-keyout").arg(folder.join("key.pem"));
    openssl.arg("-out").arg(folder.join("cert.pem"));
    let output = openssl.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn clients_speak_tls_and_show_a_token() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    std::fs::write(folder.path().join("token"), "secret\n").unwrap();
    let config = "[[space]]\nvm = \"red\"\nslots = 8\nlisten = \"127.0.0.1:0\"\n\
                  token-file = \"DIR/token\"\ncertificate = \"DIR/cert.pem\"\nkey = \"DIR/key.pem\"\n";
    let config = config.replace("DIR", folder.path().to_str().unwrap());
    let daemon = Daemon::start(folder.path(), Some(&config));
    let at = show(&daemon, "red")["listen"].as_str().unwrap().to_owned();
    let port = at.rsplit_once(':').unwrap().1;
    let fetch = |scheme: &str, more: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--output", "/dev/null", "--cacert"]);
        curl.arg(folder.path().join("cert.pem"));
        curl.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
        curl.args(["--write-out", "%{http_version} %{http_code}"]);
        curl.args(more)
            .arg(format!("{scheme}://localhost:{port}/x"));
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    };
    let shown = ["--header", "Authorization: Bearer secret"];
    assert_eq!(fetch("https", &[]), "2 401");
    assert_eq!(fetch("https", &shown), "2 404");
    assert_eq!(
        fetch("https", &[&shown[..], &["--http1.1"]].concat()),
        "1.1 404"
    );
    // A client without TLS gets no answer.
    assert_eq!(fetch("http", &shown), "0 000");
    assert!(said(&daemon, &["list"]).contains("https://"));
    let figures = show(&daemon, "red");
    assert_eq!(
        (&figures["requests"], &figures["refused"]),
        (&3.into(), &1.into())
    );
    assert_eq!(daemon.stop(), Some(0));
}

/// A cgroup for the test, which is removed when this value is dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn make() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts.lines().filter(|line| line.contains(" - cgroup"));
        let places = mounts.map(|line| Path::new(line.split(' ').nth(4).unwrap()));
        let name = format!("vicinity-test-{}", std::process::id());
        let mut groups = places.map(|place| place.join(&name));
        let made = groups.find(|group| std::fs::create_dir(group).is_ok());
        Self(made.expect("a place for a cgroup: these tests need root"))
    }

    fn processes(&self) -> String {
        std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        drop(std::fs::remove_dir(&self.0));
    }
}

#[test]
fn what_the_host_does_for_a_space_is_charged_to_its_vm() {
    let folder = tempfile::tempdir().unwrap();
    let cgroup = Cgroup::make();
    let config = format!(
        "[[space]]\nvm = \"red\"\ncgroup = \"{}\"\n",
        cgroup.0.display()
    );
    let daemon = Daemon::start(folder.path(), Some(&config));
    let listed = |id: u32| {
        cgroup
            .processes()
            .lines()
            .any(|line| line == id.to_string())
    };
    let first = daemon.signal_process("space-red", Signal::KILL);
    assert!(first > 0);
    // The restarted process is also in the cgroup.
    until("another process in the cgroup", || {
        daemon
            .process("space-red")
            .is_some_and(|id| id != first && listed(id))
    });
    assert_eq!(cgroup.processes().lines().count(), 1);
    let nowhere = refused(&daemon, &["create", "green", "cgroup=/nowhere"]);
    assert!(nowhere.contains("/nowhere/cgroup.procs"), "{nowhere}");
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(cgroup.processes(), "");
}

/// The check includes the threads that libraries started.
#[test]
fn every_thread_of_a_space_is_confined() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[[space]]\nvm = \"red\"\nlisten = \"127.0.0.1:0\"\nallow = [\"::/0\"]\n";
    let daemon = Daemon::start(folder.path(), Some(config));
    // The process answers only after all threads have started.
    assert_eq!(show(&daemon, "red")["up"], true);
    let id = daemon.process("space-red").unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let tasks: Vec<_> = tasks.map(|task| task.unwrap().path()).collect();
    assert!(tasks.len() >= 3, "{tasks:?}");
    for task in tasks {
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
            assert!(status.lines().any(|said| said == line), "{line}: {status}");
        }
    }
    assert_eq!(daemon.stop(), Some(0));
}

/// Memory from which the kernel sends without a copy is locked.
#[test]
fn a_space_may_lock_as_much_memory_as_it_can_be_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("prlimit");
    command.args(["--memlock=65536:", env!("CARGO_BIN_EXE_vicinity")]);
    let daemon = Daemon::start_by(command, folder.path(), Some("[[space]]\nvm = \"red\"\n"));
    assert_eq!(show(&daemon, "red")["up"], true);
    let id = daemon.process("space-red").unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    assert_eq!(words[0], words[1], "{limits}");
    assert_eq!(daemon.stop(), Some(0));
}
