//! Commands change a daemon while two of its VMs exchange frames and 62 others are connected. The
//! changes take effect, and do not disturb anything else.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::fmt::Write;
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use common::Daemon;
use common::holdings::Holdings;
use common::neighbours::{self, NEIGHBOURS, exchange, started};
use front_end::frame::mac;
use front_end::{Nic, Options, Wire};
use serde_json::{Value, json};

/// Number of ports with a front-end.
const PORTS: u16 = 64;

/// How often each change is made.
const ROUNDS: usize = 10;

fn address(station: u16) -> String {
    mac(station).map(|octet| format!("{octet:02x}")).join(":")
}

/// Returns a configuration in which every address is pinned, so that the neighbours receive only
/// each other's frames.
fn config(ports: u16) -> String {
    let mut text = "[[network]]\nname = \"lan\"\n".to_owned();
    for station in 1..=ports {
        let mac = address(station);
        writeln!(
            text,
            "[[network.port]]\nvm = \"vm{station}\"\nmac = \"{mac}\""
        )
        .unwrap();
    }
    text
}

fn connect(daemon: &Daemon, station: u16) -> Nic {
    let socket = daemon.path(&format!("lan/vm{station}.sock"));
    let stream = UnixStream::connect(socket).unwrap();
    started(Wire::new(stream.into()), Options::default())
}

/// Runs commands while the neighbours exchange frames. No frame may be lost.
fn under_load(daemon: &Daemon, act: impl FnOnce()) {
    let mut neighbours = NEIGHBOURS.map(|station| connect(daemon, station));
    let over = AtomicBool::new(false);
    let exchanged = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| exchange(&mut neighbours, &over));
        let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        over.store(true, Ordering::Relaxed);
        let exchanged = traffic.join().unwrap();
        acted.map(|()| exchanged)
    });
    let exchanged = exchanged.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    neighbours::assert_lossless(daemon, exchanged);
}

fn succeeds(daemon: &Daemon, arguments: &[&str]) {
    let output = daemon.command(arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {told}");
}

#[test]
fn ports_and_networks_change_under_load_and_no_frame_of_others_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let text = config(PORTS);
    let daemon = Daemon::start(folder.path(), Some(&text));
    let others: Vec<Nic> = (3..=PORTS)
        .map(|station| connect(&daemon, station))
        .collect();
    under_load(&daemon, || {
        let mut held = None;
        for round in 0..ROUNDS {
            succeeds(
                &daemon,
                &[
                    "port",
                    "add",
                    "lan",
                    "vm65",
                    &format!("mac={}", address(65)),
                ],
            );
            let nic = connect(&daemon, 65);
            daemon.until_state("vm65", "running");
            succeeds(
                &daemon,
                &["port", "set", "lan", "vm65", "role=private", "mac="],
            );
            assert_eq!(daemon.port("vm65")["state"], "running");
            succeeds(&daemon, &["port", "remove", "lan", "vm65"]);
            drop(nic);
            for (told, kept) in [("fdb-lookups=10", json!(10)), ("fdb-lookups=", Value::Null)] {
                succeeds(&daemon, &["network", "set", "lan", told]);
                assert_eq!(daemon.network("lan")["fdb_lookups"], kept);
            }
            succeeds(&daemon, &["network", "add", "other", "accept=true"]);
            succeeds(&daemon, &["network", "set", "other", "workers=2"]);
            succeeds(&daemon, &["network", "remove", "other"]);
            succeeds(&daemon, &["reload"]);
            // By then, the daemon has made all its one-time allocations.
            if round == 1 {
                held = Some(Holdings::settled(&daemon, "lan"));
            }
        }
        held.unwrap()
            .assert_unchanged(&daemon, "lan", "after changes");
    });
    drop(others);
    assert_eq!(daemon.config(), text, "all that was done was undone");
    assert_eq!(daemon.network("lan")["restarts"], 0);
}

/// Needs root, because the test mounts a file system of two pages for the configuration.
#[test]
fn a_change_that_a_full_disk_cannot_keep_is_refused_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let text = config(2);
    fs::write(folder.path().join("lan.toml"), &text).unwrap();
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=8k none disk && cp lan.toml disk && \
                  exec \"$0\" \"$@\" --config disk/lan.toml";
    command.args([
        "--mount",
        "sh",
        "-c",
        script,
        env!("CARGO_BIN_EXE_vicinity"),
    ]);
    command.current_dir(folder.path());
    let daemon = Daemon::start_by(command, folder.path(), None);
    let _nic = connect(&daemon, 1);
    daemon.until_state("vm1", "running");

    let seen = format!("/proc/{}/root{}", daemon.child.id(), disk.display());
    let (file, fill) = (format!("{seen}/lan.toml"), format!("{seen}/fill"));
    fs::write(&fill, [1_u8; 8192]).unwrap_err();
    for change in [
        &["port", "add", "lan", "vm3"][..],
        &["port", "set", "lan", "vm1", "role=private"],
        &["port", "remove", "lan", "vm1"],
        &["network", "add", "other", "accept=true"],
    ] {
        let output = daemon.command(change);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("lan.toml: No space left"), "{told}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert_eq!(fs::read_dir(&seen).unwrap().count(), 2);
    assert_eq!(daemon.ports().len(), 2);
    assert_eq!(daemon.network("other"), Value::Null);
    assert!(!daemon.path("other").exists());
    let vm1 = daemon.port("vm1");
    assert_eq!(
        (&vm1["state"], &vm1["connections"]),
        (&json!("running"), &json!(1))
    );
    assert_ne!(vm1["rules"]["role"], "private");

    fs::remove_file(&fill).unwrap();
    succeeds(&daemon, &["port", "add", "lan", "vm3"]);
    assert!(fs::read_to_string(&file).unwrap().contains("vm3"));
}

#[test]
fn a_thousand_ports_are_reloaded_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = config(2);
    text += &config(998).replace("lan", "big");
    let daemon = Daemon::start(folder.path(), Some(&text));
    under_load(&daemon, || {
        for vlan in [5, 6] {
            let text = text.replace(
                "name = \"big\"",
                &format!("name = \"big\"\nuplink_ = {vlan}"),
            );
            daemon.write(&text);
            let output = daemon.command(&["reload"]);
            assert_eq!(output.status.code(), Some(2));
            assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean `uplink`"));
        }
        let (first, rest) = text.split_once("name = \"big\"").unwrap();
        let rest = rest.replace("vm = \"vm", "role = \"private\"\nvm = \"vm");
        daemon.write(&format!("{first}name = \"big\"{rest}"));
        succeeds(&daemon, &["reload"]);
        let changed = daemon.ports();
        let private = changed
            .iter()
            .filter(|port| port["rules"]["role"] == "private");
        assert_eq!(private.count(), 998);
    });
}
