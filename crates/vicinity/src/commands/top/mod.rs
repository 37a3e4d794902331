//! `vicinity top`: shows what the host's CPUs do for each VM, in the guest and in its backend.
//!
//! The crate `observe` reads the kernel's figures and computes rates. This module adds the daemon's
//! counters ([`Source`]) and shows the result: as a screen ([`screen`]), a table ([`plain`]), JSON,
//! or in Prometheus' text format.

mod column;
mod draw;
mod matrix;
mod plain;
mod screen;
mod source;
mod state;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use observe::{prometheus, rates};

use self::source::Source;
use super::failure::Failure;
use super::output;

/// What to show, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print one interval as a table, or as an object with --json, and end
    #[arg(long)]
    once: bool,
    /// Print each interval as a line of JSON
    #[arg(long)]
    json: bool,
    /// Print counters in Prometheus' text format and end; for node_exporter's textfile collector
    #[arg(long, conflicts_with_all = ["once", "json"])]
    prometheus: bool,
    /// Length of an interval in seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600),
          value_name = "SECONDS")]
    interval: u64,
    /// Power of a busy CPU in watts, for hosts that do not measure energy
    #[arg(long, default_value_t = rates::WATTS_PER_CPU, value_parser = watts,
          value_name = "WATTS")]
    watts_per_cpu: f64,
}

fn watts(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(watts) if (0.0..=10_000.0).contains(&watts) => Ok(watts),
        _ => Err("write a number of watts from 0 to 10000".to_owned()),
    }
}

/// Shows the figures until the user or SIGTERM ends the command.
pub(crate) fn run(runtime_dir: &Path, options: &Options) -> Result<(), Failure> {
    vm_harness::interrupt::install()?;
    let mut source = Source::new(runtime_dir, options.watts_per_cpu);
    let interval = Duration::from_secs(options.interval);
    let ended = match options {
        Options {
            prometheus: true, ..
        } => totals(&mut source, interval),
        Options {
            once: true, json, ..
        } => print_once(&mut source, interval, *json),
        Options { json: true, .. } => stream(&mut source, interval),
        _ if std::io::stdout().is_terminal() => screen::run(&mut source, interval),
        _ => Err(Failure::Usage(
            "standard output is not a terminal; use --once, --json or --prometheus".to_owned(),
        )),
    };
    match ended {
        // A signal is the ordinary way to end a command without a time limit.
        Err(Failure::Harness(vm_harness::error::HarnessError::Interrupted)) if !options.once => {
            Ok(())
        }
        ended => ended,
    }
}

/// Prints totals. The kernel keeps no totals of switches between VMs, so prints rates for those.
fn totals(source: &mut Source, interval: Duration) -> Result<(), Failure> {
    if source.read().switches.is_ok() {
        vm_harness::interrupt::sleep(interval)?;
    }
    write(&prometheus::render(&source.read()))
}

fn print_once(source: &mut Source, interval: Duration, json: bool) -> Result<(), Failure> {
    source.next();
    vm_harness::interrupt::sleep(interval)?;
    match source.next() {
        Some(report) if json => write(&output::as_json(&report)),
        Some(report) => write(&plain::table(&report)),
        None => Ok(()),
    }
}

fn stream(source: &mut Source, interval: Duration) -> Result<(), Failure> {
    source.next();
    loop {
        vm_harness::interrupt::sleep(interval)?;
        if let Some(report) = source.next() {
            let mut line = serde_json::to_string(&report).unwrap_or_default();
            line.push('\n');
            write(&line)?;
        }
    }
}

/// Writes to standard output. If the reader has closed its end of the pipe, the program ends as
/// after a signal.
fn write(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(vm_harness::error::HarnessError::Interrupted.into())
        }
        ended => Ok(ended?),
    }
}
