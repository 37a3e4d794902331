//! VMs whose memory cannot be shared: what the user sees, and that neighbours go on.

use std::process::{Command, Stdio};

use lab::host::{Tied, command};
use serde_json::Value;

use crate::common::until;
use crate::rig::{Rig, home, step};

/// The options of `vicinity qemu-args`, with another memory.
fn qemu(rig: &Rig, vm: &str, memory: &[String]) -> Tied {
    let words = rig.qemu_args(vm);
    let mut qemu: Command = command("qemu-system-x86_64");
    qemu.args(["-accel", "tcg", "-display", "none", "-nodefaults"]);
    for pair in words.chunks(2) {
        match pair[0].as_str() {
            "-object" | "-machine" => {}
            _ => drop(qemu.args(pair)),
        }
    }
    qemu.args(memory).stdin(Stdio::null()).stderr(Stdio::null());
    Tied::spawn(qemu).unwrap()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn port(rig: &Rig, vm: &str) -> Value {
    rig.daemon().port(vm)
}

#[test]
fn memory_that_cannot_be_shared() {
    let rig = Rig::new(None);
    let size = "size=128M";

    step("a file on a disk");
    std::fs::create_dir_all(home()).unwrap();
    let disk = tempfile::tempdir_in(home()).unwrap();
    let path = disk.path().display();
    let memory = words(&format!(
        "-m 128M -object memory-backend-file,id=m,mem-path={path},{size},share=on -machine memory-backend=m"
    ));
    let one = qemu(&rig, "disk", &memory);
    until("the quarantine", || {
        port(&rig, "disk")["quarantines"].as_u64() > Some(0)
    });
    let reason = port(&rig, "disk")["reason"].clone();
    assert!(reason.as_str().unwrap().contains("memfd"), "{reason}");
    drop(one);

    step("memory that is no file");
    let two = qemu(&rig, "anonymous", &words("-m 128M"));
    rig.daemon().until_state("anonymous", "connected");
    let state = port(&rig, "anonymous");
    eprintln!("{state}");
    std::thread::sleep(std::time::Duration::from_secs(6));
    eprintln!("{}", port(&rig, "anonymous"));
    drop(two);

    step("a private copy of a file");
    let memory = words(&format!(
        "-m 128M -object memory-backend-memfd,id=m,{size},share=off -machine memory-backend=m"
    ));
    let three = qemu(&rig, "private", &memory);
    std::thread::sleep(std::time::Duration::from_secs(10));
    eprintln!("{}", port(&rig, "private"));
    drop(three);
}
