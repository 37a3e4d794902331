//! Results of the benchmark of spaces, and whether the targets were reached.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use report::stats::{median, paired_ratio};
use report::target::Target;
use vm_harness::machine::Machine;

/// The shortest length with a target of throughput, and the target as a share of nginx's throughput.
const TARGET: (u32, f64) = (64 << 10, 0.9);

/// MiB that the space's process may use with all slow clients.
const MEMORY_MIB: f64 = 64.0;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A space's process.
    Vicinity,
    /// nginx, which sends the pages of files with sendfile(2).
    Nginx,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vicinity => "vicinity",
            Self::Nginx => "nginx",
        })
    }
}

/// Figures of a server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Responses a second.
    pub requests_per_s: f64,
    /// Bytes of files a second.
    pub bytes_per_s: f64,
    /// CPU time of the server for each GB, in seconds.
    pub cpu_s_per_gb: f64,
    /// The share of a CPU that it used: below one, the client was the slower side.
    pub cpu_share: f64,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 1.
    pub round: u32,
    /// Bytes of the file.
    pub length: u32,
    /// The server.
    pub server: Kind,
    /// The figures.
    pub figures: Figures,
}

/// One measurement with slow clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowSample {
    /// The round, from 1.
    pub round: u32,
    /// The server.
    pub server: Kind,
    /// Number of clients.
    pub clients: u32,
    /// KiB of the server's process before the clients connect, without the files.
    pub before_kib: u64,
    /// KiB of the same process with all clients connected.
    pub with_kib: u64,
    /// KiB that the kernel's TCP allocated between the two readings.
    pub kernel_kib: u64,
}

/// All rounds of one length: medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Bytes of the file.
    pub length: u32,
    /// Figures of the space's process.
    pub vicinity: Figures,
    /// nginx's.
    pub nginx: Figures,
    /// Ratio of the space's throughput to nginx's: the median of the rounds' ratios.
    pub ratio: f64,
    /// Ratio of the space's CPU time for each GB to nginx's: the median of the rounds' ratios.
    pub cpu_ratio: f64,
}

/// All results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The machine, the time and the state of the source tree.
    pub machine: Machine,
    /// Version of the program under test.
    pub vicinity: String,
    /// Version of nginx.
    pub nginx: String,
    /// How often each measurement was repeated.
    pub rounds: u32,
    /// Every measurement.
    pub samples: Vec<Sample>,
    /// Every measurement with slow clients.
    pub slow: Vec<SlowSample>,
    /// One entry for each length.
    pub cells: Vec<Cell>,
    /// The targets, and the measured values.
    pub targets: Vec<Target>,
}

fn cells(samples: &[Sample]) -> Vec<Cell> {
    let lengths: BTreeSet<u32> = samples.iter().map(|sample| sample.length).collect();
    let cell = |length| {
        let values = |server, value: fn(&Figures) -> f64| {
            let mine = samples
                .iter()
                .filter(|sample| sample.length == length && sample.server == server);
            mine.map(|sample| value(&sample.figures))
                .collect::<Vec<f64>>()
        };
        let figures = |server| Figures {
            requests_per_s: median(&values(server, |f| f.requests_per_s)),
            bytes_per_s: median(&values(server, |f| f.bytes_per_s)),
            cpu_s_per_gb: median(&values(server, |f| f.cpu_s_per_gb)),
            cpu_share: median(&values(server, |f| f.cpu_share)),
        };
        let ratio =
            |value| paired_ratio(&values(Kind::Nginx, value), &values(Kind::Vicinity, value));
        Cell {
            length,
            vicinity: figures(Kind::Vicinity),
            nginx: figures(Kind::Nginx),
            ratio: ratio(|f| f.bytes_per_s),
            cpu_ratio: ratio(|f| f.cpu_s_per_gb),
        }
    };
    lengths.into_iter().map(cell).collect()
}

#[expect(clippy::cast_precision_loss, reason = "kilobytes of a process")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// Returns the MiB that the space's process used with slow clients, for each round.
fn with_slow(slow: &[SlowSample], server: Kind, value: fn(&SlowSample) -> u64) -> Vec<f64> {
    let mine = slow.iter().filter(|sample| sample.server == server);
    mine.map(|sample| mib(value(sample))).collect()
}

