//! Measurements with the benchmark's own generator, and their medians.

use std::fmt;

use serde::{Deserialize, Serialize};

use report::stats::median;

use super::device_under_test::SwitchKind;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// 64 B frames at this share (percent) of the maximum rate of the slower switch.
    Latency(u8),
    /// 100,000 frames of 64 B a second; the receivers enable calls.
    Light,
    /// 64 KB frames that need segmentation, as many as the switch forwards.
    Gso,
    /// 64 B frames, as many as the switch forwards, to some of the FDB's addresses in turn.
    #[serde(alias = "residents")]
    Fdb {
        /// Addresses in the FDB.
        known: u64,
        /// Addresses that frames are sent to.
        spoken_to: u64,
    },
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Latency(share) => format!("{share} % of the maximum"),
            Self::Light => "100,000 frames/s".to_owned(),
            Self::Gso => "64 KB GSO".to_owned(),
            Self::Fdb { known, spoken_to } => format!("{spoken_to} of {known} known"),
        };
        f.pad(&text)
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSample {
    /// The round, from 1.
    pub round: u32,
    /// What was measured.
    pub cell: Cell,
    /// The switch.
    pub switch: SwitchKind,
    /// Offered frames per second; none if the generator saturated the switch.
    pub offered_per_s: Option<f64>,
    /// The figures.
    pub figures: LoadFigures,
    /// Time that threads of the switch waited for a CPU, as a share of the window.
    pub disturbed: f64,
}

/// Figures of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadFigures {
    /// Frames received per second, both directions together.
    pub frames_per_s: f64,
    /// Nanoseconds from the time at which a frame was due until it was received: the median.
    pub p50_ns: f64,
    /// The 99th percentile of the same latency.
    pub p99_ns: f64,
    /// CPU time of all threads of the switch, as a share of a core.
    pub core_share: f64,
    /// Cycles of busy rounds, divided by the frames; 0 if the switch does not report them.
    pub cycles_per_frame: f64,
}

/// Medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSummary {
    /// What was measured.
    pub cell: Cell,
    /// The switch.
    pub switch: SwitchKind,
    /// Medians.
    pub figures: LoadFigures,
}

/// Returns the medians of each cell and switch, in the order in which they were first measured.
pub(super) fn summaries(samples: &[LoadSample]) -> Vec<LoadSummary> {
    let mut found: Vec<LoadSummary> = Vec::new();
    for sample in samples {
        let (cell, switch) = (sample.cell, sample.switch);
        let known = |summary: &LoadSummary| summary.cell == cell && summary.switch == switch;
        if found.iter().any(known) {
            continue;
        }
        let of = |value| median(&figures(samples, cell, switch, value));
        found.push(LoadSummary {
            cell,
            switch,
            figures: LoadFigures {
                frames_per_s: of(|f| f.frames_per_s),
                p50_ns: of(|f| f.p50_ns),
                p99_ns: of(|f| f.p99_ns),
                core_share: of(|f| f.core_share),
                cycles_per_frame: of(|f| f.cycles_per_frame),
            },
        });
    }
    found
}

/// Returns one figure of all rounds of a cell.
pub(super) fn figures(
    samples: &[LoadSample],
    cell: Cell,
    switch: SwitchKind,
    value: fn(&LoadFigures) -> f64,
) -> Vec<f64> {
    let mine = samples.iter();
    let mine = mine.filter(|sample| sample.cell == cell && sample.switch == switch);
    mine.map(|sample| value(&sample.figures)).collect()
}
