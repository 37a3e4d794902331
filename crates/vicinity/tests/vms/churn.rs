//! A VM that is reset, switched off and killed, while two others go on.

use lab::vm::{Spec, Vm};
use serde_json::json;

use crate::guest::{GUARD, Pinging, give_address, ping, serve_iperf, sh};
use crate::rig::{Rig, ip, step};

/// Kills of a VM that runs no operating system: its firmware drives the NIC.
const FIRMWARE_CYCLES: usize = 6;

/// What a daemon holds for its ports.
fn holdings(rig: &Rig) -> [usize; 2] {
    let process = format!("/proc/{}", rig.pid());
    let descriptors = std::fs::read_dir(format!("{process}/fd")).unwrap().count();
    let maps = std::fs::read_to_string(format!("{process}/maps")).unwrap();
    let memories = maps.lines().filter(|line| line.contains("memfd:")).count();
    [descriptors, memories]
}

/// The VM that comes and goes; a reset starts its kernel again.
fn guest(rig: &Rig) -> Spec {
    let mut spec = rig.spec("guest");
    spec.qemu_args
        .extend(["-action", "reboot=reset"].map(str::to_owned));
    spec
}

fn up(rig: &Rig) -> Vm {
    let [vm] = rig.boot([guest(rig)]);
    joins(rig, &vm);
    vm
}

fn joins(rig: &Rig, vm: &Vm) {
    give_address(vm, 3);
    rig.daemon().until_state("guest", "running");
    ping(vm, &ip(2));
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
    let before = holdings(&rig);

    step("reset under load");
    load(&vm);
    reset(&rig, &vm);
    assert_eq!(holdings(&rig), before, "after a reset");
    pinging.goes_on();

    step("switched off from inside");
    drop(vm.start("echo o >/proc/sysrq-trigger").unwrap());
    rig.daemon().until_state("guest", "waiting");
    crate::common::until("QEMU's end", || !vm.is_running().unwrap());
    drop(vm);
    pinging.goes_on();
    let without = holdings(&rig);

    step("killed under load");
    let vm = up(&rig);
    // The server still waits for the guest that went away, and serves one at a time.
    sh(&blue, "pkill -KILL iperf3; sleep 0.5");
    serve_iperf(&blue);
    load(&vm);
    assert_eq!(holdings(&rig), before, "with the guest again");
    drop(vm);
    rig.daemon().until_state("guest", "waiting");
    assert_eq!(holdings(&rig), without, "after the kill");

    killed_in_the_firmware(&rig);
    assert_eq!(holdings(&rig), without, "after many kills");
    let port = rig.daemon().port("guest");
    assert!(port["reason"].is_string(), "{port}");
    assert_eq!(port["quarantines"], 0, "{port}");

    step("the others did not notice");
    let [sent, received] = pinging.stop();
    assert!(sent - received <= 1, "{received} of {sent} echoes");
}

fn reset(rig: &Rig, vm: &Vm) {
    let id = "cat /proc/sys/kernel/random/boot_id";
    let old = sh(vm, id);
    vm.qmp()
        .unwrap()
        .execute("system_reset", &json!({}))
        .unwrap();
    rig.daemon().until_state("guest", "connected");
    // The agent's channel is the same; questions asked before the new agent is up are lost.
    let new = loop {
        if let Ok(output) = vm.run(id, GUARD) {
            break output.stdout.trim().to_owned();
        }
    };
    assert_ne!(old, new);
    joins(rig, vm);
}

fn killed_in_the_firmware(rig: &Rig) {
    for cycle in 1..=FIRMWARE_CYCLES {
        step(&format!("killed in the firmware, time {cycle}"));
        let mut qemu = lab::host::command("qemu-system-x86_64");
        qemu.args(["-accel", "tcg", "-display", "none", "-nodefaults"]);
        qemu.args(rig.qemu_args("guest"));
        qemu.stdin(std::process::Stdio::null());
        let connections = rig.daemon().port("guest")["connections"].as_u64().unwrap();
        let qemu = lab::host::Tied::spawn(qemu).unwrap();
        rig.daemon().until_state("guest", "running");
        drop(qemu);
        rig.daemon().until_state("guest", "waiting");
        let now = rig.daemon().port("guest")["connections"].as_u64().unwrap();
        assert_eq!(now, connections + 1);
    }
}
