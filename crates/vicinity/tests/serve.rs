//! `vicinity serve`, as a user sees it.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Daemon, page, until, vicinity};
use rustix::process::Signal;

const LAN: &str = "[[network]]\nname = \"lan\"\n[[network.port]]\nvm = \"web\"\n";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Runs `vicinity serve`, which must fail.
fn refused(folder: &Path, config: &str) -> (Option<i32>, String) {
    refused_by(&[], folder, config)
}

/// Runs `vicinity serve`, which must fail, by a command that starts the program.
fn refused_by(by: &[&str], folder: &Path, config: &str) -> (Option<i32>, String) {
    let file = folder.join("refused.toml");
    std::fs::write(&file, config).unwrap();
    // If the program serves nevertheless, `timeout` ends it with another exit code than the
    // expected one.
    let output: Output = Command::new("timeout")
        .arg("20")
        .args(by)
        .arg(env!("CARGO_BIN_EXE_vicinity"))
        .args(["serve", "--config"])
        .arg(file)
        .arg("--runtime-dir")
        .arg(folder.join("run"))
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(1) {
        page::assert_quoted(&said);
    }
    (output.status.code(), said)
}

#[test]
fn without_a_configuration_a_socket_in_the_folder_becomes_a_port() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), None);
    let qemu = UnixListener::bind(daemon.path("default/web.sock")).unwrap();
    daemon.until_state("web", "connected");
    drop(qemu);
    std::fs::remove_file(daemon.path("default/web.sock")).unwrap();
    assert_eq!(daemon.stop(), Some(0));
    assert!(!folder.path().join("run").exists(), "everything is removed");
}

#[test]
fn only_the_owner_controls_the_daemon() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), Some(LAN));
    assert_eq!(mode(&daemon.path("")), 0o750);
    assert_eq!(mode(&daemon.path("lan")), 0o750);
    assert_eq!(mode(&daemon.path("control.sock")), 0o600);
    assert_eq!(mode(&daemon.path("lan/web.sock")), 0o660);
}

#[test]
fn a_listed_port_accepts_one_front_end_after_the_other() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), Some(LAN));
    for connection in 1..=3 {
        let qemu = UnixStream::connect(daemon.path("lan/web.sock")).unwrap();
        daemon.until_state("web", "connected");
        assert_eq!(daemon.port("web")["connections"], connection);
        drop(qemu);
        daemon.until_state("web", "waiting");
    }
}

#[test]
fn sigint_and_sigterm_end_it_in_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = folder();
        let mut daemon = Daemon::start(folder.path(), Some(LAN));
        let mut qemu = UnixStream::connect(daemon.path("lan/web.sock")).unwrap();
        daemon.until_state("web", "connected");
        daemon.signal(signal);
        assert_eq!(daemon.ended(), Some(0));
        assert!(!folder.path().join("run").exists(), "everything is removed");
        assert_eq!(qemu.read(&mut [0]).unwrap(), 0, "the front-end is let go");
    }
}

#[test]
fn sockets_left_by_a_crash_are_replaced() {
    let folder = folder();
    let mut first = Daemon::start(folder.path(), Some(LAN));
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert!(first.path("lan/web.sock").exists());
    let second = Daemon::start(folder.path(), Some(LAN));
    let _qemu = UnixStream::connect(second.path("lan/web.sock")).unwrap();
    second.until_state("web", "connected");
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn a_socket_in_use_is_left_alone() {
    let folder = folder();
    let socket = folder.path().join("busy.sock");
    let _other = UnixListener::bind(&socket).unwrap();
    let config = format!("{LAN}socket = {socket:?}\n");
    let (code, said) = refused(folder.path(), &config);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("busy.sock is in use by another process"),
        "{said}"
    );
    assert!(said.contains("network lan"), "{said}");
    assert!(UnixStream::connect(&socket).is_ok(), "it still works");
    assert!(
        !folder.path().join("run").exists(),
        "nothing is left behind"
    );
}

