//! Several queue pairs, and frames as large as virtio allows.

use observe::proc::Proc;
use vm_harness::vm::Vm;

use crate::common::vicinity;
use crate::counters::{Counters, assert_nothing_vanished};
use crate::guest::{give_address, ping, serve_iperf, sh, tcp_both_ways};
use crate::rig::{Rig, ip, shared_by_workers, step};

/// Returns the number of packets that each transmit queue of the guest has sent.
fn sent_by_queue(vm: &Vm) -> Vec<u64> {
    let said = sh(vm, "ethtool -S eth0");
    let counters = said.lines().filter_map(|line| line.trim().split_once(": "));
    counters
        .filter(|(name, _)| name.starts_with("tx") && name.ends_with("_packets"))
        .map(|(_, count)| count.parse().unwrap())
        .collect()
}

/// Makes the guest use `pairs` of its queue pairs.
fn use_pairs(vm: &Vm, pairs: usize) {
    sh(vm, &format!("ethtool -L eth0 combined {pairs}"));
    assert_eq!(
        sh(vm, "ls /sys/class/net/eth0/queues | grep -c rx"),
        pairs.to_string()
    );
}

/// Sends several streams with each of these numbers of queue pairs, and asserts that no frame is
/// lost without being counted.
fn talk_by_pairs(rig: &Rig, of_both: &[[usize; 2]]) {
    let names = ["red", "blue"];
    let vms = rig.boot_with_pairs(names, 4);
    let [red, blue] = &vms;
    ping(red, &ip(2));
    ping(blue, &ip(1));
    serve_iperf(blue);
    let before = Counters::of(rig.daemon(), names);
    for pairs in of_both {
        step(&format!("{pairs:?} pairs in use"));
        for (vm, pairs) in vms.iter().zip(pairs) {
            use_pairs(vm, *pairs);
        }
        let before = sent_by_queue(red);
        // Linux selects the queue by the sender's CPU. The first and the last CPU have different
        // queues.
        for cpu in [0, 3] {
            let client = format!("iperf3 --client {} --parallel 4 --bytes 12M", ip(2));
            sh(red, &format!("taskset --cpu-list {cpu} {client}"));
        }
        let after = sent_by_queue(red);
        let busy = after
            .iter()
            .zip(&before)
            .filter(|(after, before)| after > before);
        assert!(busy.count() >= pairs[0].min(2), "{before:?} {after:?}");
        tcp_both_ways(red, &ip(2), 4);
    }
    assert_nothing_vanished(&before, &Counters::of(rig.daemon(), names));
}

#[test]
fn vms_with_four_queue_pairs_talk() {
    talk_by_pairs(&Rig::new(None), &[[4, 4], [2, 3], [4, 1], [1, 4]]);
}

/// Different workers read the first and the last queue pair of a VM.
#[test]
#[ignore = "`make soak` runs it; vms_with_four_queue_pairs_talk has one worker"]
fn two_workers_share_four_queue_pairs() {
    let rig = Rig::new(Some(&shared_by_workers(2)));
    talk_by_pairs(&rig, &[[4, 4], [4, 1]]);
    let plane = rig.daemon().data_plane("lan").unwrap();
    let ran = worker_times(plane);
    assert_eq!(ran.len(), 2, "{ran:?}");
    // Each worker copied megabytes. A worker that only handles configuration changes runs for
    // microseconds.
    assert!(ran.iter().all(|nanos| *nanos > 5_000_000), "{ran:?}");
}

/// Returns how long each worker of a data plane has run, in nanoseconds.
fn worker_times(plane: u32) -> Vec<u64> {
    let proc = Proc::default();
    let serves = |thread: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{plane}/task/{thread}/comm"));
        !name.unwrap().starts_with("reclaim-")
    };
    let threads = proc.threads(plane).into_iter().filter(serves);
    let totals = threads.map(|thread| proc.totals(plane, thread).unwrap());
    totals.map(|totals| totals.run_ns).collect()
}

#[test]
fn frames_of_9000_and_of_65535_bytes_pass() {
    let rig = Rig::new(None);
    let vms = rig.boot(["red", "blue"].map(|vm| {
        let mut spec = rig.spec(vm);
        for argument in &mut spec.qemu_args {
            if argument.starts_with("virtio-net-pci,") {
                argument.push_str(",host_mtu=65535");
            }
        }
        spec
    }));
    for (number, vm) in (1..).zip(&vms) {
        give_address(vm, number);
        rig.until_state(vm.name(), "running");
        assert_eq!(sh(vm, "cat /sys/class/net/eth0/mtu"), "65535");
    }
    let [red, blue] = &vms;
    serve_iperf(blue);
    for mtu in [65535_u32, 9000] {
        step(&format!("MTU {mtu}"));
        for vm in &vms {
            sh(vm, &format!("ip link set eth0 mtu {mtu}"));
        }
        // The largest echo request that is not fragmented.
        let bytes = mtu - 28;
        for (from, to) in [(red, 2), (blue, 1)] {
            let echo = format!("ping -c 5 -i 0.2 -W 30 -M do -s {bytes} {}", ip(to));
            assert!(sh(from, &echo).contains(" 5 received"));
        }
        let largest = |vm| sh(vm, "cat /sys/class/net/eth0/statistics/rx_dropped");
        assert_eq!(
            (largest(red), largest(blue)),
            ("0".to_owned(), "0".to_owned())
        );
        tcp_both_ways(red, &ip(2), 32);
        step("without offloads: every frame is at most as large as the MTU");
        for vm in &vms {
            sh(vm, "ethtool -K eth0 tso off gso off tx off");
        }
        tcp_both_ways(red, &ip(2), 16);
        for vm in &vms {
            sh(vm, "ethtool -K eth0 tx on gso on tso on");
        }
    }
}

/// QEMU would report this error only when the VM starts.
#[test]
fn more_pairs_than_there_are_is_refused() {
    let output = vicinity()
        .args(["qemu-args", "red", "--queues", "17"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
