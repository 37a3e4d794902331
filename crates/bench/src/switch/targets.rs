//! The targets of the benchmark of the switch.

use report::stats::paired_ratio;
use report::target::Target;

use super::device_under_test::SwitchKind;
use super::idle::{Idle, IdlePorts};
use super::load_sample::{Cell, LoadSample, figures};
use super::report::{Comparison, Report};

/// The target is 2.2 times fewer cycles a frame than OVS-DPDK.
const CYCLES_TARGET: f64 = 0.4545;

/// Returns the targets that these measurements can check.
pub(super) fn targets(report: &Report) -> Vec<Target> {
    let one_pair = report.comparisons.iter().filter(|found| found.pairs == 1);
    let mut targets: Vec<Target> = one_pair.flat_map(frames).collect();
    targets.extend(latency(&report.load_samples));
    targets.extend(light(report));
    targets.extend(fdb_size(&report.load_samples));
    targets.extend(report.idle.iter().flat_map(idle));
    targets.extend(report.idle_ports.iter().flat_map(idle_ports));
    targets
}

fn frames(found: &Comparison) -> Vec<Target> {
    let ovs = found
        .peers
        .iter()
        .find(|one| one.switch == SwitchKind::OvsDpdk);
    let Some(ovs) = ovs else {
        return Vec::new();
    };
    let size = found.size;
    let more = |bound| {
        let name = format!("{size} B: frames/s against OVS-DPDK");
        Target::at_least(name, ovs.frames_ratio, bound)
    };
    match size {
        64 => vec![
            more(1.3),
            Target::at_most(
                "64 B: cycles a frame against OVS-DPDK",
                ovs.cycles_ratio,
                CYCLES_TARGET,
            ),
            Target::at_most(
                "64 B: cycles a frame",
                found.vicinity.cycles_per_frame,
                200.0,
            ),
        ],
        1500 => vec![more(1.8)],
        _ => Vec::new(),
    }
}

fn latency(samples: &[LoadSample]) -> Option<Target> {
    let p99 = |switch| figures(samples, Cell::Latency(50), switch, |f| f.p99_ns);
    let (theirs, ours) = (p99(SwitchKind::OvsDpdk), p99(SwitchKind::Vicinity));
    let name = "50 % load: p99 latency against OVS-DPDK";
    (!ours.is_empty()).then(|| Target::at_most(name, paired_ratio(&theirs, &ours), 1.0))
}

fn light(report: &Report) -> Option<Target> {
    let mut loads = report.loads.iter();
    let found = loads.find(|one| one.cell == Cell::Light && one.switch == SwitchKind::Vicinity)?;
    let name = "100,000 frames/s: percent of a core";
    Some(Target::at_most(
        name,
        found.figures.core_share * 100.0,
        20.0,
    ))
}

fn fdb_size(samples: &[LoadSample]) -> Option<Target> {
    let cells = samples.iter().map(|sample| sample.cell);
    let cells = cells.filter(|cell| matches!(cell, Cell::Fdb { .. }));
    let spoken_to = |cell: &Cell| match cell {
        Cell::Fdb { spoken_to, known } => (*known, *spoken_to),
        _ => (0, 0),
    };
    let few = cells.clone().min_by_key(spoken_to)?;
    let many = cells.max_by_key(spoken_to)?;
    let cycles = |cell| figures(samples, cell, SwitchKind::Vicinity, |f| f.cycles_per_frame);
    let name = format!("cycles a frame to {many} against {few}");
    let ratio = paired_ratio(&cycles(few), &cycles(many));
    Some(Target::at_most(name, ratio, 1.03))
}

fn idle(idle: &Idle) -> [Target; 2] {
    [
        Target::at_most("idle: wake-ups a second", idle.wakeups_per_s, 5.0),
        Target::at_most("idle: percent of a core", idle.core_share * 100.0, 0.1),
    ]
}

fn idle_ports(idle: &IdlePorts) -> [Target; 2] {
    let name = |what| format!("{} idle ports: {what}", idle.ports);
    [
        Target::at_most(name("wake-ups a second"), idle.cost.wakeups_per_s, 10.0),
        Target::at_most(name("MiB resident"), idle.resident_mib, 64.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::example::report;
    use super::*;

    #[test]
    fn a_target_is_met_or_missed() {
        let kept = |name: &str| {
            let targets = targets(&report());
            let found = targets.iter().find(|target| target.name.contains(name));
            found.unwrap_or_else(|| panic!("no {name}")).reached
        };
        assert!(kept("64 B: frames/s"));
        assert!(kept("64 B: cycles a frame against"));
        assert!(!kept("p99 latency"), "ours is slower there");
        assert!(kept("100,000 frames/s"));
        assert!(
            !kept("99960 of 99961 known against 98 of 99 known"),
            "5 % more"
        );
        assert!(!kept("idle: wake-ups"));
        assert!(kept("64 idle ports: wake-ups"));
        assert!(!kept("64 idle ports: MiB"));
    }

    #[test]
    fn what_was_not_measured_has_no_target() {
        let nothing = Report {
            comparisons: Vec::new(),
            load_samples: Vec::new(),
            loads: Vec::new(),
            idle: None,
            idle_ports: None,
            ..report()
        };
        assert_eq!(targets(&nothing), []);
    }
}
