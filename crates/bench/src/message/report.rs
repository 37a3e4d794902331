//! Results of the benchmark of the message plane, and whether the targets were reached.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::idle::Idle;
use report::message_perf::Figures;
use report::stats::{median, paired_ratio};
use report::target::Target;
use vm_harness::machine::Machine;

/// A transport of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Vicinity, with memory of the program.
    Vicinity,
    /// Vicinity, with memory of the endpoint's heap.
    Heap,
    /// Vicinity, with memory that both sides can write.
    Shared,
    /// Vicinity through the host's relay, with memory of the program.
    Mediated,
    /// Like `Mediated`, with both ends in one thread and the relay on another CPU. One message is under way.
    #[serde(rename = "apart")]
    SeparateCpus,
    /// One copy by one processor, without messages.
    Copy,
    /// UCX over shared memory.
    Ucx,
    /// TCP on loopback.
    Tcp,
}

impl Transport {
    const ALL: [Self; 8] = [
        Self::Vicinity,
        Self::Heap,
        Self::Shared,
        Self::Mediated,
        Self::SeparateCpus,
        Self::Copy,
        Self::Ucx,
        Self::Tcp,
    ];
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vicinity => "vicinity",
            Self::Heap => "on heap",
            Self::Shared => "shared",
            Self::Mediated => "mediated",
            Self::SeparateCpus => "apart",
            Self::Copy => "one copy",
            Self::Ucx => "ucx",
            Self::Tcp => "tcp",
        })
    }
}

/// One measurement of one transport.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 1. Samples of one round and length were taken next to each other.
    pub round: u32,
    /// Bytes of a message.
    pub length: u32,
    /// The transport.
    pub way: Transport,
    /// Its figures.
    pub figures: Figures,
    /// Nanoseconds that a cache line took from one CPU to the other and back, measured just before the sample.
    pub line_ns: f64,
}

/// All rounds of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Bytes of a message.
    pub length: u32,
    /// Each transport that was measured.
    pub ways: Vec<PeerComparison>,
}

/// A transport, and how it compares with UCX.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerComparison {
    /// The transport.
    pub way: Transport,
    /// Its medians.
    pub figures: Figures,
    /// Its one-way latency divided by UCX's: the median of the rounds' ratios.
    pub latency_ratio: f64,
    /// Its rate divided by UCX's: the median of the rounds' ratios.
    pub rate_ratio: f64,
}

/// All results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The machine, the time and the state of the source tree.
    pub machine: Machine,
    /// Version of the program under test.
    pub vicinity: String,
    /// Version of UCX.
    pub ucx: String,
    /// How often each measurement was repeated.
    pub rounds: u32,
    /// The cost of idle endpoints.
    pub idle: Idle,
    /// Every measurement.
    pub samples: Vec<Sample>,
    /// One entry for each length.
    pub cells: Vec<Cell>,
    /// The targets, and the measured values.
    pub targets: Vec<Target>,
}

/// Values of one transport and length, in the order of the rounds.
fn values(samples: &[Sample], length: u32, way: Transport, value: fn(&Figures) -> f64) -> Vec<f64> {
    let mine = samples.iter();
    let mine = mine.filter(|sample| sample.length == length && sample.way == way);
    mine.map(|sample| value(&sample.figures)).collect()
}

fn ratio(samples: &[Sample], length: u32, way: Transport, value: fn(&Figures) -> f64) -> f64 {
    against(samples, length, Transport::Ucx, way, value)
}

/// Returns a transport's value divided by another's: the median of the rounds' ratios.
fn against(
    samples: &[Sample],
    length: u32,
    other: Transport,
    way: Transport,
    value: fn(&Figures) -> f64,
) -> f64 {
    let theirs = values(samples, length, other, value);
    paired_ratio(&theirs, &values(samples, length, way, value))
}

pub(super) fn cells(samples: &[Sample]) -> Vec<Cell> {
    let lengths: BTreeSet<u32> = samples.iter().map(|sample| sample.length).collect();
    let cell = |length| {
        let measured =
            |way: &Transport| samples.iter().any(|s| s.length == length && s.way == *way);
        let ways = Transport::ALL.into_iter().filter(measured);
        let against = |way| {
            let middle = |value| median(&values(samples, length, way, value));
            PeerComparison {
                way,
                figures: Figures {
                    p50_us: middle(|f| f.p50_us),
                    p99_us: middle(|f| f.p99_us),
                    messages_per_s: middle(|f| f.messages_per_s),
                },
                latency_ratio: ratio(samples, length, way, |f| f.p50_us),
                rate_ratio: ratio(samples, length, way, |f| f.messages_per_s),
            }
        };
        Cell {
            length,
            ways: ways.map(against).collect(),
        }
    };
    lengths.into_iter().map(cell).collect()
}