/// Needs root, because the test hides the driver's device.
#[test]
fn an_uplink_without_the_tun_driver_is_refused_with_the_remedy() {
    let folder = folder();
    let hidden = "mount -t tmpfs none /dev/net && exec \"$0\" \"$@\"";
    let by = ["unshare", "--mount", "sh", "-c", hidden];
    let config = LAN.replace("\"lan\"", "\"lan\"\nuplink = { tap = \"none0\" }");
    let (code, said) = refused_by(&by, folder.path(), &config);
    assert_eq!(code, Some(1));
    for part in ["network lan", "cannot open /dev/net/tun", "modprobe tun"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(
        !folder.path().join("run").exists(),
        "nothing is left behind"
    );
}

#[test]
fn a_file_that_is_not_a_socket_is_left_alone() {
    let folder = folder();
    let file = folder.path().join("precious");
    std::fs::write(&file, "text").unwrap();
    let (code, said) = refused(folder.path(), &format!("{LAN}socket = {file:?}\n"));
    assert_eq!(code, Some(1));
    assert!(said.contains("exists and is not a socket"), "{said}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "text");
}

#[test]
fn a_second_daemon_is_refused() {
    let folder = folder();
    let _first = Daemon::start(folder.path(), Some(LAN));
    let (code, said) = refused(folder.path(), LAN);
    assert_eq!(code, Some(1));
    assert!(said.contains("another Vicinity daemon serves"), "{said}");
}

#[test]
fn a_front_end_that_connects_a_hundred_times_is_quarantined() {
    let folder = folder();
    let config = format!("{LAN}[[network.port]]\nvm = \"db\"\n");
    let daemon = Daemon::start(folder.path(), Some(&config));
    let _db = UnixStream::connect(daemon.path("lan/db.sock")).unwrap();
    daemon.until_state("db", "connected");
    for _ in 0..100 {
        drop(UnixStream::connect(daemon.path("lan/web.sock")).unwrap());
    }
    until("the quarantine", || daemon.port("web")["quarantines"] == 1);
    let web = daemon.port("web");
    let reason = web["reason"].as_str().unwrap();
    assert!(reason.contains("connects too often"), "{reason}");
    assert_eq!(web["connections"], 20);
    assert_eq!(
        daemon.port("db")["state"],
        "connected",
        "its neighbour goes on"
    );
    let table = vicinity()
        .args(["port", "list", "--runtime-dir"])
        .arg(daemon.path(""))
        .output()
        .unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("connects too often"), "{table}");
}

#[test]
fn a_front_end_that_breaks_the_protocol_is_quarantined_with_the_reason() {
    use std::io::Write;
    let folder = folder();
    let daemon = Daemon::start(folder.path(), Some(LAN));
    let mut qemu = UnixStream::connect(daemon.path("lan/web.sock")).unwrap();
    qemu.write_all(&[0xff; 64]).unwrap();
    until("the quarantine", || daemon.port("web")["quarantines"] == 1);
    let web = daemon.port("web");
    assert!(!web["reason"].as_str().unwrap().is_empty(), "{web}");
}

#[test]
fn a_bad_configuration_names_line_and_key() {
    let folder = folder();
    let (code, said) = refused(folder.path(), &LAN.replace("vm =", "mv ="));
    assert_eq!(code, Some(2));
    assert!(said.starts_with("error: "), "{said}");
    assert!(
        said.contains("refused.toml:4:1: network.port.mv: unknown key `mv`"),
        "{said}"
    );
    assert!(said.contains("4 | mv = \"web\""), "{said}");
    assert!(said.contains("did you mean `vm`?"), "{said}");
}

const TWO: &str = "[[network]]\nname = \"blue\"\n[[network.port]]\nvm = \"a\"\n\
                   [[network]]\nname = \"green\"\n[[network.port]]\nvm = \"b\"\n";

#[test]
fn a_killed_data_plane_is_started_again_and_other_networks_are_unaffected() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), Some(TWO));
    let connect = |socket| UnixStream::connect(daemon.path(socket)).unwrap();
    let mut a = connect("blue/a.sock");
    let _b = connect("green/b.sock");
    daemon.until_state("a", "connected");
    daemon.until_state("b", "connected");
    let neighbour = daemon.data_plane("green");
    for restarts in 1..=3 {
        let killed = daemon.signal_data_plane("blue", Signal::KILL);
        assert_eq!(a.read(&mut [0]).unwrap(), 0, "the front-end is let go");
        until("the next data plane", || {
            let network = daemon.network("blue");
            network["up"] == true && network["restarts"] == restarts
        });
        assert_ne!(daemon.data_plane("blue"), Some(killed));
        a = connect("blue/a.sock");
        daemon.until_state("a", "connected");
        assert_eq!(daemon.port("a")["connections"], restarts + 1);
    }
    assert_eq!(daemon.data_plane("green"), neighbour);
    assert_eq!(daemon.network("green")["restarts"], 0);
    assert_eq!(daemon.port("b")["state"], "connected");
    assert_eq!(daemon.port("b")["connections"], 1);
}