fn targets(cells: &[Cell], slow: &[SlowSample]) -> Vec<Target> {
    let (least, bound) = TARGET;
    let promised = cells.iter().filter(|cell| cell.length >= least);
    let throughput = |cell: &Cell| {
        let name = format!("{} KiB: throughput against nginx", cell.length >> 10);
        Target::at_least(name, cell.ratio, bound)
    };
    let mut targets: Vec<Target> = promised.map(throughput).collect();
    let memory = with_slow(slow, Kind::Vicinity, |sample| sample.with_kib);
    if let Some(worst) = memory.into_iter().reduce(f64::max) {
        let clients = slow.first().map_or(0, |sample| sample.clients);
        let name = format!("{clients} slow clients: MiB of the process, worst");
        targets.push(Target::at_most(name, worst, MEMORY_MIB));
    }
    targets
}

impl Report {
    pub(super) fn new(
        machine: Machine,
        nginx: String,
        rounds: u32,
        samples: Vec<Sample>,
        slow: Vec<SlowSample>,
    ) -> Self {
        let cells = cells(&samples);
        Self {
            machine,
            vicinity: env!("CARGO_PKG_VERSION").to_owned(),
            nginx,
            rounds,
            targets: targets(&cells, &slow),
            samples,
            slow,
            cells,
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            length,
            server,
            figures,
            ..
        } = self;
        write!(
            f,
            "{length} B, {server}: {:.0} requests/s, {:.3} GB/s, {:.3} s of CPU for a GB",
            figures.requests_per_s,
            figures.bytes_per_s / 1e9,
            figures.cpu_s_per_gb
        )
    }
}

impl fmt::Display for SlowSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} slow clients, {}: {:.1} MiB, before {:.1} MiB; the kernel {:.1} MiB",
            self.clients,
            self.server,
            mib(self.with_kib),
            mib(self.before_kib),
            mib(self.kernel_kib)
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, nginx {}\nMedians of {} rounds; a ratio is the median of the \
             rounds' ratios\n",
            self.machine, self.nginx, self.rounds
        )?;
        writeln!(
            f,
            "{:>10}  {:>24}  {:>24}  {:>6}  {:>14}",
            "bytes",
            "vicinity: requests, GB/s",
            "nginx: requests, GB/s",
            "ratio",
            "CPU for each GB"
        )?;
        for cell in &self.cells {
            let Cell {
                vicinity, nginx, ..
            } = cell;
            writeln!(
                f,
                "{:>10}  {:>16.0}  {:>6.3}  {:>16.0}  {:>6.3}  {:>6.2}  {:>15.2}",
                cell.length,
                vicinity.requests_per_s,
                vicinity.bytes_per_s / 1e9,
                nginx.requests_per_s,
                nginx.bytes_per_s / 1e9,
                cell.ratio,
                cell.cpu_ratio
            )?;
        }
        writeln!(
            f,
            "\nSlow clients: MiB of the process, and of the kernel for TCP"
        )?;
        for server in [Kind::Vicinity, Kind::Nginx] {
            let middle = |value| median(&with_slow(&self.slow, server, value));
            writeln!(
                f,
                "{server:<8}  {:>8.1}, before {:.1}  {:>8.1}",
                middle(|sample| sample.with_kib),
                middle(|sample| sample.before_kib),
                middle(|sample| sample.kernel_kib)
            )?;
        }
        writeln!(f)?;
        Target::write_all(f, &self.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: u32, length: u32, server: Kind, rate: f64) -> Sample {
        let figures = Figures {
            requests_per_s: rate,
            bytes_per_s: rate * f64::from(length),
            cpu_s_per_gb: 1.0,
            cpu_share: 1.0,
        };
        Sample {
            round,
            length,
            server,
            figures,
        }
    }

    #[test]
    fn rounds_are_compared_within_themselves_and_short_files_have_no_target() {
        let both = |round, length, ours, theirs| {
            [
                sample(round, length, Kind::Vicinity, ours),
                sample(round, length, Kind::Nginx, theirs),
            ]
        };
        let samples = [
            both(1, 4096, 10.0, 100.0),
            both(1, 65_536, 95.0, 100.0),
            both(2, 65_536, 9.5, 10.0),
            both(3, 65_536, 300.0, 1000.0),
            both(1, 1 << 20, 80.0, 100.0),
        ]
        .concat();
        let cells = cells(&samples);
        let ratios: Vec<f64> = cells.iter().map(|cell| cell.ratio).collect();
        assert!((ratios[1] - 0.95).abs() < 1e-9, "{ratios:?}");
        let slow = [900, 70 << 10].map(|with_kib| SlowSample {
            round: 1,
            server: Kind::Vicinity,
            clients: 1000,
            before_kib: 1,
            with_kib,
            kernel_kib: 0,
        });
        let reached: Vec<bool> = targets(&cells, &slow).iter().map(|t| t.reached).collect();
        assert_eq!(reached, [true, false, false]);
    }
}
