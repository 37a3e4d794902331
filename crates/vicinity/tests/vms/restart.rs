//! Vicinity ends and starts again while VMs run, in both modes of a port.

use std::io::Read;
use std::os::unix::net::UnixStream;

use front_end::frame::{mac, numbered};
use front_end::{Layout, Nic, Options, Wire};
use rustix::process::Signal;
use serde_json::{Value, json};
use vm_harness::vm::Vm;

use crate::common::until;
use crate::guest::{Pinging, serve_iperf, sh, tcp_both_ways, wait_for_port};
use crate::rig::{Rig, ip, shared_by_workers, step};

fn boot_id(vm: &Vm) -> String {
    sh(vm, "cat /proc/sys/kernel/random/boot_id")
}

#[test]
fn server_and_client_mode() {
    let mut rig = Rig::new(Some(&shared_by_workers(1)));
    assert!(rig.qemu_args("red").join(" ").contains(",reconnect"));
    assert!(rig.qemu_args("blue").join(" ").contains(",server=on"));
    let [red, blue] = rig.boot_named(["red", "blue"]);
    let boots = [&red, &blue].map(boot_id);
    serve_iperf(&blue);
    let pinging = Pinging::start(&red, &ip(2));
    for (number, signal) in (1..).zip([Signal::TERM, Signal::KILL]) {
        step(&format!("{signal:?} with an open TCP connection"));
        open_connection(&red, &blue);
        rig.end(signal);
        rig.serve();
        for vm in ["red", "blue"] {
            rig.until_state(vm, "running");
            assert_eq!(rig.daemon().port(vm)["quarantines"], 0, "start {number}");
        }
        pinging.goes_on();
        finish_connection(&red, &blue);
        tcp_both_ways(&red, &ip(2), 8);
    }
    let [sent, received] = pinging.stop();
    assert!(received > sent / 4, "{received} of {sent} echoes");
    assert_eq!(
        [&red, &blue].map(boot_id),
        boots,
        "no guest was booted again"
    );
    a_second_front_end_waits(&rig);
}

/// Only the data plane is killed while TCP data is in flight. The stream continues by itself.
#[test]
fn data_plane_killed_under_load() {
    let rig = Rig::new(Some(&shared_by_workers(1)));
    let vms = rig.boot_named(["red", "blue"]);
    killed_under_load(&rig, vms, 1);
}

/// The data plane is killed with two workers, which share the rings of four queue pairs.
#[test]
#[ignore = "`make soak` runs it; data_plane_killed_under_load has one worker"]
fn data_plane_with_two_workers_killed_under_load() {
    let rig = Rig::new(Some(&shared_by_workers(2)));
    let vms = rig.boot_with_pairs(["red", "blue"], 4);
    killed_under_load(&rig, vms, 4);
}

fn killed_under_load(rig: &Rig, [red, blue]: [Vm; 2], streams: u32) {
    let boots = [&red, &blue].map(boot_id);
    serve_iperf(&blue);
    let load = format!(
        "iperf3 --client {} --parallel {streams} --time 30 --json >/tmp/load; \
         echo $? >/tmp/load.rc",
        ip(2)
    );
    sh(
        &red,
        &format!("setsid bash -c '{load}' </dev/null >/dev/null 2>&1 &"),
    );
    for number in 1..=5 {
        step(&format!("kill {number} of 5"));
        let before = received(rig, "blue");
        until("traffic", || received(rig, "blue") > before + 1000);
        rig.daemon().signal_data_plane("lan", Signal::KILL);
        until("the restart", || {
            rig.daemon().network("lan")["restarts"] == number
        });
        for vm in ["red", "blue"] {
            rig.until_state(vm, "running");
            assert_eq!(rig.daemon().port(vm)["quarantines"], 0, "kill {number}");
        }
    }
    sh(&red, "until test -e /tmp/load.rc; do sleep 0.2; done");
    let report = sh(&red, "cat /tmp/load");
    assert_eq!(sh(&red, "cat /tmp/load.rc"), "0", "{report}");
    let report: Value = serde_json::from_str(&report).unwrap();
    let last = report["intervals"].as_array().and_then(|all| all.last());
    let bytes = last.and_then(|last| last["sum"]["bytes"].as_u64());
    assert!(bytes > Some(0), "nothing moved at the end: {report}");
    for vm in [&red, &blue] {
        let said = sh(
            vm,
            "dmesg | grep -E 'is not a head|NETDEV WATCHDOG|virtio_net|BUG|WARNING' || true",
        );
        assert_eq!(said, "", "{}'s kernel complains", vm.name());
    }
    assert_eq!([&red, &blue].map(boot_id), boots);
}