#[test]
fn a_data_plane_that_hangs_is_killed_and_started_again() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), Some(LAN));
    daemon.signal_data_plane("lan", Signal::STOP);
    until("the next data plane", || {
        daemon.network("lan")["restarts"] == 1
    });
    let _qemu = UnixStream::connect(daemon.path("lan/web.sock")).unwrap();
    daemon.until_state("web", "connected");
}

#[test]
fn data_planes_die_with_their_supervisor_even_one_that_hangs() {
    let folder = folder();
    let mut daemon = Daemon::start(folder.path(), Some(TWO));
    let hangs = daemon.signal_data_plane("blue", Signal::STOP);
    let idles = daemon.data_plane("green").unwrap();
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    for id in [hangs, idles] {
        // The process that adopts orphans is now its parent, and may take a moment to reap it.
        until("its end", || {
            let status = std::fs::read_to_string(format!("/proc/{id}/status"));
            status.map_or(true, |status| status.contains("State:\tZ"))
        });
    }
}

#[test]
fn a_data_plane_does_not_end_by_signals_meant_for_the_supervisor() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), Some(LAN));
    let _qemu = UnixStream::connect(daemon.path("lan/web.sock")).unwrap();
    daemon.until_state("web", "connected");
    for signal in [Signal::INT, Signal::TERM] {
        daemon.signal_data_plane("lan", signal);
        assert_eq!(daemon.port("web")["state"], "connected");
    }
    assert_eq!(daemon.network("lan")["restarts"], 0);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_data_plane_started_by_hand_says_who_starts_it() {
    let output = vicinity().args(["data-plane", "lan"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("`vicinity serve` starts"), "{said}");
}

/// Needs root, because it uses a tap.
#[test]
fn the_uplink_is_a_tap_with_a_virtio_header() {
    let folder = folder();
    let mut command = Command::new("unshare");
    command.args(["--net", env!("CARGO_BIN_EXE_vicinity")]);
    let config = LAN.replace("\"lan\"", "\"lan\"\nuplink = { tap = \"vic0\" }");
    let daemon = Daemon::start_by(command, folder.path(), Some(&config));
    let pid = daemon.child.id().to_string();
    let inside = Command::new("nsenter")
        .args([
            "--net", "--target", &pid, "ip", "-details", "link", "show", "vic0",
        ])
        .output()
        .unwrap();
    let link = String::from_utf8(inside.stdout).unwrap();
    for part in ["tun type tap pi off vnet_hdr on", "UP"] {
        assert!(link.contains(part), "{part} not in {link}");
    }
    assert_eq!(daemon.port("vic0")["kind"], "uplink");
    assert_eq!(daemon.port("vic0")["state"], "running");
    // A second daemon does not take the tap from the first.
    let other = self::folder();
    let beside = ["nsenter", "--net", "--target", &pid];
    let (code, said) = refused_by(&beside, other.path(), &config);
    assert_eq!(code, Some(1));
    assert!(said.contains("tap vic0 is in use by another"), "{said}");
    assert_eq!(daemon.stop(), Some(0));
}
