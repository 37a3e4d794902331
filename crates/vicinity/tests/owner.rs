//! The daemon checks the process that connects to a port's or a member's socket, by the user and the cgroup
//! that the kernel reports. The stranger in these tests is a process of another user in the daemon's group,
//! as every QEMU of libvirt is.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Daemon, until};

/// A Python program that connects repeatedly and prints what it received: nothing, bytes, or the
/// end of the stream.
const STRANGER: &str = "
import socket, sys
for _ in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.settimeout(2)
    try:
        print('bytes' if s.recv(1) else 'end')
    except TimeoutError:
        print('nothing')
";

/// Returns what a process of this user, in root's group, receives at a socket.
fn as_user(user: u32, socket: &Path, times: usize) -> Vec<String> {
    let mut command = Command::new("python3");
    command
        .args(["-c", STRANGER])
        .arg(socket)
        .arg(times.to_string());
    let output = command.uid(user).gid(0).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(str::to_owned).collect()
}

/// Creates a folder that other users may enter.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_foreign_process_at_a_port_is_refused_and_does_not_count() {
    let folder = folder();
    let config = "[[network]]\nname = \"lan\"\n[[network.port]]\nvm = \"a\"\nowner = \"4711\"\n";
    let daemon = Daemon::start(folder.path(), Some(config));
    let socket = daemon.path("lan/a.sock");
    // More connections than a front-end may make.
    assert_eq!(as_user(4712, &socket, 25), ["end"; 25]);
    let port = daemon.port("a");
    assert_eq!(
        (&port["state"], &port["quarantines"]),
        (&"waiting".into(), &0.into())
    );
    assert_eq!(
        as_user(4711, &socket, 1),
        ["nothing"],
        "the owner is served"
    );
    until("the owner's end", || daemon.port("a")["connections"] == 1);
    // A changed owner applies to the next connection.
    let output = daemon.command(&["port", "set", "lan", "a", "owner=4712"]);
    assert!(output.status.success(), "{output:?}");
    daemon.until_state("a", "waiting");
    assert_eq!(as_user(4711, &socket, 1), ["end"]);
    assert_eq!(as_user(4712, &socket, 1), ["nothing"]);
    // Root may always connect.
    daemon.until_state("a", "waiting");
    let _root = UnixStream::connect(&socket).unwrap();
    daemon.until_state("a", "connected");
}

#[test]
fn a_port_of_one_cgroup_is_not_another_ones() {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap();
    let folder = folder();
    let port = |vm: &str, cgroup: &str| {
        format!("[[network.port]]\nvm = \"{vm}\"\nowner-cgroup = \"{cgroup}\"\n")
    };
    let (mine, other) = (port("a", own), port("b", "*/machine-qemu-*-b.scope"));
    let config = format!("[[network]]\nname = \"lan\"\n{mine}{other}");
    let daemon = Daemon::start(folder.path(), Some(&config));
    let _front_end = UnixStream::connect(daemon.path("lan/a.sock")).unwrap();
    daemon.until_state("a", "connected");
    let mut refused = UnixStream::connect(daemon.path("lan/b.sock")).unwrap();
    refused
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    assert_eq!(refused.read(&mut [0]).unwrap(), 0);
    assert_eq!(daemon.port("b")["state"], "waiting");
}

#[test]
fn only_the_owner_connects_as_a_member_and_only_the_daemon_as_the_host() {
    let folder = folder();
    let config = "[message]\n[[message.member]]\nname = \"a\"\nowner = \"4711\"\n\
                  [[message.member]]\nname = \"b\"\n[[message.member]]\nname = \"host\"\n";
    let daemon = Daemon::start(folder.path(), Some(config));
    let told = |user, member: &str| {
        as_user(
            user,
            &daemon.path(&format!("message-plane/{member}.sock")),
            1,
        )
    };
    assert_eq!(told(4712, "a"), ["end"]);
    // The data plane first sends the version of the protocol.
    assert_eq!(told(4711, "a"), ["bytes"]);
    assert_eq!(told(4712, "b"), ["bytes"], "nobody said whose it is");
    assert_eq!(told(4711, "host"), ["end"]);
}

#[test]
fn an_owner_that_cannot_be_is_named_with_its_place() {
    let folder = folder();
    for (key, value, words) in [
        (
            "owner",
            "no-such-user",
            ["no user `no-such-user`", "libvirt-qemu"],
        ),
        (
            "owner-label",
            "",
            ["the pattern is empty", "remove the key"],
        ),
    ] {
        let file = folder.path().join("vicinity.toml");
        let text = format!(
            "[[network]]\nname = \"lan\"\n[[network.port]]\nvm = \"a\"\n{key} = \"{value}\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let mut command = common::vicinity();
        command.args(["serve", "--config"]).arg(&file);
        command.arg("--runtime-dir").arg(folder.path().join("run"));
        let output = command.output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        for word in words {
            assert!(said.contains(word), "{said}");
        }
    }
}