/// QEMU stops a VM's rings and starts them again. It sends the kick of a ring before its call, so a frame may be
/// delivered before the back-end can interrupt the guest (`crates/switch/tests/lost_calls.rs`).
#[test]
fn a_vm_stopped_and_continued_under_a_flood_receives_each_time() {
    let rig = Rig::new(Some(&shared_by_workers(1)));
    let [red, blue] = rig.boot_named(["red", "blue"]);
    let flood = red.start(&format!("exec ping -f {}", ip(2))).unwrap();
    let mut monitor = blue.qmp().unwrap();
    for _ in 0..50 {
        for command in ["stop", "cont"] {
            monitor.execute(command, &json!({})).unwrap();
        }
        // Only the other VM sends to this one.
        let before = received(&rig, "red");
        until("answers", || received(&rig, "red") > before + 20);
    }
    flood.kill().unwrap();
    for vm in ["red", "blue"] {
        assert_eq!(rig.daemon().port(vm)["quarantines"], 0);
    }
}

fn received(rig: &Rig, vm: &str) -> u64 {
    rig.daemon().port(vm)["counters"]["rx_frames"]
        .as_u64()
        .unwrap_or_default()
}

fn open_connection(red: &Vm, blue: &Vm) {
    sh(
        blue,
        "setsid socat -u TCP-LISTEN:7001,reuseaddr CREATE:/tmp/said </dev/null >/dev/null 2>&1 &",
    );
    wait_for_port(blue, 7001);
    let to = ip(2);
    sh(
        red,
        &format!(
            "rm -f /tmp/go; setsid bash -c '(echo before; until test -e /tmp/go; do sleep 0.1; done; echo after) | socat -u - TCP:{to}:7001' </dev/null >/dev/null 2>&1 &"
        ),
    );
    sh(blue, "until grep -q before /tmp/said; do sleep 0.1; done");
}

fn finish_connection(red: &Vm, blue: &Vm) {
    sh(red, "touch /tmp/go");
    sh(
        blue,
        "until grep -q after /tmp/said; do sleep 0.1; done; rm /tmp/said",
    );
}

/// Asserts that a second connection to a port does not disturb the first.
fn a_second_front_end_waits(rig: &Rig) {
    step("a second front-end");
    let mut second = UnixStream::connect(rig.daemon().path("lan/red.sock")).unwrap();
    assert_eq!(rig.daemon().port("red")["state"], "running");
    second.set_nonblocking(true).unwrap();
    let read = second.read(&mut [0]).unwrap_err();
    assert_eq!(read.kind(), std::io::ErrorKind::WouldBlock);
}

/// QEMU resumes a ring behind the last chain that the switch returned. So when a frame is
/// overtaken, the switch stores it apart from the ring and does not keep its chain. If the switch
/// kept the chain, a guest would get some chains twice and others never.
#[test]
fn a_daemon_that_ends_keeps_no_chain() {
    let light = |vm| format!("[[network.port]]\nvm = \"{vm}\"\n");
    let ports: String = ["sender", "full", "free"].into_iter().map(light).collect();
    let mut rig = Rig::new(Some(&format!("[[network]]\nname = \"lan\"\n{ports}")));
    let nic = |vm, post| {
        let socket = rig.daemon().path(&format!("lan/{vm}.sock"));
        let wire = Wire::new(UnixStream::connect(socket).unwrap().into());
        let options = Options {
            post,
            ..Options::default()
        };
        let mut nic = Nic::new(wire, options);
        nic.start(|| {});
        nic.sync();
        nic
    };
    let mut sender = nic("sender", true);
    let mut full = nic("full", false);
    let mut free = nic("free", true);
    step("the receivers send a frame, so that the switch learns their addresses");
    for (number, nic) in [(2, &mut full), (3, &mut free)] {
        nic.wait_to_send(&numbered(mac(1), mac(number), 0, 64), Layout::One);
        sender.wait_to_receive();
    }
    step("the switch defers one frame, and the next overtakes it");
    for number in [2, 3] {
        sender.wait_to_send(&numbered(mac(number), mac(1), 0, 64), Layout::One);
    }
    while free.wait_to_receive().frame[..6] != mac(3) {}
    rig.end(Signal::TERM);
    sender.reclaim();
    assert_eq!(sender.in_flight(), 0, "chains that were kept");
}
