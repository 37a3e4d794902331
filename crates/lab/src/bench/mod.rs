//! `vicinity bench switch`: the data path measured natively, against OVS-DPDK.
//!
//! Theory of operation. DPDK's `dpdk-testpmd` plays both guests with two virtio-user ports
//! ([`testpmd`]). It sends 1,024 frames from each port and then sends back whatever it
//! receives, so frames go round through the switch as fast as generator and switch can. The
//! generator has CPU 0, the switch under test CPU 1. A round measures each frame length with
//! each switch ([`peer`]), one right after the other, each freshly started; the order changes
//! from round to round. Other jobs on the machine change the figures, but both of a pair alike:
//! therefore the ratio of a pair is what counts, and the median over the rounds is reported
//! ([`report`], [`table`]). Last comes the cost of an idle switch ([`idle`]).
//!
//! Everything that a run starts or takes has a guard that ends it or gives it back: programs
//! ([`process`]), hugepages ([`hugepages`]), the folder for sockets and files. Signals arrive
//! as errors, so the guards work then too. What stayed nevertheless is named in the report.

mod hugepages;
mod idle;
mod leftovers;
mod ovs;
mod parse;
mod peer;
mod process;
mod report;
mod table;
mod testpmd;
mod threads;
mod vicinity;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::host;
use crate::interrupt;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::scope::RunFolder;

pub use self::idle::Idle;
pub use self::peer::Peer;
pub use self::report::{Comparison, Figures, Report, Sample, Target};

use self::hugepages::Hugepages;
use self::peer::{Meter, Switch};
use self::testpmd::{Generator, Received};
use self::threads::Totals;
use self::vicinity::Vicinity;

/// Frame lengths that have a promise, and one between.
pub const SIZES: [u16; 3] = [64, 512, 1500];

/// Fewest rounds whose median means something.
pub const ROUNDS: u32 = 5;

/// Between the connection and the first frame, so that a switch that brings its ports up in the
/// background does not lose the frames that are to go round.
const SETTLE: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);
const IDLE_WINDOW: Duration = Duration::from_secs(10);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each measurement is repeated, see [`ROUNDS`].
    pub rounds: u32,
    /// Frame lengths in bytes, Ethernet header included, check sequence not; 64 to 1514.
    pub sizes: Vec<u16>,
    /// The `vicinity` binary to measure.
    pub program: PathBuf,
    /// Where the report is written as JSON; its folder is made.
    pub output: PathBuf,
}

/// Measures the switch against OVS-DPDK, writes the report and returns it. Tells its progress
/// on standard error. Takes about 12 s a round and frame length.
///
/// # Errors
/// A program is missing or fails, the machine is too small, or a signal came. Everything that
/// was started has been stopped by then.
pub fn switch(options: &Options) -> Result<Report> {
    interrupt::install()?;
    check(options)?;
    let pages_before = hugepages::total()?;
    let folder = RunFolder::new()?;
    let path = folder.path().to_owned();
    let report = measure(options, &path);
    drop(folder);
    let mut report = report?;
    report.leftovers = leftovers::find(&path, pages_before)?;
    write(&report, &options.output)?;
    Ok(report)
}

fn check(options: &Options) -> Result<()> {
    let complaint = if !rustix::process::geteuid().is_root() {
        "the benchmark reserves hugepages and pins threads: run it as root"
    } else if cfg!(debug_assertions) {
        "this is a debug build and its speed means nothing: build with `cargo build --release`"
    } else if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        "the benchmark needs a CPU for the generator and one for the switch: this host has one"
    } else if options.rounds == 0 || options.sizes.is_empty() {
        "nothing to measure: give at least one round and one frame length"
    } else if options.sizes.iter().any(|size| !(64..=1514).contains(size)) {
        "a frame length must be from 64 to 1514 bytes"
    } else if ![testpmd::PROGRAM, ovs::DAEMON]
        .iter()
        .all(|tool| Path::new(tool).exists())
    {
        "dpdk-testpmd or OVS-DPDK is not installed: run `scripts/setup bench` as root"
    } else {
        return Ok(());
    };
    Err(Error::Host(complaint.to_owned()))
}

fn measure(options: &Options, folder: &Path) -> Result<Report> {
    let machine = Machine::look()?;
    let progress = Progress::start();
    let _pages = Hugepages::reserve((testpmd::MEMORY + ovs::MEMORY) / 2)?;
    let samples = rounds(options, folder, progress)?;
    progress.step("idle: two ports and no traffic");
    let (idle, generator) = watch_idle(options, &folder.join("idle"))?;
    let comparisons = report::compare(&samples, &options.sizes);
    Ok(Report {
        machine,
        vicinity: env!("CARGO_PKG_VERSION").to_owned(),
        ovs_dpdk: ovs::version()?,
        generator,
        window_s: WINDOW.as_secs_f64(),
        targets: report::targets(&comparisons, &idle),
        samples,
        comparisons,
        idle,
        leftovers: Vec::new(),
    })
}

