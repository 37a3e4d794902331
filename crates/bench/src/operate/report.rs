//! Results of the benchmark of operations, and whether the targets were reached.

use std::fmt;

use serde::{Deserialize, Serialize};

use report::inference::{Interval, bootstrap};
use report::stats::median;
use report::target::Target;
use vm_harness::machine::Machine;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Adding a port under load, in milliseconds.
    Add,
    /// Changing it, in milliseconds.
    Set,
    /// Removing it, in milliseconds.
    Remove,
    /// A request that changes nothing and needs no data plane, under the same load, in milliseconds. It measures the
    /// waits for CPUs, which are part of the other requests too.
    Ask,
    /// Frames that all ports dropped while a port was added, changed and removed.
    Lost,
    /// CPU time of reading the metrics of all ports once, in milliseconds.
    Scrape,
    /// Reloading a configuration of 1,000 changed ports, in milliseconds.
    Reload,
    /// Ratio of the frames a second of the other pairs of ports with a capture of one port to those without a capture.
    CaptureFrames,
    /// Ratio of the cycles a frame with a capture of one port to those without a capture.
    CaptureCycles,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Add,
        Self::Set,
        Self::Remove,
        Self::Ask,
        Self::Lost,
        Self::Scrape,
        Self::Reload,
        Self::CaptureFrames,
        Self::CaptureCycles,
    ];

    fn words(self) -> &'static str {
        match self {
            Self::Add => "add a port, ms",
            Self::Set => "change a port, ms",
            Self::Remove => "remove a port, ms",
            Self::Ask => "ask for what changes nothing, ms",
            Self::Lost => "frames lost meanwhile",
            Self::Scrape => "metrics of 64 ports, ms of a core",
            Self::Reload => "reload 1,000 ports, ms",
            Self::CaptureFrames => "others' frames a second, captured / not",
            Self::CaptureCycles => "cycles a frame with a capture / without",
        }
    }

    /// Returns the target for the measured values, if there is one.
    fn target(self, values: &[f64]) -> Option<Target> {
        let worst = values.iter().copied().fold(0.0, f64::max);
        let name = |of: &str| format!("{}: {of}", self.words());
        Some(match self {
            Self::Ask => return None,
            Self::Add | Self::Set | Self::Remove => Target::at_most(name("worst"), worst, 10.0),
            Self::Lost => Target::at_most(name("worst"), worst, 0.0),
            Self::Scrape => Target::at_most(name("median"), median(values), 1.0),
            Self::Reload => Target::at_most(name("worst"), worst, 1000.0),
            Self::CaptureFrames => Target::at_least(name("median"), median(values), 0.98),
            Self::CaptureCycles => Target::at_most(name("median"), median(values), 1.02),
        })
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 1.
    pub round: u32,
    /// What was measured.
    pub kind: Kind,
    /// The value.
    pub value: f64,
}

/// All results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The machine, the time and the state of the source tree.
    pub machine: Machine,
    /// Version of the program under test.
    pub vicinity: String,
    /// How often each measurement was repeated.
    pub rounds: u32,
    /// Every measurement.
    pub samples: Vec<Sample>,
    /// The targets, and the measured values.
    pub targets: Vec<Target>,
}

/// Returns the 95 % interval of a median.
fn interval(values: &[f64]) -> Interval {
    bootstrap(values.len(), |chosen| {
        let chosen = chosen.iter().filter_map(|&at| values.get(at).copied());
        median(&chosen.collect::<Vec<_>>())
    })
}

fn values(samples: &[Sample], kind: Kind) -> Vec<f64> {
    let those = samples.iter().filter(|sample| sample.kind == kind);
    those.map(|sample| sample.value).collect()
}

impl Report {
    pub(super) fn new(machine: Machine, rounds: u32, samples: Vec<Sample>) -> Self {
        let target = |kind: Kind| kind.target(&values(&samples, kind));
        Self {
            machine,
            vicinity: env!("CARGO_PKG_VERSION").to_owned(),
            rounds,
            targets: Kind::ALL.into_iter().filter_map(target).collect(),
            samples,
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.3}", self.kind.words(), self.value)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}\n{} rounds, 64 ports that send as much as they can\n",
            self.machine, self.rounds
        )?;
        writeln!(
            f,
            "{:<42}{:>10}{:>18}{:>10}",
            "", "median", "95 % interval", "worst"
        )?;
        for kind in Kind::ALL {
            let values = values(&self.samples, kind);
            let worst = match kind {
                Kind::CaptureFrames => values.iter().copied().fold(f64::INFINITY, f64::min),
                _ => values.iter().copied().fold(0.0, f64::max),
            };
            let middle = median(&values);
            let Interval { low, high } = interval(&values);
            let between = format!("{low:.3} to {high:.3}");
            writeln!(
                f,
                "{:<42}{middle:>10.3}{between:>18}{worst:>10.3}",
                kind.words()
            )?;
        }
        writeln!(f)?;
        Target::write_all(f, &self.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_judged_by_the_worst_and_ratios_by_the_median() {
        let reached = |kind: Kind, values: &[f64]| kind.target(values).unwrap().reached;
        assert!(reached(Kind::Add, &[9.0, 1.0]));
        assert!(!reached(Kind::Add, &[11.0, 1.0, 1.0]));
        assert!(reached(Kind::Scrape, &[11.0, 0.5, 0.5]));
        assert!(reached(Kind::CaptureFrames, &[0.9, 0.99, 0.99]));
        assert!(!reached(Kind::CaptureCycles, &[1.0, 1.03, 1.03]));
        assert!(!reached(Kind::Lost, &[0.0, 1.0]));
    }
}
