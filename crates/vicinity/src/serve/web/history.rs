//! Fifteen minutes of each VM's figures, kept while clients listen.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::live::Live;
use crate::status::Kind;

/// The age of the oldest point in seconds.
const AGE: f64 = 900.0;
/// The same in an answer about all VMs.
const SHORT: f64 = 60.0;
/// The most points of a VM: one a second.
const POINTS: usize = 1024;
/// The most VMs: 24 MB.
const MAX_VMS: usize = 1024;

/// A point: when, and use, wait, bytes and drops per second. 24 bytes.
type Point = (f64, [f32; 4]);

/// The points of each VM.
#[derive(Debug, Default)]
pub(super) struct History(BTreeMap<String, VecDeque<Point>>);

/// The points of a VM, in the order of time.
#[derive(Debug, PartialEq, Serialize)]
pub(in crate::serve) struct VmHistory {
    /// Its name.
    vm: String,
    /// Seconds since 1970.
    at: Vec<f64>,
    /// CPUs that the guest and the back-end used.
    r#use: Vec<f32>,
    /// CPUs that they waited for.
    wait: Vec<f32>,
    /// Bytes that its ports sent and received.
    bytes: Vec<f32>,
    /// Frames that were dropped.
    drops: Vec<f32>,
}

impl History {
    /// Adds a point for each VM, and forgets the points that are too old.
    pub(super) fn add(&mut self, live: &Live) {
        for (vm, figures) in points(live) {
            if self.0.len() >= MAX_VMS && !self.0.contains_key(&vm) {
                continue;
            }
            let points = self.0.entry(vm).or_default();
            points.push_back((live.at, figures));
            if points.len() > POINTS {
                points.pop_front();
            }
        }
        for points in self.0.values_mut() {
            // A clock that jumps back leaves points of the future.
            points.retain(|(at, _)| (live.at - AGE..=live.at).contains(at));
        }
        self.0.retain(|_, points| !points.is_empty());
    }

    /// Returns all points of this VM, or the last minute of every VM.
    pub(super) fn of(&self, vm: Option<&str>) -> Vec<VmHistory> {
        let age = if vm.is_some() { AGE } else { SHORT };
        let wanted = self
            .0
            .iter()
            .filter(|(name, _)| vm.is_none_or(|vm| vm == **name));
        let columns = |(name, points): (&String, &VecDeque<Point>)| {
            let last = points.back().map_or(0.0, |(at, _)| *at);
            let points = || points.iter().filter(move |(at, _)| *at >= last - age);
            let column = |of: fn(&[f32; 4]) -> f32| points().map(|(_, it)| of(it)).collect();
            VmHistory {
                vm: name.clone(),
                at: points().map(|(at, _)| *at).collect(),
                r#use: column(|[figure, ..]| *figure),
                wait: column(|[_, figure, ..]| *figure),
                bytes: column(|[_, _, figure, _]| *figure),
                drops: column(|[.., figure]| *figure),
            }
        };
        wanted.map(columns).collect()
    }
}

/// Returns the figures of each VM that is observed or has a port.
#[allow(clippy::cast_possible_truncation, reason = "charts need few digits")]
fn points(live: &Live) -> BTreeMap<String, [f32; 4]> {
    let mut points: BTreeMap<String, [f32; 4]> = BTreeMap::new();
    for vm in &live.report.vms {
        let [r#use, wait, bytes, _] = points.entry(vm.name.clone()).or_default();
        *r#use += (vm.guest.r#use + vm.backend.r#use) as f32;
        *wait += (vm.guest.wait + vm.backend.wait) as f32;
        if let Some(traffic) = &vm.traffic {
            *bytes += (traffic.tx_bytes + traffic.rx_bytes) as f32;
        }
    }
    let observed = |name: &str| {
        live.report
            .vms
            .iter()
            .any(|vm| vm.name == *name && vm.traffic.is_some())
    };
    for port in live.ports.iter().filter(|port| port.kind == Kind::Vm) {
        let counted = observed(&port.vm);
        let [_, _, bytes, drops] = points.entry(port.vm.clone()).or_default();
        if !counted {
            *bytes += (port.rates.tx_bytes + port.rates.rx_bytes) as f32;
        }
        *drops += port.rates.drops as f32;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::live;

    #[test]
    fn points_are_kept_for_fifteen_minutes_and_memory_is_bounded() {
        assert_eq!(size_of::<Point>(), 24);
        let mut history = History::default();
        for second in 0..2000 {
            let mut live = live(&[("web", 0.25)]);
            live.at = f64::from(second);
            history.add(&live);
        }
        let all = history.of(Some("web"));
        assert_eq!((all.len(), all[0].at.len()), (1, 901));
        assert_eq!(all[0].at[0], 1099.0);
        assert_eq!(history.of(None)[0].at.len(), 61);
        assert!(history.of(Some("db")).is_empty());
        // The clock is set back by an hour: points of the future are forgotten.
        let mut earlier = live(&[("web", 0.5)]);
        earlier.at = 10.0;
        history.add(&earlier);
        assert_eq!(history.of(None)[0].r#use, [0.5]);
        let many: Vec<_> = (0..MAX_VMS + 10).map(|vm| format!("vm{vm}")).collect();
        let many: Vec<_> = many.iter().map(|vm| (vm.as_str(), 0.0)).collect();
        history.add(&live(&many));
        assert!(history.0.len() <= MAX_VMS);
    }
}
