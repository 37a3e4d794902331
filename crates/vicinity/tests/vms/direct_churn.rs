//! Trust groups for long: members come and go in every way, under load.

use std::fs;
use std::time::{Duration, Instant};

use lab::vm::{Spec, Vm};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::until;
use crate::direct::{
    devices, is_well, load, member, restartable, standing, start_again, until_devices, until_peers,
    with_module,
};
use crate::guest::{self, sh};
use crate::migration::Stream;
use crate::rig::{Rig, step};

fn config(members: &[&str]) -> String {
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

fn ip(number: u8) -> String {
    format!("10.97.0.{number}")
}

fn tell(rig: &Rig, what: &str, vm: &str) {
    let output = rig.daemon().command(&["direct", what, vm]);
    assert!(output.status.success(), "{output:?}");
}

/// How long members come and go: ten minutes, or `VICINITY_CHURN_SECONDS`.
fn how_long() -> Duration {
    let asked = std::env::var("VICINITY_CHURN_SECONDS").ok();
    let seconds = asked.map_or(600, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

/// Descriptors and mappings of the daemon, of the group's process and of a member's QEMU.
fn held_by_the_host(rig: &Rig, qemu: &Vm) -> Vec<usize> {
    let group = rig.daemon().process("direct-g").unwrap();
    [rig.pid(), group, qemu.id()]
        .into_iter()
        .flat_map(|process| {
            let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
            let mappings = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
            let views = mappings.lines().filter(|line| line.contains("/memfd:"));
            [descriptors.count(), views.count()]
        })
        .collect()
}

/// Packets that a guest's kernel has, and its free memory in KB.
fn held_by_the_guest(vm: &Vm) -> [u64; 2] {
    sh(
        vm,
        "echo 1 >/sys/kernel/slab/skbuff_head_cache/shrink; echo 3 >/proc/sys/vm/drop_caches",
    );
    [
        "^skbuff_head_cache /proc/slabinfo",
        "^MemAvailable: /proc/meminfo",
    ]
    .map(|line| {
        let field = format!("grep {line} | tr -s ' ' | cut -d ' ' -f 2");
        sh(vm, &field).parse().unwrap()
    })
}

/// One who comes and goes, and one way of it.
fn come_and_go(rig: &Rig, vm: Vm, number: u8, way: u8) -> Vm {
    let name = vm.name().to_owned();
    match way {
        0 => {
            tell(rig, "leave", &name);
            assert_eq!(devices(&vm), "0");
            tell(rig, "join", &name);
            until_devices(&vm, 3);
            sh(&vm, "rmmod vicinity_direct");
        }
        1 => {
            sh(&vm, "rmmod vicinity_direct");
        }
        2 => start_again(&vm),
        _ => {
            let qemu = Pid::from_raw(i32::try_from(vm.id()).unwrap()).unwrap();
            kill_process(qemu, Signal::KILL).unwrap();
            drop(vm);
            let [vm] = rig.boot([guest_who_goes(rig, &name)]);
            until_devices(&vm, 3);
            load(&vm, number);
            return vm;
        }
    }
    load(&vm, number);
    vm
}

fn guest_who_goes(rig: &Rig, name: &str) -> Spec {
    restartable(member(rig, name))
}

#[test]
#[ignore = "takes ten minutes: make soak"]
fn members_that_come_and_go_cost_the_others_nothing() {
    let rig = with_module(Rig::new(Some(&config(&["a", "b", "c"]))));
    let [a, b, mut c] = rig.boot([
        member(&rig, "a"),
        member(&rig, "b"),
        guest_who_goes(&rig, "c"),
    ]);
    for (number, vm) in (1..).zip([&a, &b, &c]) {
        until_devices(vm, 3);
        load(vm, number);
    }
    for vm in [&a, &b, &c] {
        until_peers(vm, 2);
    }
    let host = held_by_the_host(&rig, &a);
    let guests = [&a, &b].map(held_by_the_guest);

    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    // The connection that is to be kept.
    let kept = Stream::start(&a, &b, &ip(2));
    let end = Instant::now() + how_long();
    let mut rounds = 0;
    while rounds < 4 || Instant::now() < end {
        // Each way in each four rounds, under load.
        let way = u8::try_from((rounds + seed) % 4).unwrap();
        let load = random.u8(0..2);
        step(&format!("round {rounds}: way {way}, load {load}"));
        let to = ip(3);
        let command = match load {
            0 => format!("while :; do iperf3 --client {to} --time 600; sleep 0.1; done"),
            _ => format!("while :; do ping -f -s 9000 {to}; sleep 0.1; done"),
        };
        guest::serve_iperf(&c);
        let loads = [&a, &b].map(|vm| vm.start(&command).unwrap());
        let moved = || {
            sh(&c, "cat /sys/class/net/direct0/statistics/rx_packets")
                .parse::<u64>()
                .unwrap()
        };
        let before = moved();
        until("load", || moved() > before + 100);
        c = come_and_go(&rig, c, 3, way);
        for load in loads {
            load.kill().unwrap();
        }
        for vm in [&a, &b, &c] {
            until_peers(vm, 2);
            is_well(vm);
        }
        sh(&c, "pkill iperf3; true");
        guest::ping(&c, &ip(1));
        rounds += 1;
    }
    step("the connection between the others was kept, and nothing is left over");
    kept.stop(&b);
    println!("{rounds} rounds");
    assert_eq!(standing(&rig, "c"), "joined");
    until("the host to hold what it held", || {
        held_by_the_host(&rig, &a) == host
    });
    for (vm, before) in [&a, &b].into_iter().zip(guests) {
        let [packets, free] = held_by_the_guest(vm);
        println!("{}: {before:?} before, {packets} {free} after", vm.name());
        assert!(packets < before[0] + 2000, "{packets} packets are held");
        assert!(free + (24 << 10) > before[1], "{free} KB are free");
    }
}