fn rounds(options: &Options, folder: &Path, progress: Progress) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        let mut peers = [Peer::Vicinity, Peer::OvsDpdk];
        if round % 2 == 0 {
            peers.reverse();
        }
        for &size in &options.sizes {
            for switch in peers {
                let folder = folder.join(format!("{round}-{size}-{switch}"));
                let plan = Plan {
                    round,
                    size,
                    switch,
                };
                let sample = sample(plan, &options.program, &folder)
                    .map_err(|error| explain(error, switch, &folder))?;
                progress.step(&format!(
                    "round {round} of {}: {size:>4} B, {switch:9} {:6.2} M frames/s, {:4.0} \
                     cycles a frame",
                    options.rounds,
                    sample.figures.frames_per_s / 1e6,
                    sample.figures.cycles_per_frame
                ));
                samples.push(sample);
            }
        }
    }
    Ok(samples)
}

/// One measurement to be made.
#[derive(Clone, Copy)]
struct Plan {
    round: u32,
    size: u16,
    switch: Peer,
}

fn sample(plan: Plan, program: &Path, folder: &Path) -> Result<Sample> {
    let Plan {
        round,
        size,
        switch,
    } = plan;
    make(folder)?;
    // Dropped in the opposite order: the generator goes first.
    let running = peer::start(switch, folder, program)?;
    let mut generator = Generator::start(folder, &running.sockets())?;
    interrupt::sleep(SETTLE)?;
    generator.send(size)?;
    interrupt::sleep(WARM_UP)?;

    let ids = [generator.id(), running.id()];
    let waited = || {
        ids.iter()
            .map(|&id| Ok(Totals::of(id)?.waited))
            .sum::<Result<Duration>>()
    };
    let (before, waited_before) = (running.meter()?, waited()?);
    let received = generator.receive(WINDOW)?;
    let (waited_after, after) = (waited()?, running.meter()?);

    let unsent = generator.stop()?;
    let figures = figures(&received, before, after)
        .filter(|_| (received.mean_bytes - f64::from(size)).abs() < 1e-6);
    let figures = figures.ok_or_else(|| {
        Error::Host(format!(
            "the measurement of {switch} at {size} B cannot be right: {received:?}, \
             {before:?}, {after:?}"
        ))
    })?;
    let waited = waited_after.saturating_sub(waited_before);
    Ok(Sample {
        round,
        size,
        switch,
        figures,
        unsent,
        disturbed: waited.as_secs_f64() / WINDOW.as_secs_f64(),
    })
}

/// Adds what the switch said last: the generator's failure is often the switch's fault.
fn explain(error: Error, switch: Peer, folder: &Path) -> Error {
    if matches!(error, Error::Interrupted) {
        return error;
    }
    let log = std::fs::read_to_string(folder.join(format!("{switch}.out")));
    let last = host::tail(&log.unwrap_or_default(), 15);
    Error::Host(format!("{error}\nlast lines of {switch}:\n{last}"))
}

/// What the readings say; `None` when nothing moved.
fn figures(received: &Received, before: Meter, after: Meter) -> Option<Figures> {
    let gained = |value: fn(Meter) -> u64| {
        let gained = value(after).checked_sub(value(before))?;
        (gained > 0).then_some(gained as f64)
    };
    let busy = gained(|meter| meter.busy)?;
    Some(Figures {
        frames_per_s: received.frames_per_s,
        cycles_per_frame: busy / gained(|meter| meter.frames)?,
        busy_share: busy / gained(|meter| meter.all)?,
    })
}

/// Watches our switch with a connected generator that sends nothing. Also tells the
/// generator's version.
fn watch_idle(options: &Options, folder: &Path) -> Result<(Idle, String)> {
    make(folder)?;
    let switch = Vicinity::start(folder, &options.program)?;
    let generator = Generator::start(folder, &switch.sockets())?;
    interrupt::sleep(WARM_UP)?;
    let idle = idle::watch(switch.id(), IDLE_WINDOW)?;
    Ok((idle, generator.version().to_owned()))
}

fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir(folder).context(|| format!("make {}", folder.display()))
}

fn write(report: &Report, output: &Path) -> Result<()> {
    let writing = || format!("write {}", output.display());
    if let Some(folder) = output.parent() {
        std::fs::create_dir_all(folder).context(writing)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::from);
    std::fs::write(output, text.context(writing)? + "\n").context(writing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_count_busy_rounds_only() {
        let received = Received {
            frames_per_s: 10.0,
            mean_bytes: 64.0,
        };
        let meter = |busy, all, frames| Meter { busy, all, frames };
        let found = figures(&received, meter(100, 1_000, 5), meter(1_100, 3_000, 15)).unwrap();
        assert!((found.cycles_per_frame - 100.0).abs() < 1e-9);
        assert!((found.busy_share - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_switch_that_moved_nothing_gives_no_figures() {
        let received = Received {
            frames_per_s: 0.0,
            mean_bytes: 0.0,
        };
        let meter = Meter {
            busy: 7,
            all: 9,
            frames: 3,
        };
        assert_eq!(figures(&received, meter, meter), None);
    }
}
