//! Results of the benchmark of the switch, and whether the targets were reached.

use serde::{Deserialize, Serialize};

use report::stats::{median, paired_ratio, quantile};
use report::target::Target;
use vm_harness::machine::Machine;

use super::device_under_test::SwitchKind;
use super::idle::{Idle, IdlePorts};
use super::load_sample::{LoadSample, LoadSummary};
use super::sample::{Figures, Sample};

/// All rounds of one number of pairs and one frame length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Pairs of ports, as in [`Sample::pairs`].
    pub pairs: u16,
    /// Length of the frames in bytes, as in [`Sample::size`].
    pub size: u16,
    /// Medians of Vicinity.
    pub vicinity: Figures,
    /// The other switches.
    pub peers: Vec<PeerComparison>,
}

/// Vicinity compared with another switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerComparison {
    /// The other switch.
    pub switch: SwitchKind,
    /// Medians of the other switch.
    pub figures: Figures,
    /// Vicinity's frames per second divided by the other's: the median of the rounds' ratios.
    pub frames_ratio: f64,
    /// Vicinity's cycles per frame divided by the other's: the median of the rounds' ratios.
    pub cycles_ratio: f64,
}

/// All results of a run of the benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The machine, the time and the state of the source tree.
    pub machine: Machine,
    /// Version of the switch under test.
    pub vicinity: String,
    /// Version of its peer, and of the DPDK that peer and generator are built on.
    pub ovs_dpdk: String,
    /// How often each measurement was repeated.
    pub rounds: u32,
    /// How long each sample was, in seconds.
    pub window_s: f64,
    /// Every measurement, in the order they were taken.
    pub samples: Vec<Sample>,
    /// One entry for each number of pairs and frame length.
    pub comparisons: Vec<Comparison>,
    /// Every measurement with the benchmark's own generator.
    pub load_samples: Vec<LoadSample>,
    /// Their medians.
    pub loads: Vec<LoadSummary>,
    /// The cost of an idle switch with two VMs, if it was measured.
    pub idle: Option<Idle>,
    /// The cost of an idle switch with many ports, if it was measured.
    pub idle_ports: Option<IdlePorts>,
    /// The targets, and the measured values.
    pub targets: Vec<Target>,
    /// What the run could not remove. Empty on a clean run.
    pub leftovers: Vec<String>,
}

impl Report {
    /// Returns the median of [`Sample::disturbed`].
    #[must_use]
    pub fn disturbed(&self) -> f64 {
        let frames = self.samples.iter().map(|sample| sample.disturbed);
        let loads = self.load_samples.iter().map(|sample| sample.disturbed);
        let all = frames.chain(loads);
        median(&all.collect::<Vec<_>>())
    }

    /// Returns the minimum, median and maximum of [`Sample::line_ns`].
    #[must_use]
    pub fn line_ns(&self) -> [f64; 3] {
        let all: Vec<f64> = self.samples.iter().map(|sample| sample.line_ns).collect();
        [0.0, 0.5, 1.0].map(|q| quantile(&all, q))
    }

    /// Whether every target was reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.targets.iter().all(|target| target.reached)
    }
}

/// Compares the samples of each number of pairs and each size. The samples of every switch are in
/// order of the rounds.
pub(super) fn compare(samples: &[Sample]) -> Vec<Comparison> {
    let mut cells: Vec<(u16, u16)> = Vec::new();
    for sample in samples {
        let cell = (sample.pairs, sample.size);
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    cells.into_iter().map(|cell| one(samples, cell)).collect()
}

fn one(samples: &[Sample], (pairs, size): (u16, u16)) -> Comparison {
    let mine = |sample: &&Sample| sample.pairs == pairs && sample.size == size;
    let of = |switch, value: fn(&Figures) -> f64| -> Vec<f64> {
        let mine = samples.iter().filter(mine);
        let mine = mine.filter(|sample| sample.switch == switch);
        mine.map(|sample| value(&sample.figures)).collect()
    };
    let medians = |switch| Figures {
        frames_per_s: median(&of(switch, |f| f.frames_per_s)),
        cycles_per_frame: median(&of(switch, |f| f.cycles_per_frame)),
        busy_share: median(&of(switch, |f| f.busy_share)),
    };
    let ratio = |switch, value| paired_ratio(&of(switch, value), &of(SwitchKind::Vicinity, value));
    let against = |switch| PeerComparison {
        switch,
        figures: medians(switch),
        frames_ratio: ratio(switch, |f| f.frames_per_s),
        cycles_ratio: ratio(switch, |f| f.cycles_per_frame),
    };
    Comparison {
        pairs,
        size,
        vicinity: medians(SwitchKind::Vicinity),
        peers: [SwitchKind::OvsDpdk, SwitchKind::Testpmd]
            .map(against)
            .to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: u32, switch: SwitchKind, frames_per_s: f64, cycles_per_frame: f64) -> Sample {
        Sample {
            round,
            pairs: 1,
            size: 64,
            switch,
            figures: Figures {
                frames_per_s,
                cycles_per_frame,
                busy_share: 0.5,
            },
            unsent: 0,
            line_ns: 200.0,
            disturbed: 0.0,
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round_not_across() {
        // The machine becomes slower from round to round, but in each pair Vicinity is twice as fast.
        let samples = [
            sample(1, SwitchKind::Vicinity, 20.0, 100.0),
            sample(1, SwitchKind::OvsDpdk, 10.0, 300.0),
            sample(2, SwitchKind::OvsDpdk, 5.0, 900.0),
            sample(2, SwitchKind::Vicinity, 10.0, 300.0),
            sample(3, SwitchKind::Vicinity, 4.0, 500.0),
            sample(3, SwitchKind::OvsDpdk, 2.0, 1500.0),
        ];
        let found = compare(&samples);
        let ovs = found[0].peers[0];
        assert_eq!(ovs.switch, SwitchKind::OvsDpdk);
        assert!((ovs.frames_ratio - 2.0).abs() < 1e-9);
        assert!((ovs.cycles_ratio - 1.0 / 3.0).abs() < 1e-9);
        assert!((found[0].vicinity.frames_per_s - 10.0).abs() < 1e-9);
        assert!((ovs.figures.cycles_per_frame - 900.0).abs() < 1e-9);
    }

    #[test]
    fn pairs_and_sizes_are_kept_apart() {
        let other = Sample {
            pairs: 4,
            ..sample(1, SwitchKind::Vicinity, 7.0, 70.0)
        };
        let found = compare(&[sample(1, SwitchKind::Vicinity, 5.0, 50.0), other]);
        let frames: Vec<_> = found.iter().map(|one| one.vicinity.frames_per_s).collect();
        assert_eq!(frames, [5.0, 7.0]);
    }
}
