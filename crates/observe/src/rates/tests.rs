use std::time::{Duration, Instant};

use super::*;
use crate::reading::Plane;
use crate::role::Role;

/// Returns an empty reading, this many seconds after the first.
pub(crate) fn reading(seconds: u64) -> Reading {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    Reading {
        at: *START.get_or_init(Instant::now) + Duration::from_secs(seconds),
        vms: BTreeMap::new(),
        planes: BTreeMap::new(),
        ports: Vec::new(),
        sent: Vec::new(),
        daemon: Some(1),
        switches: Err("not recorded".to_owned()),
        host: reading::Host {
            cpus: 2,
            time: None,
            pressure: None,
            memory: None,
            energy: None,
            own: Duration::ZERO,
        },
    }
}

type Threads<'a> = &'a [(&'a str, u64, u64)];

fn threads(first: u32, threads: Threads<'_>) -> BTreeMap<u32, reading::Thread> {
    let one = |(id, (name, run_ns, wait_ns)): (u32, &(&str, u64, u64))| {
        let totals = Totals {
            run_ns: *run_ns,
            wait_ns: *wait_ns,
            executions: run_ns / 1_000_000,
            switches: 0,
        };
        let thread = reading::Thread {
            name: (*name).to_owned(),
            role: Role::of(name, *name == "main", None),
            totals,
        };
        (id, thread)
    };
    (first..).zip(threads).map(one).collect()
}

pub(crate) fn vm(reading: &mut Reading, pid: u32, name: &str, with: Threads<'_>) {
    let vm = reading::Vm {
        at: reading.at,
        name: name.to_owned(),
        threads: threads(pid, with),
        sockets: vec![format!("/run/{name}.sock")],
        taps: BTreeMap::new(),
        memory: None,
        group: None,
        polled_ns: None,
    };
    reading.vms.insert(Id { pid, start: 7 }, vm);
}

pub(crate) fn plane(reading: &mut Reading, pid: u32, network: Option<&str>, with: Threads<'_>) {
    let plane = Plane {
        at: reading.at,
        network: network.map(str::to_owned),
        threads: threads(pid, with),
    };
    reading.planes.insert(Id { pid, start: 7 }, plane);
}

fn port(reading: &mut Reading, vm: &str, socket: Option<&str>, tx_frames: u64) {
    reading.ports.push(Port {
        network: "lan".to_owned(),
        vm: vm.to_owned(),
        socket: socket.map(str::to_owned),
        traffic: traffic::Traffic {
            tx_frames,
            ..Default::default()
        },
    });
}

fn between(earlier: &Reading, later: &Reading) -> Report {
    report(earlier, later, &Meter::default(), 10.0)
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn guest_and_backend_are_apart() {
    let (mut earlier, mut later) = (reading(0), reading(2));
    vm(
        &mut earlier,
        10,
        "web",
        &[("main", 0, 0), ("CPU 0/KVM", 0, 0)],
    );
    let now = [
        ("main", SECOND / 5, SECOND / 10),
        ("CPU 0/KVM", SECOND, SECOND / 2),
    ];
    vm(&mut later, 10, "web", &now);
    let report = between(&earlier, &later);
    let [vm] = report.vms.as_slice() else {
        panic!()
    };
    assert_eq!(vm.accelerator.as_deref(), Some("KVM"));
    assert_eq!(
        (vm.guest.r#use, vm.guest.wait, vm.guest.block),
        (0.5, 0.25, 0.25)
    );
    assert_eq!((vm.backend.r#use, vm.backend.wait), (0.1, 0.05));
    assert_eq!(vm.watts, Some(6.0));
    assert_eq!(report.host.energy, Provenance::Modelled);
    assert_eq!(vm.traffic, None);
}

#[test]
fn a_worker_is_shared_out_by_what_ports_moved() {
    let (mut earlier, mut later) = (reading(0), reading(1));
    for (reading, run, [a, b, c]) in [
        (&mut earlier, 0, [100, 100, 5]),
        (&mut later, SECOND / 2, [400, 200, 5]),
    ] {
        vm(reading, 10, "a", &[("main", 0, 0)]);
        vm(reading, 20, "renamed", &[("main", 0, 0)]);
        plane(reading, 1, None, &[("vicinity", run / 10, 0)]);
        plane(reading, 2, Some("lan"), &[("net-lan", run, 0)]);
        port(reading, "a", None, a);
        port(reading, "b", Some("/run/renamed.sock"), b);
        port(reading, "no VM of ours", None, c);
    }
    let report = between(&earlier, &later);
    let charged: Vec<f64> = report.vms.iter().map(|vm| vm.backend_in_vicinity).collect();
    assert_eq!(charged, [0.375, 0.125]);
    let [a, _] = report.vms.as_slice() else {
        panic!()
    };
    assert_eq!(a.traffic.unwrap().descriptors, 300.0);
    assert_eq!(
        a.backend.threads, 1.75,
        "its main loop and its part of the worker"
    );
    let sum = a.backend.r#use + a.backend.wait + a.backend.block;
    assert!((sum - a.backend.threads).abs() < 1e-9);
    let vicinity = report.vicinity.unwrap();
    assert!((vicinity.supervisor.r#use - 0.05).abs() < 1e-9);
    assert_eq!(vicinity.networks[0].uncharged, 0.0);
}

#[test]
fn an_idle_workers_time_is_charged_to_no_vm() {
    let (mut earlier, mut later) = (reading(0), reading(1));
    for (reading, run) in [(&mut earlier, 0), (&mut later, SECOND / 4)] {
        vm(reading, 10, "a", &[("main", 0, 0)]);
        plane(reading, 1, None, &[("vicinity", 0, 0), ("net-lan", run, 0)]);
        port(reading, "a", None, 9);
    }
    let report = between(&earlier, &later);
    assert_eq!(report.vms[0].backend.r#use, 0.0);
    let vicinity = report.vicinity.unwrap();
    assert_eq!(vicinity.networks[0].uncharged, 0.25);
    assert_eq!(vicinity.supervisor.r#use, 0.0);
}

#[test]
fn vms_come_and_go_and_threads_too() {
    let (mut earlier, mut later) = (reading(0), reading(1));
    vm(&mut earlier, 10, "gone", &[("main", 0, 0)]);
    vm(&mut earlier, 20, "stays", &[("main", 0, 0)]);
    vm(
        &mut later,
        20,
        "stays",
        &[("main", 0, 0), ("worker", SECOND / 2, 0)],
    );
    vm(&mut later, 30, "came", &[("main", 99 * SECOND, 0)]);
    let report = between(&earlier, &later);
    let names: Vec<_> = report.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["stays"]);
    assert_eq!(report.vms[0].backend.r#use, 0.5);
}

#[test]
fn halt_polling_is_not_use() {
    let (mut earlier, mut later) = (reading(0), reading(1));
    for (reading, run, polled) in [(&mut earlier, 0, 0), (&mut later, SECOND, SECOND / 4)] {
        vm(reading, 10, "a", &[("CPU 0/KVM", run, 0)]);
        let vm = reading.vms.values_mut().next().unwrap();
        vm.polled_ns = Some(polled);
    }
    let vm = &between(&earlier, &later).vms[0];
    assert_eq!((vm.guest.r#use, vm.guest.block), (0.75, 0.25));
    assert_eq!(vm.halt_poll, Some(0.25));
}

#[test]
fn nothing_is_divided_by_no_time() {
    let mut same = reading(0);
    vm(&mut same, 10, "a", &[("CPU 0/KVM", 5, 5)]);
    port(&mut same, "a", None, 9);
    let report = between(&same, &same);
    assert_eq!(report.vms[0].guest.r#use, 0.0);
    assert_eq!(report.vms[0].traffic.unwrap().pages, 0.0);
}
