//! Members of trust groups: VMs whose guests get the direct channel's module, built here for their
//! kernel.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vm_harness::vm::{Job, Spec, Vm};

use crate::common::until;
use crate::guest::{self, GUARD, sh};
use crate::rig::Rig;

/// Where the module is in the guests.
const MODULE: &str = "/lib/modules/vicinity_direct.ko";

/// What a kernel says when something is wrong in it.
const TROUBLE: [&str; 6] = [
    "BUG:",
    "WARNING:",
    "Oops",
    "Call Trace",
    "refcount",
    "stall",
];

/// A network, and a trust group of these VMs; more of its table may follow.
pub(crate) fn config(members: &[&str]) -> String {
    format!(
        "
[[network]]
name = \"lan\"
accept = true
[[direct.group]]
name = \"g\"
members = {members:?}
"
    )
}

/// Guests of this host get the module.
pub(crate) fn with_module(rig: Rig) -> Rig {
    let module = guest::module("direct", rig.kernel());
    rig.with_file(&module, &MODULE[1..], "with-module")
}

/// A VM that may join, without a NIC.
pub(crate) fn member(rig: &Rig, name: &str) -> Spec {
    let mut spec = rig.bare(name);
    spec.memory_mib = 512;
    spec.qemu_args = words(rig, &["direct", "qemu-args", name]);
    spec
}

/// The same on a `q35` machine.
pub(crate) fn member_on_q35(rig: &Rig, name: &str) -> Spec {
    let mut spec = member(rig, name);
    spec.qemu_args = words(rig, &["direct", "qemu-args", name, "--ports", "7"]);
    // The firmware puts ports' memory at the end of what can be addressed. An AMD processor's last
    // 12 GiB of 40 bits are not to be used.
    let more = ["-machine", "q35", "-global", "x86_64-cpu.phys-bits=39"];
    spec.qemu_args.extend(more.map(str::to_owned));
    spec
}

/// One whose guest may start again.
pub(crate) fn restartable(mut spec: Spec) -> Spec {
    spec.qemu_args
        .extend(["-action", "reboot=reset"].map(str::to_owned));
    spec
}

/// Send a signal to a VM's QEMU.
pub(crate) fn signal(vm: &Vm, signal: Signal) {
    let qemu = Pid::from_raw(i32::try_from(vm.id()).unwrap()).unwrap();
    kill_process(qemu, signal).unwrap();
}

/// Have a guest start again, as it does without an orderly end.
pub(crate) fn start_again(vm: &Vm) {
    let boot = "cat /proc/sys/kernel/random/boot_id";
    let before = sh(vm, boot);
    sh(
        vm,
        "setsid bash -c 'sleep 0.1; echo b >/proc/sysrq-trigger' </dev/null >/dev/null 2>&1 &",
    );
    until("another start", || {
        vm.wait_ready(GUARD).unwrap();
        vm.check(boot, GUARD).is_ok_and(|now| now.trim() != before)
    });
}

/// What the program prints, as words.
pub(crate) fn words(rig: &Rig, arguments: &[&str]) -> Vec<String> {
    let output = rig.daemon().command(arguments);
    assert!(output.status.success(), "{output:?}");
    shlex::split(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// Have a VM `leave`, or `join`.
pub(crate) fn tell(rig: &Rig, what: &str, vm: &str) {
    let output = rig.daemon().command(&["direct", what, vm]);
    assert!(output.status.success(), "{output:?}");
}

/// How the daemon says that a VM is.
pub(crate) fn standing(rig: &Rig, vm: &str) -> String {
    let state = member_of(rig, vm)["state"].clone();
    state.as_str().unwrap_or_default().to_owned()
}

/// What the daemon knows of a VM; null while no process serves the group.
pub(crate) fn member_of(rig: &Rig, vm: &str) -> Value {
    let output = rig.daemon().command(&["direct", "list", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let groups: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut members = groups[0]["members"].as_array().unwrap().iter();
    let member = members.find(|member| member["vm"] == vm);
    member.cloned().unwrap_or_default()
}

/// Address of this VM's direct device.
pub(crate) fn ip(number: u8) -> String {
    format!("10.97.0.{number}")
}

/// Load the module and take this address.
pub(crate) fn load(vm: &Vm, number: u8) {
    insert(vm);
    address(vm, number);
    let said = sh(vm, "dmesg");
    assert!(!said.contains("mapped uncached"), "{said}");
}

pub(crate) fn address(vm: &Vm, number: u8) {
    let address = ip(number);
    sh(
        vm,
        &format!("ip addr add {address}/24 dev direct0; ip link set direct0 up"),
    );
}

/// Load the module.
pub(crate) fn insert(vm: &Vm) {
    // Emulated guests may complain of their clock while they boot on a busy host.
    sh(vm, &format!("dmesg --clear; insmod {MODULE}"));
    until_device(vm);
}

/// Wait until a guest with the module has the network device.
pub(crate) fn until_device(vm: &Vm) {
    sh(
        vm,
        "until test -e /sys/class/net/direct0; do sleep 0.1; done",
    );
}

pub(crate) fn counter(vm: &Vm, name: &str) -> u64 {
    let line = sh(vm, &format!("ethtool -S direct0 | grep ' {name}: '"));
    let (_, value) = line.rsplit_once(' ').unwrap();
    value.parse().unwrap()
}

/// Wait until a VM exchanges packets with so many others, and holds none of those that are gone.
pub(crate) fn until_peers(vm: &Vm, count: u64) {
    let is = |name: &str, value: u64| format!("ethtool -S direct0 | grep -q '^ *{name}: {value}$'");
    let (peers, held) = (is("peers", count), is("tx_held", 0));
    sh(vm, &format!("until {peers} && {held}; do sleep 0.1; done"));
}

/// Wait until a VM has an echo from here: a peer that has only now seen that the other was gone begins
/// once more.
pub(crate) fn until_reached(from: &Vm, to: &str) {
    sh(from, &format!("until ping -c 1 -W 1 {to}; do :; done"));
}

/// Views and windows that a VM has.
pub(crate) fn devices(vm: &Vm) -> String {
    sh(vm, "grep -l 0x1110 /sys/bus/pci/devices/*/device | wc -l")
}

pub(crate) fn until_devices(vm: &Vm, count: usize) {
    let count = count.to_string();
    let count_them = "grep -l 0x1110 /sys/bus/pci/devices/*/device | wc -l";
    sh(
        vm,
        &format!("until test $({count_them}) = {count}; do sleep 0.1; done"),
    );
}

pub(crate) fn is_well(vm: &Vm) {
    let said = sh(vm, "dmesg");
    let trouble = TROUBLE.iter().any(|word| said.contains(word));
    assert!(!trouble, "kernel of {}: {said}", vm.name());
}

/// Have `from` send to `to`, which is number 2, for as long as the job runs.
pub(crate) fn flood<'vm>(from: &'vm Vm, to: &Vm) -> Job<'vm> {
    let job = from
        .start("exec iperf3 --client 10.97.0.2 --time 600")
        .unwrap();
    let before = received(to, "bytes");
    while received(to, "bytes") < before + (1 << 20) {}
    job
}

/// Bytes or packets that a VM's direct device has received.
pub(crate) fn received(vm: &Vm, what: &str) -> u64 {
    let file = format!("/sys/class/net/direct0/statistics/rx_{what}");
    sh(vm, &format!("cat {file}")).parse().unwrap()
}
