//! VMs whose memory cannot be shared, and the messages that the user sees.

use std::process::{Command, Stdio};

use vm_harness::host::{ChildProcess, command};

use crate::common::until;
use crate::rig::{Rig, home, step};

/// Starts a QEMU with the options of `vicinity qemu-args`, but with these options for its memory.
fn start(rig: &Rig, vm: &str, memory: &[String]) -> ChildProcess {
    let words = rig.qemu_args(vm);
    let mut qemu: Command = command("qemu-system-x86_64");
    qemu.args(rig.accel())
        .args(["-display", "none", "-nodefaults"]);
    for pair in words.chunks(2) {
        match pair[0].as_str() {
            "-object" | "-machine" => {}
            _ => drop(qemu.args(pair)),
        }
    }
    qemu.args(memory).stdin(Stdio::null()).stderr(Stdio::null());
    ChildProcess::spawn(qemu).unwrap()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Waits until the switch puts the port into quarantine after QEMU's first attempt. Returns the
/// reason.
fn refused(rig: &Rig, vm: &str) -> String {
    until("the quarantine", || {
        rig.daemon().port(vm)["quarantines"].as_u64() > Some(0)
    });
    let reason = rig.daemon().port(vm)["reason"].clone();
    reason.as_str().unwrap().to_owned()
}

#[test]
fn memory_that_cannot_be_shared() {
    let rig = Rig::new(None);

    step("a file on a disk");
    std::fs::create_dir_all(home()).unwrap();
    let disk = tempfile::tempdir_in(home()).unwrap();
    let path = disk.path().display();
    let memory = words(&format!(
        "-m 128M -object memory-backend-file,id=m,mem-path={path},size=128M,share=on -machine memory-backend=m"
    ));
    let qemu = start(&rig, "disk", &memory);
    let reason = refused(&rig, "disk");
    assert!(reason.contains("neither a memfd, nor on tmpfs"), "{reason}");
    drop(qemu);

    step("memory that is not a file");
    let qemu = start(&rig, "anonymous", &words("-m 128M"));
    let reason = refused(&rig, "anonymous");
    assert!(reason.contains("not in guest memory"), "{reason}");
    assert!(reason.contains("share=on"), "{reason}");
    drop(qemu);

    // The front-end passes the file, but the guest writes into a private copy of it. The switch
    // cannot tell that from a guest that sends nothing, except by kicks without new descriptors.
    step("a private copy of a file");
    let memory = words(
        "-m 128M -object memory-backend-memfd,id=m,size=128M,share=off -machine memory-backend=m",
    );
    let qemu = start(&rig, "private", &memory);
    let private = || rig.daemon().port("private");
    until("kicks", || {
        private()["counters"]["kicks"].as_u64() > Some(5)
    });
    assert_eq!(private()["counters"]["tx_frames"], 0);
    assert_eq!(private()["state"], "running");
    drop(qemu);
}
