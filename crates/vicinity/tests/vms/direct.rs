//! The direct channel: the guests' module, built here for their kernel, in real VMs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use lab::vm::{Job, Spec, Vm};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::until;
use crate::guest::{self, GUARD, sh};
use crate::rig::{Rig, step};

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

/// A network, and a trust group of three.
const CONFIG: &str = "
[[network]]
name = \"lan\"
accept = true
[[direct.group]]
name = \"g\"
members = [\"a\", \"b\", \"c\"]
";

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
fn member_on_q35(rig: &Rig, name: &str) -> Spec {
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

/// Have the daemon start the group's process anew: it finds everybody as they are.
fn kill_process_of(rig: &Rig, group: &str) {
    let name = format!("direct-{group}");
    let killed = rig.daemon().signal_process(&name, Signal::KILL);
    until("another process", || {
        rig.daemon().process(&name).is_some_and(|id| id != killed)
    });
}

/// How the daemon says that a VM is.
pub(crate) fn standing(rig: &Rig, vm: &str) -> String {
    let output = rig.daemon().command(&["direct", "list", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let groups: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut members = groups[0]["members"].as_array().unwrap().iter();
    let member = members.find(|member| member["vm"] == vm);
    member
        .map_or("", |member| member["state"].as_str().unwrap())
        .to_owned()
}

fn ip(number: u8) -> String {
    format!("10.97.0.{number}")
}

/// Load the module and take this address.
pub(crate) fn load(vm: &Vm, number: u8) {
    insert(vm);
    address(vm, number);
}

fn address(vm: &Vm, number: u8) {
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
    sh(
        vm,
        "until test -e /sys/class/net/direct0; do sleep 0.1; done",
    );
}

fn counter(vm: &Vm, name: &str) -> u64 {
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

/// The group's control window, as the daemon holds it.
fn window(rig: &Rig) -> File {
    let entries = fs::read_dir(format!("/proc/{}/fd", rig.pid())).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| {
        let link = fs::read_link(path).unwrap_or_default();
        link.to_string_lossy().starts_with("/memfd:vicinity-direct")
    };
    let path = paths.find(is_it).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

/// Have `from` send to `to`, which is number 2, for as long as the job runs.
fn flood<'vm>(from: &'vm Vm, to: &Vm) -> Job<'vm> {
    let job = from
        .start("exec iperf3 --client 10.97.0.2 --time 600")
        .unwrap();
    let before = received(to);
    while received(to) < before + (1 << 20) {}
    job
}

fn received(vm: &Vm) -> u64 {
    sh(vm, "cat /sys/class/net/direct0/statistics/rx_bytes")
        .parse()
        .unwrap()
}

/// The sessions in which `a` and `b` send to each other.
fn sessions(window: &File) -> [u32; 2] {
    [(0, 1), (1, 0)].map(|(from, to)| {
        let mut word = [0; 4];
        let at = ::direct::layout::ring(from, to);
        window.read_exact_at(&mut word, at).unwrap();
        u32::from_le_bytes(word)
    })
}

/// Bytes of a ring with its words: 5 pages.
const RING: u64 = 5 * 4096;

#[test]
fn vms_of_a_group_see_each_others_memory() {
    let mut rig = with_module(Rig::new(Some(CONFIG)));
    let [a, b, c] = rig.boot([
        member(&rig, "a"),
        member_on_q35(&rig, "b"),
        restartable(member(&rig, "c")),
    ]);

    step("the devices are plugged in while the guests run");
    for (number, vm) in (1..).zip([&a, &b, &c]) {
        until_devices(vm, 3);
        load(vm, number);
    }
    for vm in [&a, &b, &c] {
        until_peers(vm, 2);
    }
    guest::ping(&a, &ip(3));
    guest::ping(&c, &ip(2));

    step("one of three starts again");
    start_again(&c);
    for vm in [&a, &b] {
        until_peers(vm, 1);
    }
    load(&c, 3);
    for vm in [&a, &b, &c] {
        until_peers(vm, 2);
    }
    guest::ping(&a, &ip(3));

    step("one of three is switched off");
    drop(c);
    for vm in [&a, &b] {
        until_devices(vm, 2);
        until_peers(vm, 1);
    }
    guest::ping(&a, &ip(2));

    step("TCP both ways, and a file whose bytes are compared");
    guest::serve_iperf(&b);
    guest::tcp_both_ways(&a, &ip(2), 64);
    guest::copy_file(&a, &b, &ip(2), 16);
    guest::copy_file(&b, &a, &ip(1), 16);
    for vm in [&a, &b] {
        for name in ["tx_copied", "tx_nonsense", "rx_nonsense"] {
            assert_eq!(counter(vm, name), 0, "{name} in {}", vm.name());
        }
    }

    step("a ring full of nonsense harms nobody");
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let window = window(&rig);
    let mut rounds = 0;
    let ring = ::direct::layout::ring(0, 1);
    let before = counter(&b, "rx_nonsense");
    let sending = a.start("exec ping -f -s 1400 10.97.0.2").unwrap();
    while counter(&b, "rx_nonsense") < before + 5 {
        rounds += 1;
        for _ in 0..50 {
            window
                .write_all_at(
                    &random.u64(..).to_le_bytes(),
                    ring + random.u64(..RING / 8) * 8,
                )
                .unwrap();
        }
        // What was produced and consumed, and now and then the sessions.
        for word in [4, 8, 132, 0, 128] {
            if !matches!(word, 0 | 128) || rounds % 8 == 0 {
                let value = random.u32(..) >> random.u32(..32);
                window
                    .write_all_at(&value.to_le_bytes(), ring + word)
                    .unwrap();
            }
        }
    }
    sending.kill().unwrap();
    for vm in [&a, &b] {
        until_peers(vm, 1);
        is_well(vm);
    }
    guest::ping(&a, &ip(2));

    step("the process that serves the group is killed under load, which nobody notices");
    let sending = flood(&a, &b);
    let before = sessions(&window);
    kill_process_of(&rig, "g");
    until("to be found again", || standing(&rig, "b") == "joined");
    let at = received(&b);
    while received(&b) < at + (8 << 20) {}
    assert_eq!(sessions(&window), before);
    assert_eq!([devices(&a), devices(&b)], ["2", "2"]);

    step("unloaded under load, and loaded again");
    sh(&b, "rmmod vicinity_direct");
    until_peers(&a, 0);
    sending.kill().unwrap();
    load(&b, 2);
    for vm in [&a, &b] {
        until_peers(vm, 1);
        is_well(vm);
    }
    guest::ping(&b, &ip(1));

    step("a peer that is killed under load leaves nothing behind");
    let sending = flood(&a, &b);
    let qemu = Pid::from_raw(i32::try_from(b.id()).unwrap()).unwrap();
    kill_process(qemu, Signal::KILL).unwrap();
    until_peers(&a, 0);
    until_devices(&a, 1);
    sending.kill().unwrap();
    drop(b);
    is_well(&a);

    step("and one of its name takes its place");
    let [b] = rig.boot([member_on_q35(&rig, "b")]);
    until_devices(&b, 2);
    load(&b, 2);
    for vm in [&a, &b] {
        until_peers(vm, 1);
    }
    guest::ping(&b, &ip(1));

    step("it leaves, and joins again");
    guest::serve_iperf(&b);
    let sending = flood(&a, &b);
    for _ in 0..3 {
        assert!(
            rig.daemon()
                .command(&["direct", "leave", "b"])
                .status
                .success()
        );
        assert_eq!([devices(&a), devices(&b)], ["1", "0"]);
        assert_eq!(standing(&rig, "b"), "out");
        assert!(
            rig.daemon()
                .command(&["direct", "join", "b"])
                .status
                .success()
        );
        until_devices(&b, 2);
        sh(
            &b,
            "until test -e /sys/class/net/direct0; do sleep 0.1; done",
        );
        address(&b, 2);
        for vm in [&a, &b] {
            until_peers(vm, 1);
        }
        guest::ping(&b, &ip(1));
    }
    sending.kill().unwrap();

    step("at the end everything is taken away, under load");
    let sending = flood(&a, &b);
    rig.end(Signal::TERM);
    for vm in [&a, &b] {
        assert_eq!(devices(vm), "0");
        sh(vm, "rmmod vicinity_direct");
        is_well(vm);
    }
    sending.kill().unwrap();

    step("QEMUs live on, and another daemon joins them");
    rig.serve();
    for (number, vm) in (1..).zip([&a, &b]) {
        until_devices(vm, 2);
        load(vm, number);
    }
    guest::ping(&a, &ip(2));
    rig.end(Signal::KILL);
    rig.serve();
    for vm in [&a, &b] {
        until("to be found again", || {
            standing(&rig, vm.name()) == "joined"
        });
        until_devices(vm, 2);
        is_well(vm);
    }
}
