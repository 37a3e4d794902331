//! Computes the dip in a server's throughput while VMs start beside it, from an open loop's timeline.
//!
//! The measure is the backlog of the server: requests that were due minus those that it answered.
//! Before the start the backlog has a usual level, with some jitter; the dip is the part above this level.

use std::time::Duration;

use crate::http::{Report, SLOT};
use crate::sample::{Values, values};

/// Slots of the timeline that a point of the curve over time sums up, because one slot has only one or two requests.
const SLOTS_PER_POINT: u8 = 10;

/// Milliseconds between two points.
const STEP: usize = 100;

/// Returns the number of requests that a server lost because a VM was started `began` after the beginning of the
/// measurement, and the server's throughput over time as a share of `rate`, which is in requests a second.
pub(super) fn dip(report: &Report, rate: f64, began: Duration) -> Values {
    let began = (began.as_secs_f64() / SLOT.as_secs_f64()).round();
    let due = rate * SLOT.as_secs_f64();
    let mut answered = 0.0;
    let behind = report.timeline.iter().zip(1_u32..).map(|(count, slots)| {
        answered += f64::from(*count);
        (f64::from(slots), due * f64::from(slots) - answered)
    });
    let (before, after): (Vec<_>, Vec<_>) = behind.partition(|(slots, _)| *slots <= began);
    let usual = before.iter().map(|one| one.1).fold(0.0, f64::max);
    let lost = after.iter().map(|one| one.1 - usual).fold(0.0, f64::max);
    let last = after.iter().rev().find(|(_, behind)| *behind > usual);
    let recovery = last.map_or(0.0, |(slots, _)| (slots - began) * SLOT.as_secs_f64());
    let mut found = values(&[
        ("lost", lost),
        ("dip_s", lost / rate),
        ("recovery_ms", recovery * 1e3),
    ]);
    let points = report.timeline.chunks_exact(SLOTS_PER_POINT.into());
    for (slots, milliseconds) in points.zip((0_u32..).step_by(STEP)) {
        let mean = f64::from(slots.iter().sum::<u32>()) / f64::from(SLOTS_PER_POINT);
        found.insert(format!("ms{milliseconds}_ratio"), mean / due);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a report of 100 requests a second for two seconds. The server answers one request in each slot, none in
    /// the slots of `gap`, and from the slot `late` on two in each slot until it has answered all that wait.
    fn report(gap: std::ops::Range<usize>, late: usize) -> Report {
        let mut waiting = 0;
        let slot = |place: usize| {
            waiting += 1;
            let room = match place {
                _ if gap.contains(&place) => 0,
                _ if place >= late => 2,
                _ => 1,
            };
            let now = waiting.min(room);
            waiting -= now;
            now
        };
        Report {
            timeline: (0..200).map(slot).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn a_dip_has_an_area_and_an_end() {
        // The server answers no request for 300 ms, so 30 requests wait. 100 ms later it begins to reduce the backlog
        // by one request a slot.
        let found = dip(&report(60..90, 100), 100.0, Duration::from_millis(500));
        assert!((found["lost"] - 30.0).abs() < 1e-6, "{found:?}");
        assert!((found["recovery_ms"] - 790.0).abs() < 1e-6, "{found:?}");
        assert!((found["ms500_ratio"] - 1.0).abs() < 1e-9);
        assert!(found["ms600_ratio"].abs() < 1e-9);
        assert!((found["ms1000_ratio"] - 2.0).abs() < 1e-9);
    }

    #[test]
    fn jitter_from_before_is_no_dip() {
        // Five requests wait from the beginning, so they belong to the usual backlog.
        let found = dip(&report(0..5, 200), 100.0, Duration::from_millis(500));
        assert!(found["lost"].abs() < 1e-9 && found["recovery_ms"].abs() < 1e-9);
    }

    #[test]
    fn what_never_recovers_is_behind_to_the_end() {
        let found = dip(&report(100..110, 200), 100.0, Duration::from_millis(500));
        assert!((found["recovery_ms"] - 1500.0).abs() < 1e-6, "{found:?}");
    }
}
