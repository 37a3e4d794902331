//! `vicinity bench operate`: measures the cost of changing, reading and capturing a switch under load.
//!
//! Theory of operation. The benchmark's own generator (`switch::generator`) drives 64 NICs in
//! pairs, while this thread acts as the operator and sends requests to the daemon's control socket (`client`). A
//! round adds, changes and removes a port a few times under load, beside a request that changes nothing, and
//! counts the frames that other ports lost during these requests; reads all metrics a hundred times and measures the
//! CPU time; compares the load with and without a capture of one port (`captures`); and reloads a configuration of
//! 1,000 ports in which every port has changed.

mod captures;
mod client;
mod load;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use vm_harness::error::{Context, Error, Result};
use vm_harness::interrupt;
use vm_harness::machine::Machine;
use vm_harness::progress::Progress;
use vm_harness::scope::{self, RunFolder};

use crate::output;
use crate::requirements;
use crate::switch::device_under_test::{Switch, SwitchKind, SwitchOptions};
use crate::switch::frames::SHORT;
use crate::switch::load_setup::LoadSetup;
use crate::switch::vicinity::Vicinity;
use crate::threads::Totals;
use captures::captures;
use client::request;
use load::{PORTS, RAMP_UP, flows};

pub use self::report::{Kind, Report, Sample};

/// Ports of the configuration that is reloaded.
const RELOADED_PORTS: u16 = 1000;

/// How often a round adds, changes and removes a port.
const CHANGES: usize = 10;

/// How often a round reads the metrics.
const SCRAPES: u32 = 100;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each measurement is repeated, see [`crate::ROUNDS`].
    pub rounds: u32,
    /// The `vicinity` program to measure.
    pub vicinity: PathBuf,
    /// File of the report as JSON; its folder is made.
    pub output: PathBuf,
}

/// Measures, writes the report and returns it.
///
/// # Errors
/// A program fails, the machine is too small, or a signal arrived. All programs that the benchmark started
/// have been stopped by then.
pub fn operate(options: &Options, progress: &Progress) -> Result<Report> {
    interrupt::install()?;
    check(options)?;
    scope::sweep_and_log(progress)?;
    let folder = RunFolder::new()?;
    let machine = Machine::describe()?;
    let samples = rounds(options, folder.path(), progress)?;
    let report = Report::new(machine, options.rounds, samples);
    output::write(&report, &options.output)?;
    Ok(report)
}

fn check(options: &Options) -> Result<()> {
    requirements::root("pins threads and raises priorities")?;
    requirements::two_cpus("a CPU for the generator and one for the switch")?;
    let complaint = if options.rounds == 0 {
        "nothing to measure: give at least one round"
    } else {
        return Ok(());
    };
    Err(Error::Host(complaint.to_owned()))
}

fn rounds(options: &Options, folder: &Path, progress: &Progress) -> Result<Vec<Sample>> {
    let shape = SwitchOptions {
        ports: PORTS,
        gso: false,
    };
    let peer = SwitchKind::Vicinity;
    let mut busy = LoadSetup::start(peer, shape, SHORT, &options.vicinity, folder, "busy")?;
    let busy_folder = folder.join("busy");
    let socket = busy_folder.join("control.sock");
    let many = folder.join("many");
    fs::create_dir(&many).context(|| format!("make {}", many.display()))?;
    let _many = Vicinity::start(&many, &options.vicinity, RELOADED_PORTS)?;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        interrupt::check()?;
        let mut found = changes(&mut busy, &socket)?;
        found.push((Kind::Scrape, scrapes(busy.running.as_ref(), &socket)?));
        found.extend(captures(&mut busy, &busy_folder, &options.vicinity)?);
        found.push((Kind::Reload, reload(&many)?));
        for (kind, value) in found {
            let sample = Sample { round, kind, value };
            progress.step(&format!("round {round} of {}: {sample}", options.rounds));
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// Adds, changes and removes a port under load.
fn changes(busy: &mut LoadSetup, socket: &Path) -> Result<Vec<(Kind, f64)>> {
    let extra = socket.with_file_name("extra.sock");
    let extra = format!("{{\"vm\": \"extra\", \"socket\": \"{}\"}}", extra.display());
    let path = "/v1/networks/default/ports";
    let port = format!("{path}/extra");
    let asks = [
        (Kind::Add, "POST", path, extra.as_str()),
        (Kind::Set, "PATCH", &port, "{\"role\": \"private\"}"),
        (Kind::Remove, "DELETE", &port, ""),
        (Kind::Ask, "GET", "/v1/openapi.json", ""),
    ];
    let operate = || {
        interrupt::sleep(RAMP_UP)?;
        let before = lost(socket)?;
        let mut found = Vec::new();
        for _ in 0..CHANGES {
            for (kind, method, path, body) in asks {
                let begin = Instant::now();
                request(socket, method, path, body)?;
                found.push((kind, milliseconds(begin.elapsed())));
            }
        }
        found.push((Kind::Lost, lost(socket)? - before));
        Ok(found)
    };
    busy.load_during(&flows(), operate)
}

/// Frames that all ports have dropped so far.
fn lost(socket: &Path) -> Result<f64> {
    let text = request(socket, "GET", "/v1/ports", "")?;
    let ports: Vec<Value> = serde_json::from_str(&text)
        .map_err(|_| Error::unreadable("the answer of the control API", &text))?;
    let drops = ports
        .iter()
        .filter_map(|port| port.pointer("/counters/drops")?.as_object());
    let counts = drops.flat_map(|drops| drops.values().filter_map(Value::as_f64));
    Ok(counts.sum())
}

/// Returns the milliseconds of CPU time that all processes of the daemon use for one read of all metrics.
fn scrapes(running: &dyn Switch, socket: &Path) -> Result<f64> {
    // The pause lets the switch process the load's last frames, so that their CPU time does not count.
    interrupt::sleep(RAMP_UP)?;
    let before = Totals::of(running.id())?;
    for _ in 0..SCRAPES {
        request(socket, "GET", "/metrics", "")?;
    }
    let spent = Totals::of(running.id())?.since(&before);
    Ok(milliseconds(spent.ran) / f64::from(SCRAPES))
}

/// Returns the milliseconds that the reload of a configuration takes in which every port has changed.
fn reload(folder: &Path) -> Result<f64> {
    let file = folder.join("vicinity.toml");
    let text = fs::read_to_string(&file).context(|| format!("read {}", file.display()))?;
    let (one, other) = (
        "mode = \"server\"\n",
        "mode = \"server\"\nrole = \"private\"\n",
    );
    let changed = match text.contains(other) {
        true => text.replace(other, one),
        false => text.replace(one, other),
    };
    fs::write(&file, changed).context(|| format!("write {}", file.display()))?;
    let begin = Instant::now();
    request(&folder.join("control.sock"), "POST", "/v1/reload", "")?;
    Ok(milliseconds(begin.elapsed()))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