/// Returns the targets that these measurements can check.
pub(super) fn targets(samples: &[Sample]) -> Vec<Target> {
    let measured = |length| samples.iter().any(|sample| sample.length == length);
    let mut targets = Vec::new();
    if measured(8) {
        let latency = ratio(samples, 8, Transport::Vicinity, |f| f.p50_us);
        let rate = ratio(samples, 8, Transport::Vicinity, |f| f.messages_per_s);
        targets.push(Target::at_most("8 B: one way against UCX", latency, 0.8));
        targets.push(Target::at_least("8 B: messages/s against UCX", rate, 1.0));
    }
    for (length, name) in [(64 << 10, "64 KB"), (4 << 20, "4 MB")] {
        if measured(length) {
            let name = format!("{name} on the heap or shared: bandwidth against UCX");
            let rate = |way| ratio(samples, length, way, |f| f.messages_per_s);
            // The target is about the fastest of the transports that a program can choose.
            let rate = rate(Transport::Heap).max(rate(Transport::Shared));
            targets.push(Target::at_least(name, rate, 1.3));
        }
    }
    targets.extend(mediated(samples));
    targets
}

/// Returns the targets for members without a common trust group.
fn mediated(samples: &[Sample]) -> Vec<Target> {
    let measured = |length, way| {
        let mut all = samples.iter();
        all.any(|sample| sample.length == length && sample.way == way)
    };
    let mut targets = Vec::new();
    for (way, condition) in [
        (Transport::Mediated, ""),
        (Transport::SeparateCpus, ", the relay with a CPU of its own"),
    ] {
        for (length, name) in [(8, "8 B"), (4096, "4 KB"), (64 << 10, "64 KB")] {
            if measured(length, way) {
                let name = format!("{name}: mediated against direct, one way{condition}");
                let latency = against(samples, length, Transport::Vicinity, way, |f| f.p50_us);
                targets.push(Target::at_most(name, latency, 2.0));
            }
        }
    }
    for (length, name) in [(8, "8 B"), (4096, "4 KB"), (1 << 20, "1 MB")] {
        if measured(length, Transport::Mediated) {
            let name = format!("{name}: mediated against direct, messages/s");
            let rate = |f: &Figures| f.messages_per_s;
            let rate = against(
                samples,
                length,
                Transport::Vicinity,
                Transport::Mediated,
                rate,
            );
            targets.push(Target::at_least(name, rate, 0.5));
        }
    }
    targets
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, UCX {}\nMedians of {} rounds; ratios are medians of the \
             rounds' ratios\n",
            self.machine, self.ucx, self.rounds
        )?;
        writeln!(
            f,
            "{:>9}  {:8}  {:>11}  {:>9}  {:>12}  {:>8}  {:>9}  {:>9}",
            "length", "way", "one way, us", "p99, us", "messages/s", "GB/s", "time/UCX", "rate/UCX"
        )?;
        for cell in &self.cells {
            for way in &cell.ways {
                let Figures {
                    p50_us,
                    p99_us,
                    messages_per_s,
                } = way.figures;
                let bandwidth = messages_per_s * f64::from(cell.length) / 1e9;
                writeln!(
                    f,
                    "{:>9}  {:8}  {p50_us:>11.3}  {p99_us:>9.3}  {messages_per_s:>12.0}  \
                     {bandwidth:>8.2}  {:>9.2}  {:>9.2}",
                    cell.length, way.way, way.latency_ratio, way.rate_ratio
                )?;
            }
        }
        writeln!(f)?;
        Target::write_all(f, &self.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: u32, length: u32, way: Transport, p50_us: f64, messages_per_s: f64) -> Sample {
        Sample {
            round,
            length,
            way,
            figures: Figures {
                p50_us,
                p99_us: 2.0 * p50_us,
                messages_per_s,
            },
            line_ns: 200.0,
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_targets_are_met_or_missed() {
        let samples = [
            sample(1, 8, Transport::Vicinity, 0.2, 9e6),
            sample(1, 8, Transport::Ucx, 0.4, 10e6),
            // In the second round all transports were slower.
            sample(2, 8, Transport::Ucx, 4.0, 1e6),
            sample(2, 8, Transport::Vicinity, 2.0, 0.9e6),
            sample(1, 8, Transport::Mediated, 0.5, 3e6),
            sample(1, 8, Transport::SeparateCpus, 0.3, 3e6),
            sample(1, 4 << 20, Transport::Heap, 300.0, 1.5e3),
            sample(1, 4 << 20, Transport::Shared, 300.0, 3e3),
            sample(1, 4 << 20, Transport::Ucx, 600.0, 1.5e3),
        ];
        let found = cells(&samples);
        assert_eq!(found.len(), 2);
        let ours = found[0].ways[0];
        assert!((ours.latency_ratio - 0.5).abs() < 1e-9 && (ours.rate_ratio - 0.9).abs() < 1e-9);
        let kept: Vec<_> = targets(&samples).iter().map(|t| t.reached).collect();
        assert_eq!(kept, [true, false, true, false, true, false]);
    }
}
