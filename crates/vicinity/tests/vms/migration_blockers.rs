//! VMs that QEMU does not migrate, and its reasons. No guest takes part.

use std::path::Path;
use std::process::Stdio;

use ::direct::Qmp;
use serde_json::json;
use vm_harness::host::{ChildProcess, command};

use crate::common::until;
use crate::direct::{config, standing, words};
use crate::rig::{Rig, step};

const OTHERS: &str = "
[[message.member]]
name = \"m\"
[[space]]
vm = \"s\"
slots = 8
listen = \"127.0.0.1:0\"
allow = [\"127.0.0.1\"]
";

/// Starts a QEMU with these options and a monitor.
fn power_on(rig: &Rig, monitor: &Path, options: Vec<String>) -> ChildProcess {
    let mut qemu = command("qemu-system-x86_64");
    qemu.args(rig.accel())
        .args(["-display", "none", "-nodefaults", "-m", "64M"]);
    let memory = "memory-backend-memfd,id=ram,size=64M,share=on";
    qemu.args(["-object", memory, "-machine", "memory-backend=ram"]);
    let monitor = format!("unix:{},server=on,wait=off", monitor.display());
    qemu.args(["-qmp", &monitor]).args(options);
    qemu.stdin(Stdio::null()).stdout(Stdio::null());
    ChildProcess::spawn(qemu).unwrap()
}

#[test]
fn members_and_spaces_do_not_migrate_and_qemu_says_why() {
    let rig = Rig::new(Some(&(config(&["a", "b"]) + OTHERS)));
    for (vm, plane, why) in [
        ("a", "direct", "'peer mode' in device 'ivshmem'"),
        ("m", "message", "'peer mode' in device 'ivshmem'"),
        ("s", "space", "lacks VHOST_USER_PROTOCOL_F_LOG_SHMFD"),
    ] {
        step(vm);
        let monitor = rig.folder().join(format!("{vm}.monitor"));
        let _qemu = power_on(&rig, &monitor, words(&rig, &[plane, "qemu-args", vm]));
        if plane == "direct" {
            until("it to join", || standing(&rig, vm) == "joined");
        }
        // The socket exists before QEMU listens on it.
        let mut qmp = None;
        until("the monitor", || {
            qmp = Qmp::connect(&monitor).unwrap();
            qmp.is_some()
        });
        let mut qmp = qmp.unwrap();
        let target = json!({"uri": "exec:cat >/dev/null"});
        let refused = qmp.execute("migrate", &target).unwrap_err().to_string();
        println!("{refused}");
        assert!(refused.contains(why), "{refused}");
    }
}
