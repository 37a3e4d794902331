//! Results of the benchmark of the uplink, and whether the targets were reached.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use report::stats::{median, paired_ratio};
use report::target::Target;
use vm_harness::machine::Machine;

/// The rate with a target, in Mbit/s, and the target as a share of this rate.
const TARGET: (u32, f64) = (10_000, 0.95);

/// The most that a round trip between programs that poll may take, in round trips between programs that wait,
/// and in round trips of TCP.
const POLLING_TARGETS: (f64, f64) = (3.0, 1.0);

/// The round trips of one round: medians in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// The round, from 1.
    pub round: u32,
    /// Messages between programs that wait in calls.
    pub waiting_us: f64,
    /// Messages between programs that poll.
    pub polling_us: f64,
    /// Messages between programs that poll and serve the interface. Reports of earlier versions have 0.
    #[serde(default)]
    pub in_process_us: f64,
    /// Messages between programs that poll and send each other datagrams. Reports of earlier versions have 0.
    #[serde(default)]
    pub datagrams_us: f64,
    /// TCP between programs that poll.
    pub tcp_us: f64,
}

/// One measurement of messages and of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 1.
    pub round: u32,
    /// The link's rate in Mbit/s.
    pub rate: u32,
    /// Bytes of messages a second.
    pub messages: f64,
    /// The same between programs that serve the interface. Reports of earlier versions have 0.
    #[serde(default)]
    pub in_process: f64,
    /// The same between programs that send each other datagrams. Reports of earlier versions have 0.
    #[serde(default)]
    pub datagrams: f64,
    /// Bytes of TCP a second.
    pub tcp: f64,
}

/// All rounds of one rate: medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The link's rate in Mbit/s.
    pub rate: u32,
    /// The part of the rate that messages reach.
    pub messages: f64,
    /// The part that messages reach between programs that serve the interface.
    #[serde(default)]
    pub in_process: f64,
    /// The part that messages reach between programs that send each other datagrams.
    #[serde(default)]
    pub datagrams: f64,
    /// The part of the rate that TCP reaches.
    pub tcp: f64,
    /// Ratio of messages to TCP: the median of the rounds' ratios.
    pub ratio: f64,
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
    /// Every measurement of round trips. Reports of earlier versions have none.
    #[serde(default)]
    pub round_trips: Vec<RoundTrip>,
    /// One entry for each rate.
    pub cells: Vec<Cell>,
    /// The targets, and the measured values.
    pub targets: Vec<Target>,
}

/// Returns the part of a link's rate that `bytes` a second use.
fn part(rate: u32, bytes: f64) -> f64 {
    bytes * 8.0 / (f64::from(rate) * 1e6)
}

fn cells(samples: &[Sample]) -> Vec<Cell> {
    let rates: BTreeSet<u32> = samples.iter().map(|sample| sample.rate).collect();
    let cell = |rate| {
        let values = |value: fn(&Sample) -> f64| {
            let mine = samples.iter().filter(|sample| sample.rate == rate);
            mine.map(value).collect::<Vec<f64>>()
        };
        let [messages, tcp] = [values(|s| s.messages), values(|s| s.tcp)];
        let in_process = values(|s| s.in_process);
        let datagrams = values(|s| s.datagrams);
        Cell {
            rate,
            messages: part(rate, median(&messages)),
            in_process: part(rate, median(&in_process)),
            datagrams: part(rate, median(&datagrams)),
            tcp: part(rate, median(&tcp)),
            ratio: paired_ratio(&tcp, &messages),
        }
    };
    rates.into_iter().map(cell).collect()
}

fn values(trips: &[RoundTrip], value: fn(&RoundTrip) -> f64) -> Vec<f64> {
    trips.iter().map(value).collect()
}

fn polling_targets(trips: &[RoundTrip]) -> [Target; 4] {
    type Value = fn(&RoundTrip) -> f64;
    let ratio = |of: Value, to: Value| paired_ratio(&values(trips, to), &values(trips, of));
    let (waiting, tcp) = POLLING_TARGETS;
    [
        Target::at_most(
            "8 B between programs that poll: part of programs that wait",
            ratio(|trip| trip.polling_us, |trip| trip.waiting_us),
            waiting,
        ),
        Target::at_most(
            "8 B between programs that poll: part of TCP",
            ratio(|trip| trip.polling_us, |trip| trip.tcp_us),
            tcp,
        ),
        Target::at_most(
            "8 B between programs that poll and serve the interface: part of TCP",
            ratio(|trip| trip.in_process_us, |trip| trip.tcp_us),
            tcp,
        ),
        Target::at_most(
            "8 B between programs that poll and send each other datagrams: part of TCP",
            ratio(|trip| trip.datagrams_us, |trip| trip.tcp_us),
            tcp,
        ),
    ]
}

