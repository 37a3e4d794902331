//! Two VMs, the default configuration, and QEMU's options as `vicinity qemu-args` prints them. One VM has hugepages.

use std::fs;

use vm_harness::hugepages::Hugepages;
use vm_harness::vm::Vm;

use crate::common::vicinity;
use crate::counters::{Counters, assert_nothing_vanished};
use crate::guest::{copy_file, iperf, ping, serve_iperf, tcp_both_ways};
use crate::rig::{MEMORY_MIB, Rig, ip, step};

#[test]
fn two_vms_talk() {
    let rig = Rig::new(None);
    let pages = Hugepages::reserve(u64::from(MEMORY_MIB) / 2);
    let mut with_hugepages = rig.spec("blue");
    if pages.is_ok() {
        with_hugepages.qemu_args = rig.qemu_args_with("blue", &["--hugetlb", "--prealloc"]);
    }
    let [red, blue] = rig.boot_running([rig.spec("red"), with_hugepages]);
    let names = ["red", "blue"];

    step("a frame in each direction, so that both addresses are in the FDB");
    ping(&red, &ip(2));
    ping(&blue, &ip(1));
    match &pages {
        Ok(_) => has_hugepages(&rig, &blue),
        Err(error) => step(&format!("skipped: hugepages: {error}")),
    }
    let before = Counters::of(rig.daemon(), names);

    step("TCP in both directions");
    serve_iperf(&blue);
    tcp_both_ways(&red, &ip(2), 32);

    step("UDP in both directions");
    for direction in ["", "--reverse"] {
        let end = iperf(
            &red,
            &ip(2),
            &format!("--udp --bitrate 20M --bytes 2M {direction}"),
        );
        let lost = end["sum"]["lost_percent"].as_f64().unwrap();
        assert!(lost < 50.0, "{end}");
    }

    step("a file in each direction");
    copy_file(&red, &blue, &ip(2), 16);
    copy_file(&blue, &red, &ip(1), 16);

    step("counters");
    let after = Counters::of(rig.daemon(), names);
    assert_nothing_vanished(&before, &after);
    let frames = after[1].grown(&before[1], "rx_frames");
    let bytes = after[1].grown(&before[1], "rx_bytes");
    assert!(bytes > 48 << 20, "{bytes} bytes");
    assert!(bytes / frames > 1514, "large frames pass whole");
    for (after, before) in after.iter().zip(&before) {
        for name in ["segmented", "checksummed"] {
            assert_eq!(after.grown(before, name), 0, "{name}");
        }
    }

    step("the tables of the commands");
    let table = vicinity()
        .args(["port", "list", "--runtime-dir"])
        .arg(rig.daemon().path(""))
        .output()
        .unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    for vm in names {
        let row = table.lines().find(|line| line.starts_with(vm));
        assert!(row.is_some_and(|row| row.contains("running")), "{table}");
    }
}

/// Asserts that all of a VM's memory is in hugepages, and that the data plane maps it as such.
fn has_hugepages(rig: &Rig, vm: &Vm) {
    step("hugepages of QEMU and of the data plane");
    let wanted = u64::from(MEMORY_MIB) << 10;
    assert_eq!(hugepages_of(vm.id()), wanted, "kB of QEMU");
    let worker = rig.daemon().data_plane("default").unwrap();
    let touched = hugepages_of(worker);
    assert!(touched > 0, "the data plane has touched no hugepage");
}

/// Returns the kB of hugetlbfs that a process has mapped and touched (`Shared_Hugetlb` and `Private_Hugetlb` of proc_pid_smaps(5)).
fn hugepages_of(process: u32) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    let lines = maps.lines().filter(|line| line.contains("_Hugetlb:"));
    lines
        .map(|line| {
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        })
        .sum()
}
