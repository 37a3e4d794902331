//! Measurements with the benchmark's own generator: latency, light load, 64 KB frames, residents.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::progress::Progress;
use crate::stats::median;

use super::Options;
use super::load::{Flow, Pace};
use super::peer::{Peer, Shape};
use super::residents;
use super::stage::{Frames, HEADERS, Run, Stage, mac};

/// Shares of the maximum rate at which latency is measured, in percent.
const SHARES: [u8; 3] = [10, 50, 90];

/// Frames a second of the light load.
const LIGHT: f64 = 100_000.0;

/// Runs that tell the maximum.
const MAXIMUM_RUNS: u32 = 3;

/// The shortest frame.
pub(super) const SHORT: Frames = Frames {
    length: 64,
    segment: 0,
};

/// A long frame as Linux sends it: 45 segments of 1,448 bytes. DPDK has no room for longer ones.
const LONG: Frames = Frames {
    length: HEADERS + 45 * 1448,
    segment: 1448,
};

const _: () = assert!(SHORT.length >= HEADERS);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// 64 B frames at this share (percent) of what the slower of the switches can move.
    Latency(u8),
    /// 100,000 frames of 64 B a second; the receivers want to be called.
    Light,
    /// 64 KB frames to be segmented, as many as go.
    Gso,
    /// 64 B frames, as many as go, to some of the residents in turn.
    Residents {
        /// How many the switch knows.
        known: u64,
        /// How many are spoken to.
        spoken_to: u64,
    },
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Latency(share) => format!("{share} % of the maximum"),
            Self::Light => "100,000 frames/s".to_owned(),
            Self::Gso => "64 KB GSO".to_owned(),
            Self::Residents { known, spoken_to } => format!("{spoken_to} of {known} known"),
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
    pub switch: Peer,
    /// Frames per second that were to be sent; none when as many as go.
    pub offered_per_s: Option<f64>,
    /// What came of it.
    pub figures: LoadFigures,
    /// Time that threads of the switch waited for a CPU, as a share of the window.
    pub disturbed: f64,
}

/// What came of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadFigures {
    /// Frames received per second, both directions together.
    pub frames_per_s: f64,
    /// Nanoseconds from when a frame was due until it was received: the median.
    pub p50_ns: f64,
    /// The same, of 99 in 100 frames.
    pub p99_ns: f64,
    /// CPU time of all threads of the switch, as a share of a core.
    pub core_share: f64,
    /// Cycles of its busy rounds, by frame; 0 where it does not tell.
    pub cycles_per_frame: f64,
}

/// Medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSummary {
    /// What was measured.
    pub cell: Cell,
    /// The switch.
    pub switch: Peer,
    /// Medians.
    pub figures: LoadFigures,
}

/// The medians of each cell and switch, in the order they were first measured.
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

/// One figure of all rounds of a cell.
pub(super) fn figures(
    samples: &[LoadSample],
    cell: Cell,
    switch: Peer,
    value: fn(&LoadFigures) -> f64,
) -> Vec<f64> {
    let mine = samples.iter();
    let mine = mine.filter(|sample| sample.cell == cell && sample.switch == switch);
    mine.map(|sample| value(&sample.figures)).collect()
}

impl LoadSample {
    fn new(round: u32, cell: Cell, switch: Peer, offered_per_s: Option<f64>, run: &Run) -> Self {
        Self {
            round,
            cell,
            switch,
            offered_per_s,
            figures: LoadFigures {
                frames_per_s: run.seen.frames_per_s(),
                p50_ns: run.seen.latency_ns(0.5).unwrap_or(0.0),
                p99_ns: run.seen.latency_ns(0.99).unwrap_or(0.0),
                core_share: run.core_share,
                cycles_per_frame: run.cycles_per_frame.unwrap_or(0.0),
            },
            disturbed: run.disturbed,
        }
    }
}

/// Both directions between the first two NICs.
fn both_ways() -> [Flow; 2] {
    [(0, 1), (1, 0)].map(|(from, to)| Flow {
        from,
        to: vec![mac(to)],
    })
}

