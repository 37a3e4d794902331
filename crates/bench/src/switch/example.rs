//! A report for unit tests.

use vm_harness::machine::Machine;

use super::device_under_test::SwitchKind;
use super::idle::{Idle, IdlePorts};
use super::load_sample::{Cell, LoadFigures, LoadSample, summaries};
use super::report::{Report, compare};
use super::sample::{Figures, Sample};
use super::targets::targets;

fn load(cell: Cell, switch: SwitchKind, p99_ns: f64, cycles_per_frame: f64) -> LoadSample {
    LoadSample {
        round: 1,
        cell,
        switch,
        offered_per_s: None,
        figures: LoadFigures {
            frames_per_s: 1e5,
            p50_ns: 3000.0,
            p99_ns,
            core_share: 0.12,
            cycles_per_frame,
        },
        disturbed: 0.25,
    }
}

fn fdb_size(known: u64, spoken_to: u64) -> Cell {
    Cell::Fdb { known, spoken_to }
}

/// Returns a report with at least one entry of each kind.
pub(super) fn report() -> Report {
    let sample = |switch, frames_per_s, cycles_per_frame, busy_share| Sample {
        round: 1,
        pairs: 1,
        size: 64,
        switch,
        figures: Figures {
            frames_per_s,
            cycles_per_frame,
            busy_share,
        },
        unsent: 0,
        line_ns: 210.0,
        disturbed: 0.25,
    };
    let samples = vec![
        sample(SwitchKind::Vicinity, 15e6, 100.0, 0.6),
        sample(SwitchKind::OvsDpdk, 10e6, 250.0, 1.0),
        sample(SwitchKind::Testpmd, 12e6, 200.0, 1.0),
    ];
    let load_samples = vec![
        load(Cell::Latency(50), SwitchKind::Vicinity, 9000.0, 0.0),
        load(Cell::Latency(50), SwitchKind::OvsDpdk, 8000.0, 0.0),
        load(Cell::Light, SwitchKind::Vicinity, 9000.0, 0.0),
        load(fdb_size(99, 98), SwitchKind::Vicinity, 0.0, 100.0),
        load(fdb_size(99_961, 98), SwitchKind::Vicinity, 0.0, 101.0),
        load(fdb_size(99_961, 99_960), SwitchKind::Vicinity, 0.0, 105.0),
    ];
    let idle = Idle {
        seconds: 10.0,
        wakeups_per_s: 6.0,
        core_share: 0.0001,
    };
    let mut report = Report {
        machine: Machine {
            processor: "a processor".to_owned(),
            cpus: 2,
            memory_mib: 1024,
            kernel: "6.1".to_owned(),
            system: "Debian".to_owned(),
            qemu: "10.0".to_owned(),
            revision: String::new(),
            date: "2026-01-01T00:00:00Z".to_owned(),
        },
        vicinity: "0.1.0".to_owned(),
        ovs_dpdk: "3.1.0".to_owned(),
        rounds: 1,
        window_s: 2.0,
        comparisons: compare(&samples),
        samples,
        loads: summaries(&load_samples),
        load_samples,
        idle: Some(idle),
        idle_ports: Some(IdlePorts {
            ports: 64,
            cost: idle,
            resident_mib: 70.0,
        }),
        targets: Vec::new(),
        leftovers: vec!["a process".to_owned()],
    };
    report.targets = targets(&report);
    report
}
