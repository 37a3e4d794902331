//! `vicinity top`: shows what the host's CPUs do for each VM, in the guest and in its backend.
//!
//! The crate `observe` reads the kernel's figures and computes rates, and [`crate::live`] adds the daemon's state and the
//! problems. This module shows the result, of this host or of a recording ([`Source`]): as a screen ([`screen`]), a table
//! ([`plain`]), JSON, or in Prometheus' text format.

mod column;
mod draw;
mod matrix;
mod overlay;
mod plain;
mod record;
mod screen;
pub(crate) mod source;
mod state;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use observe::{prometheus, rates};

use self::record::Recorder;
use self::source::Source;
use super::failure::Failure;
use super::output;
use crate::live::RecordingError;

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
    /// Also write each interval into this file, as a line of JSON, for --replay, the page and bug reports
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prometheus", "replay"])]
    record: Option<PathBuf>,
    /// Show the intervals of this file instead of this host; with --once the last one
    #[arg(long, value_name = "FILE", conflicts_with = "prometheus")]
    replay: Option<PathBuf>,
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
    let mut source = match &options.replay {
        Some(file) => Source::replay(file)?,
        None => Source::of_host(runtime_dir, options.watts_per_cpu),
    };
    let mut recorder = Recorder::new(options.record.as_deref())?;
    let interval = Duration::from_secs(options.interval);
    let ended = match options {
        Options {
            prometheus: true, ..
        } => totals(&mut source, interval),
        Options {
            once: true, json, ..
        } => print_once(&mut source, &mut recorder, interval, *json),
        Options { json: true, .. } => stream(&mut source, &mut recorder, interval),
        _ if std::io::stdout().is_terminal() => screen::run(&mut source, &mut recorder, interval),
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
    let Source::Host(host) = source else {
        return Err(Failure::Usage("a recording has no totals".to_owned()));
    };
    if host.read().switches.is_ok() {
        vm_harness::interrupt::sleep(interval)?;
    }
    write(&prometheus::render(&host.read()))
}

fn print_once(
    source: &mut Source,
    recorder: &mut Recorder,
    interval: Duration,
    json: bool,
) -> Result<(), Failure> {
    source.begin();
    let live = match source {
        Source::Host(_) => {
            vm_harness::interrupt::sleep(interval)?;
            source.next()?
        }
        Source::Replay(recording) => {
            let mut last = None;
            while let Some(live) = recording.next()? {
                last = Some(live);
            }
            Some(last.ok_or(RecordingError::Empty)?)
        }
    };
    let Some(live) = live else {
        return Ok(());
    };
    recorder.add(&live)?;
    match json {
        true => write(&output::as_json(&live.report)),
        false => write(&plain::live(&live)),
    }
}

fn stream(source: &mut Source, recorder: &mut Recorder, interval: Duration) -> Result<(), Failure> {
    source.begin();
    loop {
        let live = match source {
            Source::Host(_) => {
                vm_harness::interrupt::sleep(interval)?;
                source.next()?
            }
            Source::Replay(recording) => match recording.next()? {
                None => return Ok(()),
                live => live,
            },
        };
        if let Some(live) = live {
            recorder.add(&live)?;
            let mut line = serde_json::to_string(&live.report).unwrap_or_default();
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
