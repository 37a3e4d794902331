//! A VM that is reset, switched off and killed, while two others go on.

use std::process::Stdio;

use lab::vm::{Link, Nic, Spec, Vm};
use serde_json::json;

use crate::common::until;
use crate::guest::{Pinging, ping, serve_iperf, sh};
use crate::rig::{Rig, ip, step};

/// Kills of a VM that runs no operating system: its firmware drives the NIC.
const FIRMWARE_CYCLES: usize = 6;

/// What a daemon and its data plane hold for their ports.
fn holdings(rig: &Rig) -> [usize; 2] {
    let mut sum = [0; 2];
    let data_plane = rig.daemon().data_plane("default").unwrap();
    for process in [rig.pid(), data_plane] {
        let process = format!("/proc/{process}");
        sum[0] += std::fs::read_dir(format!("{process}/fd")).unwrap().count();
        let maps = std::fs::read_to_string(format!("{process}/maps")).unwrap();
        sum[1] += maps.lines().filter(|line| line.contains("memfd:")).count();
    }
    sum
}

/// The daemon holds this much and no more, once the last question to it is cleared away: its
/// connection is closed a moment after the answer has come.
fn settles(rig: &Rig, holds: [usize; 2], when: &str) {
    let what = format!("{holds:?} descriptors and memories {when}");
    until(&what, || holdings(rig) == holds);
}

/// What the daemon holds, when it no longer changes.
fn settled(rig: &Rig) -> [usize; 2] {
    let mut last = [0; 2];
    until("the daemon to settle", || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        let now = holdings(rig);
        std::mem::replace(&mut last, now) == now
    });
    last
}

/// The VM that comes and goes. A reset starts its kernel again, which then finds its address
/// by itself.
fn guest(rig: &Rig) -> Spec {
    let address = ip(3);
    let mut spec = rig.bare("guest").nic(Nic {
        link: Link::VhostUser {
            socket: rig.daemon().path("default/guest.sock"),
            qemu_listens: true,
        },
        mac: "52:54:00:00:98:03".to_owned(),
        address: Some(format!("{address}/24")),
        properties: Vec::new(),
    });
    spec.qemu_args = ["-action", "reboot=reset"].map(str::to_owned).to_vec();
    spec
}

fn up(rig: &Rig) -> Vm {
    let [vm] = rig.boot([guest(rig)]);
    rig.until_state("guest", "running");
    ping(&vm, &ip(2));
    vm
}

fn load(vm: &Vm) {
    let to = ip(2);
    let iperf = format!("iperf3 --client {to} --time 600 </dev/null >/dev/null 2>&1");
    sh(vm, &format!("setsid {iperf} &"));
    sh(
        vm,
        "until ss -Htn state established 'dport = :5201' | grep -q .; do sleep 0.1; done",
    );
}

#[test]
fn vm_comes_and_goes() {
    let rig = Rig::new(None);
    let [red, blue] = rig.boot_named(["red", "blue"]);
    serve_iperf(&blue);
    let pinging = Pinging::start(&red, &ip(2));
    let vm = up(&rig);
    let before = settled(&rig);

    step("reset under load");
    load(&vm);
    reset(&rig, &vm, &red);
    settles(&rig, before, "after a reset");
    pinging.goes_on();

    step("switched off from inside");
    drop(vm.start("echo o >/proc/sysrq-trigger").unwrap());
    rig.until_state("guest", "waiting");
    until("QEMU's end", || !vm.is_running().unwrap());
    drop(vm);
    pinging.goes_on();
    let without = settled(&rig);

    step("killed under load");
    let vm = up(&rig);
    // The server still waits for the guest that went away, and serves one at a time.
    sh(&blue, "pkill -KILL iperf3; sleep 0.5");
    serve_iperf(&blue);
    load(&vm);
    settles(&rig, before, "with the guest again");
    drop(vm);
    rig.until_state("guest", "waiting");
    settles(&rig, without, "after the kill");

    killed_in_the_firmware(&rig);
    settles(&rig, without, "after many kills");
    let port = rig.daemon().port("guest");
    assert!(port["reason"].is_string(), "{port}");
    assert_eq!(port["quarantines"], 0, "{port}");

    step("the others did not notice");
    let [sent, received] = pinging.stop();
    assert!(sent - received <= 1, "{received} of {sent} echoes");
}

fn reset(rig: &Rig, vm: &Vm, neighbour: &Vm) {
    let boot = || sh(vm, "cat /proc/sys/kernel/random/boot_id");
    let old = boot();
    let mut qmp = vm.qmp().unwrap();
    qmp.execute("system_reset", &json!({})).unwrap();
    rig.until_state("guest", "connected");
    rig.until_state("guest", "running");
    let there = format!("ping -c 1 -W 1 {}", ip(3));
    sh(neighbour, &format!("until {there}; do :; done"));
    assert_ne!(boot(), old);
    ping(vm, &ip(2));
}

fn killed_in_the_firmware(rig: &Rig) {
    for cycle in 1..=FIRMWARE_CYCLES {
        step(&format!("killed in the firmware, time {cycle}"));
        let mut qemu = lab::host::command("qemu-system-x86_64");
        qemu.args(["-accel", "tcg", "-display", "none", "-nodefaults"]);
        qemu.args(rig.qemu_args("guest"));
        qemu.stdin(Stdio::null()).stderr(Stdio::null());
        let connections = rig.daemon().port("guest")["connections"].as_u64().unwrap();
        let qemu = lab::host::Tied::spawn(qemu).unwrap();
        rig.until_state("guest", "running");
        drop(qemu);
        rig.until_state("guest", "waiting");
        let now = rig.daemon().port("guest")["connections"].as_u64().unwrap();
        assert_eq!(now, connections + 1);
    }
}