impl Report {
    pub(super) fn new(
        machine: Machine,
        rounds: u32,
        samples: Vec<Sample>,
        round_trips: Vec<RoundTrip>,
    ) -> Self {
        let cells = cells(&samples);
        let (rate, bound) = TARGET;
        let promised = cells.iter().filter(|cell| cell.rate == rate);
        let name = format!("512 KB at {} Gbit/s: part of the link", rate / 1000);
        let targets = promised.map(|cell| Target::at_least(&name, cell.messages, bound));
        Self {
            machine,
            vicinity: env!("CARGO_PKG_VERSION").to_owned(),
            rounds,
            targets: targets.chain(polling_targets(&round_trips)).collect(),
            round_trips,
            cells,
            samples,
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [self.messages, self.in_process, self.datagrams, self.tcp];
        let [messages, in_process, datagrams, tcp] = all.map(|bytes| bytes / 1e9);
        let rate = self.rate;
        write!(
            f,
            "{rate} Mbit/s, messages {messages:.3} GB/s, served by programs {in_process:.3} GB/s, by datagrams {datagrams:.3} GB/s, TCP {tcp:.3} GB/s"
        )
    }
}

impl fmt::Display for RoundTrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            waiting_us,
            polling_us,
            in_process_us,
            datagrams_us,
            tcp_us,
            ..
        } = self;
        write!(
            f,
            "round trips of 8 B: messages {waiting_us:.1} us, between programs that poll {polling_us:.1} us, that also \
             serve the interface {in_process_us:.1} us, by datagrams {datagrams_us:.1} us, TCP {tcp_us:.1} us"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}\nMedians of {} rounds: messages of 512 KB and TCP, as parts of the \
             link; the ratio is the median of the rounds' ratios\n",
            self.machine, self.rounds
        )?;
        writeln!(
            f,
            "{:>9}  {:>8}  {:>18}  {:>12}  {:>6}  {:>8}",
            "Mbit/s", "messages", "served by programs", "by datagrams", "TCP", "messages/TCP"
        )?;
        for Cell {
            rate,
            messages,
            in_process,
            datagrams,
            tcp,
            ratio,
        } in &self.cells
        {
            writeln!(
                f,
                "{rate:>9}  {messages:>8.3}  {in_process:>18.3}  {datagrams:>12.3}  {tcp:>6.3}  {ratio:>12.2}"
            )?;
        }
        if !self.round_trips.is_empty() {
            let median = |value| median(&values(&self.round_trips, value));
            let trip = RoundTrip {
                round: 0,
                waiting_us: median(|trip| trip.waiting_us),
                polling_us: median(|trip| trip.polling_us),
                in_process_us: median(|trip| trip.in_process_us),
                datagrams_us: median(|trip| trip.datagrams_us),
                tcp_us: median(|trip| trip.tcp_us),
            };
            writeln!(f, "\nMedians, {trip}")?;
        }
        writeln!(f)?;
        Target::write_all(f, &self.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_the_link_and_the_target_is_met_or_missed() {
        let sample = |round, rate, messages| Sample {
            round,
            rate,
            messages,
            in_process: messages,
            datagrams: messages,
            tcp: 1e9,
        };
        let samples = [
            sample(1, 10_000, 1.2e9),
            sample(2, 10_000, 1.1e9),
            sample(3, 10_000, 1.0e9),
            sample(1, 5000, 0.5e9),
        ];
        let found = cells(&samples);
        assert_eq!(found.len(), 2);
        let [half, whole] = [found[0], found[1]];
        assert!((half.messages - 0.8).abs() < 1e-9 && (whole.messages - 0.88).abs() < 1e-9);
        assert!((whole.ratio - 1.1).abs() < 1e-9 && (whole.tcp - 0.8).abs() < 1e-9);
    }
}
