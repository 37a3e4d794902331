//! `vicinity bench uplink`: measures messages between two hosts, and TCP through the same link.
//!
//! Theory of operation. The hosts are two network namespaces, each with a daemon and a CPU of its own, and a link
//! between them (`hosts`) whose rate a token bucket limits. A round sets each rate and measures
//! messages of 512 KB in one direction, and a TCP stream; the order changes from round to round. Messages
//! can use the rate except for headers: 32 bytes of each frame of 4128. Then the round measures round trips of 8 bytes
//! at the highest rate: with programs that wait in calls, with programs that poll, as MPI's do, so that each CPU has a
//! program and an uplink that need it, with programs that poll and serve the interface themselves beside the daemons, with programs that poll
//! and send each other datagrams, and those of TCP with programs that poll.
//!
//! Each daemon has a session of its own, and the programs are in that of the benchmark: on users' machines the daemon is
//! a service, and programs belong to a login or a batch system. The scheduler shares a CPU between sessions first
//! (`autogroup`, sched(7)), so that a `sched_yield` of a program in the daemon's session would reach the uplink sooner.
//! No session has another priority than the others, as no service has: with `nice -20` for all of them, some rounds of
//! short messages took ten times as long.

mod hosts;
mod namespace;
mod report;
mod tcp;

use std::path::PathBuf;

use vm_harness::error::{Error, Result};
use vm_harness::interrupt;
use vm_harness::machine::Machine;
use vm_harness::progress::Progress;
use vm_harness::scope::{self, RunFolder};

use crate::output;
use crate::requirements;
use hosts::{Hosts, Way};

pub use self::report::{Cell, Report, RoundTrip, Sample};

/// Bytes of a message.
const LENGTH: u32 = 512 << 10;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each measurement is repeated, see [`crate::ROUNDS`].
    pub rounds: u32,
    /// Rates of the link, in Mbit/s.
    pub rates: Vec<u32>,
    /// The `vicinity` program to measure.
    pub vicinity: PathBuf,
    /// File of the report as JSON; its folder is made.
    pub output: PathBuf,
}

/// Rates in Mbit/s: the one with a target, and two below.
pub const RATES: [u32; 3] = [2500, 5000, 10_000];

/// Measures messages between two hosts, writes the report and returns it.
///
/// # Errors
/// A program is missing or fails, or a signal arrived. All programs that the benchmark started have been
/// stopped by then.
pub fn uplink(options: &Options, progress: &Progress) -> Result<Report> {
    interrupt::install()?;
    check(options)?;
    scope::sweep_and_log(progress)?;
    let folder = RunFolder::new()?;
    let machine = Machine::describe()?;
    let (samples, round_trips) = rounds(options, &folder, progress)?;
    let report = Report::new(machine, options.rounds, samples, round_trips);
    output::write(&report, &options.output)?;
    Ok(report)
}

fn check(options: &Options) -> Result<()> {
    requirements::root("makes network namespaces")?;
    let complaint = if options.rounds == 0 || options.rates.contains(&0) || options.rates.is_empty()
    {
        "nothing to measure: give at least one round and one rate"
    } else {
        return Ok(());
    };
    Err(Error::Host(complaint.to_owned()))
}

fn rounds(
    options: &Options,
    folder: &RunFolder,
    progress: &Progress,
) -> Result<(Vec<Sample>, Vec<RoundTrip>)> {
    let hosts = Hosts::start(&options.vicinity, folder.path())?;
    let (mut samples, mut round_trips) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        for &rate in &options.rates {
            interrupt::check()?;
            hosts.shape(rate)?;
            let [mut messages, mut in_process, mut datagrams, mut tcp] = [0.0; 4];
            for turn in 0..4 {
                match (round + turn) % 4 {
                    1 => messages = hosts.messages(LENGTH, Way::Daemons)?,
                    2 => in_process = hosts.messages(LENGTH, Way::InProcess)?,
                    3 => datagrams = hosts.messages(LENGTH, Way::Datagrams)?,
                    _ => tcp = hosts.tcp()?,
                }
            }
            let sample = Sample {
                round,
                rate,
                messages,
                in_process,
                datagrams,
                tcp,
            };
            progress.step(&format!("round {round} of {}: {sample}", options.rounds));
            samples.push(sample);
        }
        let [waiting_us, polling_us, in_process_us, datagrams_us, tcp_us] = hosts.round_trips()?;
        let trip = RoundTrip {
            round,
            waiting_us,
            polling_us,
            in_process_us,
            datagrams_us,
            tcp_us,
        };
        progress.step(&format!("round {round} of {}: {trip}", options.rounds));
        round_trips.push(trip);
    }
    Ok((samples, round_trips))
}
