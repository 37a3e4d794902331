//! The installed QEMU accepts the printed options.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Daemon, vicinity};

/// A QEMU process, which is killed when this value is dropped.
struct Qemu(Child);

impl Qemu {
    /// Starts QEMU in a shell with the options that `vicinity qemu-args` prints, as a user would.
    fn start(folder: &Path, vm: &str, more: &[&str]) -> Self {
        let output = vicinity()
            .args(["qemu-args", vm, "--memory", "128M", "--runtime-dir"])
            .arg(folder.join("run"))
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let options = String::from_utf8(output.stdout).unwrap();
        let accel = vm_harness::accel::expected().unwrap().name();
        let line = format!(
            "exec qemu-system-x86_64 -accel {accel} -display none -nodefaults -no-reboot {options}"
        );
        let child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

const LAN: &str = "
[[network]]
name = \"lan\"
accept = true
[[network.port]]
vm = \"listed\"
mac = \"52:54:00:00:00:07\"
";

/// The firmware's network boot uses the NIC: the switch receives its DHCP requests as frames.
#[test]
fn qemu_starts_with_the_options_in_both_modes() {
    let folder = tempfile::Builder::new()
        .prefix("a space, a comma")
        .tempdir()
        .unwrap();
    let daemon = Daemon::start(folder.path(), Some(LAN));
    for (vm, more) in [("listed", [].as_slice()), ("accepted", &["--one-line"])] {
        let qemu = Qemu::start(folder.path(), vm, more);
        daemon.until_state(vm, "running");
        common::until("a frame", || daemon.port(vm)["counters"]["tx_frames"] != 0);
        assert_eq!(daemon.port(vm)["quarantines"], 0);
        drop(qemu);
        daemon.until_state(vm, "waiting");
    }
}

#[test]
fn a_qemu_that_is_started_again_gets_in_again() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(LAN));
    for connection in 1..=2 {
        for vm in ["listed", "accepted"] {
            let _qemu = Qemu::start(folder.path(), vm, &[]);
            daemon.until_state(vm, "running");
            assert_eq!(daemon.port(vm)["connections"], connection);
        }
    }
}
