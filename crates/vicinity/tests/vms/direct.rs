//! Members of trust groups: VMs whose guests have the direct channel's module, which this test
//! builds for their kernel.

use observe::proc::Proc;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vm_harness::vm::{Job, Spec, Vm};

use crate::common::{until, until_or};
use crate::guest::{self, GUARD, sh};
use crate::rig::{Preferred, Rig};

/// Path of the module in the guests.
const MODULE: &str = "/lib/modules/vicinity_direct.ko";

/// Messages of a kernel in which something went wrong.
const TROUBLE: [&str; 6] = [
    "BUG:",
    "WARNING:",
    "Oops",
    "Call Trace",
    "refcount",
    "stall",
];

/// Returns a configuration with a network and a trust group of these VMs. The caller may append
/// keys to the group's table.
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

/// Puts the module into the guests of this host.
pub(crate) fn with_module(rig: Rig) -> Rig {
    let module = guest::module("direct", rig.kernel());
    rig.with_file(&module, &MODULE[1..], "with-module")
}

/// Returns a VM that may join, without a NIC.
pub(crate) fn member(rig: &Rig, name: &str) -> Spec {
    let mut spec = rig.bare(name);
    spec.memory_mib = 512;
    spec.qemu_args = words(rig, &["direct", "qemu-args", name]);
    spec
}

/// Returns a VM that may join, without a NIC, on a `q35` machine.
pub(crate) fn member_on_q35(rig: &Rig, name: &str) -> Spec {
    let mut spec = member(rig, name);
    spec.qemu_args = words(rig, &["direct", "qemu-args", name, "--ports", "7"]);
    // The firmware places the memory of root ports at the end of the physical address space. On AMD
    // processors with 40 bits, the last 12 GiB must not be used.
    let more = ["-machine", "q35", "-global", "x86_64-cpu.phys-bits=39"];
    spec.qemu_args.extend(more.map(str::to_owned));
    spec
}

/// Returns the VM with permission for its guest to reboot.
pub(crate) fn restartable(mut spec: Spec) -> Spec {
    spec.qemu_args
        .extend(["-action", "reboot=reset"].map(str::to_owned));
    spec
}

/// Sends a signal to a VM's QEMU.
pub(crate) fn signal(vm: &Vm, signal: Signal) {
    let qemu = Pid::from_raw(i32::try_from(vm.id()).unwrap()).unwrap();
    kill_process(qemu, signal).unwrap();
}

/// Reboots a guest without an orderly shutdown.
pub(crate) fn start_again(vm: &Vm) {
    let boot = "cat /proc/sys/kernel/random/boot_id";
    let before = sh(vm, boot);
    sh(
        vm,
        "setsid bash -c 'sleep 0.1; echo b >/proc/sysrq-trigger' </dev/null >/dev/null 2>&1 &",
    );
    let _first = Preferred::over_other_vms(vm);
    until("another start", || {
        vm.wait_ready(GUARD).unwrap();
        vm.check(boot, GUARD).is_ok_and(|now| now.trim() != before)
    });
}

