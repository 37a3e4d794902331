//! The direct channel: the guests' module, built here for their kernel, in real VMs.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lab::host::Tied;
use lab::vm::{Job, Spec, Vm};
use rustix::process::{Pid, Signal, kill_process};

use crate::guest::{self, sh};
use crate::rig::{Rig, home, step};

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

/// Build the module for this kernel.
fn module(release: &str) -> PathBuf {
    let folder = home().join("direct");
    fs::create_dir_all(&folder).unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/direct");
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    let mut make = lab::host::command("make");
    make.arg("--directory").arg(&folder);
    make.args([format!("RELEASE={release}"), "KCFLAGS=-Werror".to_owned()]);
    lab::host::run(make).unwrap_or_else(|error| panic!("{error}: scripts/setup test"));
    let stripped = folder.join("stripped.ko");
    let mut strip = lab::host::command("strip");
    strip.arg("--strip-debug").arg("-o").arg(&stripped);
    strip.arg(folder.join("vicinity_direct.ko"));
    lab::host::run(strip).unwrap();
    stripped
}

fn rig() -> Rig {
    let rig = Rig::new(None);
    let module = module(rig.kernel());
    rig.with_file(&module, &MODULE[1..], "with-module")
}

/// `vicinity direct serve`.
fn serve(folder: &Path, vms: &[&str]) -> Tied {
    let mut command = lab::host::command(env!("CARGO_BIN_EXE_vicinity"));
    command
        .arg("--runtime-dir")
        .arg(folder)
        .args(["direct", "serve"])
        .args(vms);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    Tied::spawn(command).unwrap()
}

/// A VM that may join.
fn member(rig: &Rig, folder: &Path, name: &str) -> Spec {
    let mut command = crate::common::vicinity();
    command
        .arg("--runtime-dir")
        .arg(folder)
        .args(["direct", "qemu-args", name]);
    let output = command.output().unwrap();
    let mut spec = rig.bare(name);
    spec.memory_mib = 512;
    spec.qemu_args = shlex::split(&String::from_utf8(output.stdout).unwrap()).unwrap();
    spec
}

fn ip(number: u8) -> String {
    format!("10.97.0.{number}")
}

/// Load the module and take this address.
fn load(vm: &Vm, number: u8) {
    // Emulated guests may complain of their clock while they boot on a busy host.
    sh(vm, &format!("dmesg --clear; insmod {MODULE}"));
    let address = ip(number);
    sh(
        vm,
        "until test -e /sys/class/net/direct0; do sleep 0.1; done",
    );
    sh(
        vm,
        &format!("ip addr add {address}/24 dev direct0; ip link set direct0 up"),
    );
}

fn counter(vm: &Vm, name: &str) -> u64 {
    let line = sh(vm, &format!("ethtool -S direct0 | grep ' {name}: '"));
    let (_, value) = line.rsplit_once(' ').unwrap();
    value.parse().unwrap()
}

/// Wait until a VM exchanges packets with so many others, and holds none of those that are gone.
fn until_peers(vm: &Vm, count: u64) {
    let is = |name: &str, value: u64| format!("ethtool -S direct0 | grep -q '^ *{name}: {value}$'");
    let (peers, held) = (is("peers", count), is("tx_held", 0));
    sh(vm, &format!("until {peers} && {held}; do sleep 0.1; done"));
}

/// Views and windows that a VM has.
fn devices(vm: &Vm) -> String {
    sh(vm, "grep -l 0x1110 /sys/bus/pci/devices/*/device | wc -l")
}

fn until_devices(vm: &Vm, count: usize) {
    let count = count.to_string();
    let count_them = "grep -l 0x1110 /sys/bus/pci/devices/*/device | wc -l";
    sh(
        vm,
        &format!("until test $({count_them}) = {count}; do sleep 0.1; done"),
    );
}

fn is_well(vm: &Vm) {
    let said = sh(vm, "dmesg");
    let trouble = TROUBLE.iter().any(|word| said.contains(word));
    assert!(!trouble, "kernel of {}: {said}", vm.name());
}

/// The group's control window, as the process that serves it holds it.
fn window(serve: &Tied) -> File {
    let folder = family(serve.id())
        .into_iter()
        .map(|id| format!("/proc/{id}/fd"));
    let entries = folder.flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| {
        let link = fs::read_link(path).unwrap_or_default();
        link.to_string_lossy().starts_with("/memfd:vicinity-direct")
    };
    let path = paths.into_iter().find(is_it).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

/// A process may have been started through a shell that stays its parent.
fn family(id: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    let mut all = vec![id];
    all.extend(
        children
            .split_whitespace()
            .map(|id| id.parse::<u32>().unwrap()),
    );
    all
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

/// Bytes of a ring with its words: 5 pages.
const RING: u64 = 5 * 4096;

#[test]
fn vms_of_a_group_see_each_others_memory() {
    let rig = rig();
    let folder = rig.folder().join("d");
    let serving = serve(&folder, &["a", "b", "c"]);
    while !folder.join("direct/c.sock").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let [a, b, c] = rig.boot(["a", "b", "c"].map(|name| member(&rig, &folder, name)));

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
    let window = window(&serving);
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

    step("unloaded under load, and loaded again");
    let sending = flood(&a, &b);
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
    let [b] = rig.boot([member(&rig, &folder, "b")]);
    until_devices(&b, 2);
    load(&b, 2);
    for vm in [&a, &b] {
        until_peers(vm, 1);
    }
    guest::ping(&b, &ip(1));

    step("at the end the views are taken away, under load");
    guest::serve_iperf(&b);
    let sending = flood(&a, &b);
    serving.stop();
    for vm in [&a, &b] {
        assert_eq!(devices(vm), "1");
        until_peers(vm, 0);
        sh(vm, "rmmod vicinity_direct");
        is_well(vm);
    }
    sending.kill().unwrap();

    step("QEMU lives on, and says what it needs to be joined again");
    let mut serving = crate::common::vicinity();
    serving
        .arg("--runtime-dir")
        .arg(&folder)
        .args(["direct", "serve", "a"]);
    let mut serving = serving.stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(serving.stderr.take().unwrap()).lines();
    let mut said = said.map(Result::unwrap);
    assert!(said.any(|line| line.contains("restart the VM")));
    serving.kill().unwrap();
    serving.wait().unwrap();
}
