//! `vicinity top`: what the host's CPUs do for each VM, in the guest and in its backend.
//!
//! `observe` reads and reckons; here the daemon's counters are added ([`Source`]) and it is
//! shown: as a screen ([`screen`]), a table ([`plain`]), JSON, or Prometheus' text format.

mod column;
mod draw;
mod matrix;
mod plain;
mod screen;
mod state;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use observe::reader::{Daemon, Reader};
use observe::reading::{Port, Reading, Sent};
use observe::report::Report;
use observe::{prometheus, rates};

use super::failure::Failure;
use super::output;
use crate::client;
use crate::status::{Kind, PortStatus};

/// What to show, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print one interval as a table, or with --json as an object, and end
    #[arg(long)]
    once: bool,
    /// Print each interval as a line of JSON
    #[arg(long)]
    json: bool,
    /// Print counters in Prometheus' text format and end; for node_exporter's textfile collector
    #[arg(long, conflicts_with_all = ["once", "json"])]
    prometheus: bool,
    /// Length of an interval
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600),
          value_name = "SECONDS")]
    interval: u64,
    /// Power of a busy CPU, for hosts that do not measure energy
    #[arg(long, default_value_t = rates::WATTS_PER_CPU, value_parser = watts,
          value_name = "WATTS")]
    watts_per_cpu: f64,
}

fn watts(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(watts) if (0.0..=10_000.0).contains(&watts) => Ok(watts),
        _ => Err("watts are a number from 0 to 10000".to_owned()),
    }
}

/// Show it until the user or SIGTERM ends it.
pub(crate) fn run(runtime_dir: &Path, options: &Options) -> Result<(), Failure> {
    lab::interrupt::install()?;
    let mut source = Source::new(runtime_dir, options);
    let interval = Duration::from_secs(options.interval);
    let ended = match options {
        Options {
            prometheus: true, ..
        } => totals(&mut source, interval),
        Options {
            once: true, json, ..
        } => once(&mut source, interval, *json),
        Options { json: true, .. } => stream(&mut source, interval),
        _ if std::io::stdout().is_terminal() => screen::run(&mut source, interval),
        _ => Err(Failure::Usage(
            "standard output is no terminal: use --once, --json or --prometheus".to_owned(),
        )),
    };
    match ended {
        // The ordinary way to end what goes on for ever.
        Err(Failure::Lab(lab::LabError::Interrupted)) if !options.once => Ok(()),
        ended => ended,
    }
}

/// Totals, and rates of the one thing of which the kernel keeps none: switches between VMs.
fn totals(source: &mut Source, interval: Duration) -> Result<(), Failure> {
    if source.read().switches.is_ok() {
        lab::interrupt::sleep(interval)?;
    }
    write(&prometheus::render(&source.read()))
}

fn once(source: &mut Source, interval: Duration, json: bool) -> Result<(), Failure> {
    source.next();
    lab::interrupt::sleep(interval)?;
    match source.next() {
        Some(report) if json => write(&output::as_json(&report)),
        Some(report) => write(&plain::table(&report)),
        None => Ok(()),
    }
}

fn stream(source: &mut Source, interval: Duration) -> Result<(), Failure> {
    source.next();
    loop {
        lab::interrupt::sleep(interval)?;
        if let Some(report) = source.next() {
            let mut line = serde_json::to_string(&report).unwrap_or_default();
            line.push('\n');
            write(&line)?;
        }
    }
}

/// Write to standard output. A reader that went away ends the program as a signal would.
fn write(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(lab::LabError::Interrupted.into())
        }
        ended => Ok(ended?),
    }
}

/// Readings, one after another, with the daemon's counters.
#[derive(Debug)]
struct Source {
    runtime_dir: PathBuf,
    reader: Reader,
    watts_per_cpu: f64,
    last: Option<Reading>,
}

impl Source {
    fn new(runtime_dir: &Path, options: &Options) -> Self {
        let mut reader = Reader::default();
        reader.record_switches();
        Self {
            runtime_dir: runtime_dir.to_owned(),
            reader,
            watts_per_cpu: options.watts_per_cpu,
            last: None,
        }
    }

    fn read(&mut self) -> Reading {
        let daemon = daemon(&self.runtime_dir);
        self.reader.read(daemon)
    }

    /// What happened since the last call; nothing the first time.
    fn next(&mut self) -> Option<Report> {
        let now = self.read();
        let last = self.last.replace(now);
        let meter = self.reader.meter();
        Some(rates::report(
            &last?,
            self.last.as_ref()?,
            meter,
            self.watts_per_cpu,
        ))
    }
}

/// The daemon and its VMs' counters. Without one, VMs are watched all the same.
fn daemon(runtime_dir: &Path) -> Option<Daemon> {
    let (pid, ports): (u32, Vec<PortStatus>) =
        client::ask(runtime_dir, client::Ask::get("/v1/ports")).ok()?;
    let sent = ports.iter().flat_map(sent).collect();
    let vms = ports.into_iter().filter(|port| port.kind == Kind::Vm);
    Some(Daemon {
        pid,
        ports: vms.map(reading).collect(),
        sent,
    })
}

fn reading(status: PortStatus) -> Port {
    Port {
        traffic: status.traffic(),
        network: status.network,
        vm: status.vm,
        socket: status.socket,
    }
}

fn sent(status: &PortStatus) -> impl Iterator<Item = Sent> + '_ {
    status.sent_to.iter().map(|to| Sent {
        network: status.network.clone(),
        from: status.vm.clone(),
        to: to.vm.clone(),
        frames: to.frames,
        bytes: to.bytes,
    })
}
