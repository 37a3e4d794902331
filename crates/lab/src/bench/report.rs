//! What a benchmark found, and whether it is what was promised.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::stats::{median, paired_ratios, quantile};

use super::idle::Idle;
use super::peer::Peer;

/// One measurement of one switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 1. Samples of one round and size were taken next to each other.
    pub round: u32,
    /// Length of the frames in bytes, Ethernet header included, check sequence not.
    pub size: u16,
    /// The switch.
    pub switch: Peer,
    /// What it did.
    pub figures: Figures,
    /// Frames the generator could not send because a ring was full.
    pub unsent: u64,
    /// Nanoseconds for one cache line from the generator's CPU to the switch's and back, just
    /// before this sample and its partner.
    pub line_ns: f64,
    /// Time that threads of switch and generator waited for a CPU, as a share of the window.
    /// Near 0 on a quiet machine.
    pub disturbed: f64,
}

/// What a switch did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Frames per second that arrived at both ports together.
    pub frames_per_s: f64,
    /// Time-stamp counter ticks of busy rounds, divided by the frames taken in them.
    pub cycles_per_frame: f64,
    /// Share of time spent in busy rounds, 1.0 when the switch was the limit.
    pub busy_share: f64,
}

/// All rounds of one frame length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Length of the frames in bytes, as in [`Sample::size`].
    pub size: u16,
    /// Medians of ours.
    pub vicinity: Figures,
    /// Medians of Open vSwitch's.
    pub ovs_dpdk: Figures,
    /// Ours divided by theirs, frames per second: the median of the rounds' ratios.
    pub frames_ratio: f64,
    /// Ours divided by theirs, cycles per frame: the median of the rounds' ratios.
    pub cycles_ratio: f64,
}

/// A promise and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What is promised.
    pub name: String,
    /// The promised value.
    pub bound: f64,
    /// Whether the bound is a lower one; else it is an upper one.
    pub at_least: bool,
    /// The measured value.
    pub measured: f64,
    /// Whether the promise was kept.
    pub reached: bool,
}

/// Everything a run of the benchmark found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The machine, the time and the state of the source tree.
    pub machine: Machine,
    /// Version of the switch under test.
    pub vicinity: String,
    /// Version of its peer, and of the DPDK that peer and generator are built on.
    pub ovs_dpdk: String,
    /// How long each sample was, in seconds.
    pub window_s: f64,
    /// Every measurement, in the order they were taken.
    pub samples: Vec<Sample>,
    /// One entry a frame length.
    pub comparisons: Vec<Comparison>,
    /// What an idle switch costs.
    pub idle: Idle,
    /// Promises.
    pub targets: Vec<Target>,
    /// What the run could not remove. Empty on a clean run.
    pub leftovers: Vec<String>,
}

impl Report {
    /// The median of [`Sample::disturbed`].
    #[must_use]
    pub fn disturbed(&self) -> f64 {
        let all = self.samples.iter().map(|sample| sample.disturbed);
        median(&all.collect::<Vec<_>>())
    }

    /// Least, middle and most of [`Sample::line_ns`].
    #[must_use]
    pub fn line_ns(&self) -> [f64; 3] {
        let all: Vec<f64> = self.samples.iter().map(|sample| sample.line_ns).collect();
        [0.0, 0.5, 1.0].map(|q| quantile(&all, q))
    }

    /// Whether every promise that could be checked was kept.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.targets.iter().all(|target| target.reached)
    }
}

impl Target {
    fn new(name: String, measured: f64, bound: f64, at_least: bool) -> Self {
        let reached = if at_least {
            measured >= bound
        } else {
            measured <= bound
        };
        Self {
            name,
            bound,
            at_least,
            measured,
            reached,
        }
    }
}

/// Compares the samples of each size. The samples of every switch are in order of the rounds.
pub(super) fn compare(samples: &[Sample], sizes: &[u16]) -> Vec<Comparison> {
    sizes.iter().map(|&size| one(samples, size)).collect()
}

fn one(samples: &[Sample], size: u16) -> Comparison {
    let of = |switch, value: fn(&Figures) -> f64| -> Vec<f64> {
        let mine = samples.iter();
        let mine = mine.filter(|sample| sample.size == size && sample.switch == switch);
        mine.map(|sample| value(&sample.figures)).collect()
    };
    let medians = |switch| Figures {
        frames_per_s: median(&of(switch, |f| f.frames_per_s)),
        cycles_per_frame: median(&of(switch, |f| f.cycles_per_frame)),
        busy_share: median(&of(switch, |f| f.busy_share)),
    };
    let ratio = |value| {
        median(&paired_ratios(
            &of(Peer::OvsDpdk, value),
            &of(Peer::Vicinity, value),
        ))
    };
    Comparison {
        size,
        vicinity: medians(Peer::Vicinity),
        ovs_dpdk: medians(Peer::OvsDpdk),
        frames_ratio: ratio(|f| f.frames_per_s),
        cycles_ratio: ratio(|f| f.cycles_per_frame),
    }
}

/// The promises that these measurements can check.
pub(super) fn targets(comparisons: &[Comparison], idle: &Idle) -> Vec<Target> {
    let mut targets = Vec::new();
    for found in comparisons {
        let frames = |bound| {
            let name = format!("{} B: frames/s against OVS-DPDK", found.size);
            Target::new(name, found.frames_ratio, bound, true)
        };
        match found.size {
            64 => {
                targets.push(frames(1.3));
                let name = "64 B: cycles a frame against OVS-DPDK".to_owned();
                targets.push(Target::new(name, found.cycles_ratio, 0.5, false));
            }
            1500 => targets.push(frames(1.5)),
            _ => {}
        }
    }
    let name = "idle: wake-ups a second".to_owned();
    targets.push(Target::new(name, idle.wakeups_per_s, 5.0, false));
    let name = "idle: percent of a core".to_owned();
    targets.push(Target::new(name, idle.core_share * 100.0, 0.1, false));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: u32, switch: Peer, frames_per_s: f64, cycles_per_frame: f64) -> Sample {
        Sample {
            round,
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
        // The machine got slower from round to round; each pair says twice as fast.
        let samples = [
            sample(1, Peer::Vicinity, 20.0, 100.0),
            sample(1, Peer::OvsDpdk, 10.0, 300.0),
            sample(2, Peer::OvsDpdk, 5.0, 900.0),
            sample(2, Peer::Vicinity, 10.0, 300.0),
            sample(3, Peer::Vicinity, 4.0, 500.0),
            sample(3, Peer::OvsDpdk, 2.0, 1500.0),
        ];
        let found = compare(&samples, &[64]);
        assert!((found[0].frames_ratio - 2.0).abs() < 1e-9);
        assert!((found[0].cycles_ratio - 1.0 / 3.0).abs() < 1e-9);
        assert!((found[0].vicinity.frames_per_s - 10.0).abs() < 1e-9);
        assert!((found[0].ovs_dpdk.cycles_per_frame - 900.0).abs() < 1e-9);
    }

    #[test]
    fn a_promise_is_kept_or_not() {
        let samples = [
            sample(1, Peer::Vicinity, 14.0, 151.0),
            sample(1, Peer::OvsDpdk, 10.0, 300.0),
        ];
        let idle = Idle {
            seconds: 10.0,
            wakeups_per_s: 4.0,
            core_share: 0.002,
        };
        let targets = targets(&compare(&samples, &[64]), &idle);
        let kept: Vec<bool> = targets.iter().map(|target| target.reached).collect();
        assert_eq!(kept, [true, false, true, false]);
    }
}