/// Ours and Open vSwitch with one pair of ports.
fn stages(options: &Options, folder: &Path, frames: Frames, name: &str) -> Result<[Stage; 2]> {
    let shape = Shape {
        ports: 2,
        gso: frames.segment > 0,
    };
    let start = |switch: Peer| {
        let name = format!("{name}-{switch}");
        Stage::start(switch, shape, frames, &options.vicinity, folder, &name)
    };
    Ok([start(Peer::Vicinity)?, start(Peer::OvsDpdk)?])
}

/// Latency at each share of the maximum rate, and the light load.
pub(super) fn latency(
    options: &Options,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<LoadSample>> {
    progress.step("latency: starting vicinity and OVS-DPDK, driven by our own generator");
    let mut stages = stages(options, folder, SHORT, "latency")?;
    let flows = both_ways();
    let mut maximum = f64::INFINITY;
    for stage in &mut stages {
        let mut rates = Vec::new();
        for _ in 0..MAXIMUM_RUNS {
            rates.push(stage.run(&flows, Pace::Saturate)?.seen.frames_per_s());
        }
        maximum = maximum.min(median(&rates));
    }
    let maximum_text = format!("{:.2} M frames/s", maximum / 1e6);
    let rates = SHARES.map(|share| (Cell::Latency(share), maximum * f64::from(share) / 100.0));
    let cells: Vec<_> = rates.into_iter().chain([(Cell::Light, LIGHT)]).collect();
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        for &(cell, rate) in &cells {
            for stage in &mut stages {
                let calls = cell == Cell::Light;
                stage
                    .drivers
                    .iter_mut()
                    .for_each(|one| one.want_calls(calls));
                let run = stage.run(&flows, Pace::Rate(rate))?;
                samples.push(LoadSample::new(round, cell, stage.switch, Some(rate), &run));
            }
        }
        tell(
            progress,
            &samples,
            round,
            options.rounds,
            &format!("maximum {maximum_text}"),
        );
        stages.reverse();
    }
    Ok(samples)
}

/// Frames of 64 KB between receivers that negotiated them.
pub(super) fn gso(
    options: &Options,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<LoadSample>> {
    progress.step("64 KB: starting vicinity and OVS-DPDK with userspace TSO");
    let mut stages = stages(options, folder, LONG, "gso")?;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        for stage in &mut stages {
            let run = stage.run(&both_ways(), Pace::Saturate)?;
            samples.push(LoadSample::new(round, Cell::Gso, stage.switch, None, &run));
        }
        tell(progress, &samples, round, options.rounds, "64 KB");
        stages.reverse();
    }
    Ok(samples)
}

/// Few residents and many, alike in everything else.
pub(super) fn residents(
    options: &Options,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<LoadSample>> {
    progress.step("residents: teaching one vicinity few addresses, another one many");
    let [few, many] = residents::flows();
    let mut quiet = residents::start(options, folder, residents::FEW)?;
    let mut crowded = residents::start(options, folder, residents::MANY)?;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        let mut run = |stage: &mut Stage, known, flow: &Flow, spoken_to| {
            let run = stage.run(std::slice::from_ref(flow), Pace::Saturate)?;
            let (known, spoken_to) = (residents::count(known), residents::count(spoken_to) - 1);
            let cell = Cell::Residents { known, spoken_to };
            samples.push(LoadSample::new(round, cell, stage.switch, None, &run));
            Ok(())
        };
        run(&mut quiet, residents::FEW, &few, residents::FEW)?;
        run(&mut crowded, residents::MANY, &few, residents::FEW)?;
        run(&mut crowded, residents::MANY, &many, residents::MANY)?;
        tell(progress, &samples, round, options.rounds, "residents");
    }
    Ok(samples)
}

/// One line of progress for a round.
fn tell(progress: &Progress, samples: &[LoadSample], round: u32, rounds: u32, what: &str) {
    let mut text = format!("round {round} of {rounds}, {what}:");
    for sample in samples.iter().filter(|sample| sample.round == round) {
        let LoadSample {
            cell,
            switch,
            figures,
            ..
        } = sample;
        let frames = figures.frames_per_s / 1e6;
        text += &format!("  {cell} {switch} {frames:.2} M/s");
        text += &match cell {
            Cell::Latency(_) => format!(" p99 {:.1} µs", figures.p99_ns / 1e3),
            Cell::Light => format!(" {:.0} % of a core", figures.core_share * 100.0),
            _ => format!(" {:.0} cycles", figures.cycles_per_frame),
        };
    }
    progress.step(&text);
}
