//! `vicinity bench message`: measures the message plane natively, against UCX and TCP.
//!
//! Theory of operation. Two processes, each alone on one CPU, send messages to each other over several transports:
//! Vicinity with memory of the program, of the heap and for the peer (`vicinity`); Vicinity through the host's relay
//! between members without a common trust group (`mediated`, and `apart` with a CPU for the relay); UCX's
//! `ucx_perftest` over shared memory (`ucx`); and, as two threads, TCP on loopback (`tcp`). For each transport, the
//! benchmark measures half of the time of single round trips, and a stream in one direction (`apart` has no stream).
//! `copy` measures the time of one copy for comparison.
//!
//! A round measures a length over one transport after the other, and the next round does so in the reverse order.
//! The result is the median of the rounds' ratios (`report`), beside the
//! targets. Before the rounds, the cost of idle endpoints is measured (`idle`).

mod apart;
mod copy;
mod idle;
mod iterations;
mod mediated;
mod report;
mod tcp;
mod ucx;
mod vicinity;

use std::path::{Path, PathBuf};

use vm_harness::error::{Error, Result};
use vm_harness::interrupt;
use vm_harness::machine::Machine;
use vm_harness::progress::Progress;
use vm_harness::scope::{self, RunFolder};

use crate::cpus;
use crate::output;
use crate::priority::Priority;
use crate::requirements;

pub use self::idle::Idle;
pub use self::report::{Cell, PeerComparison, Report, Sample, Transport};

use ::report::message_perf::Figures;

/// Message lengths in bytes: one for each protocol of Vicinity, and those with targets.
pub const LENGTHS: [u32; 9] = [0, 8, 64, 1024, 4096, 32 << 10, 64 << 10, 1 << 20, 4 << 20];

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each measurement is repeated, see [`crate::ROUNDS`].
    pub rounds: u32,
    /// Message lengths in bytes.
    pub lengths: Vec<u32>,
    /// The `vicinity` program to measure.
    pub vicinity: PathBuf,
    /// File of the report as JSON; its folder is made.
    pub output: PathBuf,
}

/// Measures the message plane against UCX and TCP, writes the report and returns it. A round with the default options
/// takes about three quarters of a minute.
///
/// # Errors
/// A program is missing or fails, the machine is too small, or a signal arrived. All programs that
/// the benchmark started have been stopped by then.
pub fn message(options: &Options, progress: &Progress) -> Result<Report> {
    interrupt::install()?;
    check(options)?;
    scope::sweep_and_log(progress)?;
    let folder = RunFolder::new()?;
    let mut report = Report {
        machine: Machine::describe()?,
        vicinity: env!("CARGO_PKG_VERSION").to_owned(),
        ucx: ucx::version()?,
        rounds: options.rounds,
        idle: idle::measure(&options.vicinity, folder.path())?,
        samples: Vec::new(),
        cells: Vec::new(),
        targets: Vec::new(),
    };
    let first = Priority::raise();
    report.samples = rounds(options, folder.path(), progress)?;
    drop(first);
    report.cells = report::cells(&report.samples);
    report.targets = report::targets(&report.samples);
    report.targets.extend(report.idle.targets());
    output::write(&report, &options.output)?;
    Ok(report)
}

fn check(options: &Options) -> Result<()> {
    requirements::root("goes before other programs")?;
    requirements::two_cpus("a CPU for each side")?;
    let complaint = if options.rounds == 0 || options.lengths.is_empty() {
        "nothing to measure: give at least one round and one message length"
    } else if options.lengths.iter().any(|length| *length > 1 << 28) {
        "a message may have at most 256 MiB here"
    } else {
        return Ok(());
    };
    Err(Error::Host(complaint.to_owned()))
}

fn rounds(options: &Options, folder: &Path, progress: &Progress) -> Result<Vec<Sample>> {
    let vicinity = vicinity::Vicinity::start(&options.vicinity, folder)?;
    let mediated = mediated::Mediated::start(&options.vicinity, folder)?;
    let mut apart = apart::SeparateCpus::start(&options.vicinity, folder)?;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        for &length in &options.lengths {
            interrupt::check()?;
            let line_ns = cpus::distance_ns()?;
            let mut found = Vec::new();
            // The order is reversed in every other round.
            let order = [0, 1, 2, 3, 4, 5].map(|at| if round % 2 == 0 { 5 - at } else { at });
            for turn in order {
                match turn {
                    0 => {
                        let row = vicinity.measure(length)?;
                        found.push((Transport::Vicinity, row.plain));
                        found.push((Transport::Heap, row.heap));
                        found.push((Transport::Shared, row.shared));
                    }
                    1 if length > apart::MAX_LENGTH => {}
                    1 => found.push((Transport::SeparateCpus, apart.measure(length)?)),
                    2 => found.push((Transport::Mediated, mediated.measure(length)?.plain)),
                    3 if length < copy::MIN_LENGTH => {}
                    3 => found.push((Transport::Copy, copy::measure(length)?)),
                    4 => found.push((Transport::Ucx, ucx::measure(length, folder)?)),
                    // A stream of bytes has no empty messages.
                    _ if length == 0 => {}
                    _ => found.push((Transport::Tcp, tcp::measure(length)?)),
                }
            }
            found.sort_by_key(|(way, _)| *way);
            progress.step(&line_of(round, options.rounds, length, line_ns, &found));
            samples.extend(found.into_iter().map(|(way, figures)| Sample {
                round,
                length,
                way,
                figures,
                line_ns,
            }));
        }
    }
    Ok(samples)
}

fn line_of(
    round: u32,
    rounds: u32,
    length: u32,
    line_ns: f64,
    found: &[(Transport, Figures)],
) -> String {
    let mut text =
        format!("round {round} of {rounds}, {length} B, CPUs {line_ns:.0} ns apart: one way");
    for (way, figures) in found {
        let rate = figures.messages_per_s / 1e6;
        text += &format!("  {way} {:.2} us {rate:.3} M/s", figures.p50_us);
    }
    text
}