/// Returns the output of the program as words.
pub(crate) fn words(rig: &Rig, arguments: &[&str]) -> Vec<String> {
    let output = rig.daemon().command(arguments);
    assert!(output.status.success(), "{output:?}");
    shlex::split(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// Makes a VM `leave`, or `join`.
pub(crate) fn tell(rig: &Rig, what: &str, vm: &str) {
    let output = rig.daemon().command(&["direct", what, vm]);
    assert!(output.status.success(), "{output:?}");
}

/// Returns the state of a VM as the daemon reports it.
pub(crate) fn standing(rig: &Rig, vm: &str) -> String {
    let state = member_of(rig, vm)["state"].clone();
    state.as_str().unwrap_or_default().to_owned()
}

/// Returns the daemon's status of a VM; null while no process serves the group.
pub(crate) fn member_of(rig: &Rig, vm: &str) -> Value {
    let output = rig.daemon().command(&["direct", "list", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let groups: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut members = groups[0]["members"].as_array().unwrap().iter();
    let member = members.find(|member| member["vm"] == vm);
    member.cloned().unwrap_or_default()
}

/// Returns the IP address of the direct device of the VM with this number.
pub(crate) fn ip(number: u8) -> String {
    format!("10.97.0.{number}")
}

/// Loads the module and configures the address of this number.
pub(crate) fn load(vm: &Vm, number: u8) {
    insert(vm);
    address(vm, number);
    assert_cached(vm);
}

/// Asserts that the module maps the devices cached.
pub(crate) fn assert_cached(vm: &Vm) {
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

/// Loads the module.
pub(crate) fn insert(vm: &Vm) {
    // Emulated guests may log warnings about their clock while they boot on a busy host.
    sh(vm, &format!("dmesg --clear; insmod {MODULE}"));
    until_device(vm);
}

/// Waits until a guest with the module has the network device.
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

/// Waits until a VM exchanges packets with `count` others, and holds no packets of members that
/// have left.
pub(crate) fn until_peers(vm: &Vm, count: u64) {
    let is = |name: &str, value: u64| format!("ethtool -S direct0 | grep -q '^ *{name}: {value}$'");
    let (peers, held) = (is("peers", count), is("tx_held", 0));
    sh(vm, &format!("until {peers} && {held}; do sleep 0.1; done"));
}

/// Waits until a VM is `joined`. If it does not join, fails with what the daemon and the kernel say of it.
pub(crate) fn until_joined(rig: &Rig, vm: &Vm) {
    until_or(
        || standing(rig, vm.name()) == "joined",
        || {
            let member = member_of(rig, vm.name());
            format!("{member}\nthe threads of its QEMU:\n{}", threads_of(vm))
        },
    );
}

/// Returns the name of each thread of a VM's QEMU, its state, and the function and the call of the kernel in which it waits.
fn threads_of(vm: &Vm) -> String {
    let threads = Proc::default().threads(vm.id());
    let of_kernel = |thread: &u32| {
        let folder = format!("/proc/{}/task/{thread}", vm.id());
        let read = |file| std::fs::read_to_string(format!("{folder}/{file}")).unwrap_or_default();
        let [status, wchan, system_call] = ["status", "wchan", "syscall"].map(read);
        let is_shown = |line: &&str| line.starts_with("Name:") || line.starts_with("State:");
        let lines: Vec<_> = status.lines().filter(is_shown).collect();
        format!("{} {wchan} {system_call}", lines.join(" "))
    };
    let lines: Vec<_> = threads.iter().map(of_kernel).collect();
    lines.join("\n")
}

/// Waits until a VM answers an echo request from `from`. A peer that only now detects that the other had left
/// starts a new session.
pub(crate) fn until_reached(from: &Vm, to: &str) {
    sh(from, &format!("until ping -c 1 -W 1 {to}; do :; done"));
}

/// Returns the views and windows of a VM.
pub(crate) fn devices(vm: &Vm) -> String {
    sh(vm, "grep -l 0x1110 /sys/bus/pci/devices/*/device | wc -l")
}

pub(crate) fn until_devices(vm: &Vm, count: usize) {
    let count = count.to_string();
    let count_them = "grep -l 0x1110 /sys/bus/pci/devices/*/device | wc -l";
    // Before the time limit of `sh`, so that a failure says what the guest's kernel did.
    sh(
        vm,
        &format!(
            "end=$(($(date +%s) + 90)); until test $({count_them}) = {count}; do sleep 0.1; \
             if test $(date +%s) -gt $end; then \
             ls -m /sys/bus/pci/devices; dmesg | tail -n 10; exit 1; fi; done"
        ),
    );
}

pub(crate) fn is_well(vm: &Vm) {
    let said = sh(vm, "dmesg");
    let trouble = TROUBLE.iter().any(|word| said.contains(word));
    assert!(!trouble, "kernel of {}: {said}", vm.name());
}

/// Makes `from` send to `to`, which is number 2, while the job runs.
pub(crate) fn flood<'vm>(from: &'vm Vm, to: &Vm) -> Job<'vm> {
    let job = from
        .start("exec iperf3 --client 10.97.0.2 --time 600")
        .unwrap();
    let before = received(to, "bytes");
    while received(to, "bytes") < before + (1 << 20) {}
    job
}

/// Returns the bytes or packets that a VM's direct device has received.
pub(crate) fn received(vm: &Vm, what: &str) -> u64 {
    let file = format!("/sys/class/net/direct0/statistics/rx_{what}");
    sh(vm, &format!("cat {file}")).parse().unwrap()
}
