//! `vicinity bench switch`: the data path measured natively, against OVS-DPDK.
//!
//! Theory of operation. DPDK's `dpdk-testpmd` plays both guests with two virtio-user ports
//! (`testpmd`). It sends 448 frames from each port and then sends back whatever it receives, so
//! frames go round through the switch as fast as generator and switch can. The generator has
//! CPU 0, the switch under test CPU 1. Both switches (`peer`) run all the time, each with a
//! generator of its own (`rig`), but only one of them works; the other one and its generator
//! rest. A round measures each frame length with each switch, one right after the other; each
//! goes first in every other round. Other jobs on the machine change the figures, but both of
//! a pair alike: therefore the ratio of a pair is what counts, and the median over the rounds
//! is reported (`report`, `table`). Last, two real VMs that do nothing show what an idle switch
//! costs (`idle`).
//!
//! Everything that a run starts or takes has a guard that ends it or gives it back: programs
//! (`process`), hugepages (`hugepages`), the session's `priority`, the run's folder.
//! Signals arrive as errors, so the guards work then too. What stayed nevertheless is named in
//! the report (`leftovers`).

mod hugepages;
mod idle;
mod leftovers;
mod line;
mod ovs;
mod parse;
mod peer;
mod priority;
mod process;
mod report;
mod rig;
mod table;
mod testpmd;
mod threads;
mod vicinity;

use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::interrupt;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::scope::{self, RunFolder};

pub use self::idle::Idle;
pub use self::peer::Peer;
pub use self::report::{Comparison, Figures, Report, Sample, Target};

use self::hugepages::Hugepages;
use self::priority::Priority;
use self::rig::Rig;

/// Frame lengths that have a promise, and one between.
pub const SIZES: [u16; 3] = [64, 512, 1500];

/// Rounds, unless it is told. Five are the fewest whose median means something.
pub const ROUNDS: u32 = 15;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each measurement is repeated, see [`ROUNDS`].
    pub rounds: u32,
    /// Frame lengths in bytes, Ethernet header included, check sequence not; 64 to 1514.
    pub sizes: Vec<u16>,
    /// The `vicinity` program to measure.
    pub vicinity: PathBuf,
    /// Folder of the guest images, kept from run to run.
    pub cache: PathBuf,
    /// Where the report is written as JSON; its folder is made.
    pub output: PathBuf,
}

impl Options {
    /// The benchmark as users see it, below `target`.
    #[must_use]
    pub fn new(vicinity: &Path, target: &Path) -> Self {
        Self {
            rounds: ROUNDS,
            sizes: SIZES.to_vec(),
            vicinity: vicinity.to_owned(),
            cache: target.join("lab"),
            output: target.join("bench/switch.json"),
        }
    }
}

/// Measures the switch against OVS-DPDK, writes the report and returns it. Takes about 4 s a
/// round and frame length, and half a minute for the idle VMs.
///
/// # Errors
/// A program is missing or fails, the machine is too small, or a signal came. Everything that
/// was started has been stopped by then.
pub fn switch(options: &Options, progress: &Progress) -> Result<Report> {
    interrupt::install()?;
    check(options)?;
    let pages_before = hugepages::total()?;
    for name in scope::sweep()? {
        progress.step(&format!(
            "removed {name}, left behind by a run that crashed"
        ));
    }
    let folder = RunFolder::new()?;
    let path = folder.path().to_owned();
    let report = measure(options, &path, progress);
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
        "dpdk-testpmd or OVS-DPDK is not installed: run `scripts/setup demo bench` as root"
    } else {
        return Ok(());
    };
    Err(Error::Host(complaint.to_owned()))
}

fn measure(options: &Options, folder: &Path, progress: &Progress) -> Result<Report> {
    let machine = Machine::look()?;
    let _first = Priority::raise();
    let _pages = Hugepages::reserve((2 * testpmd::MEMORY + ovs::MEMORY) / 2)?;
    let samples = rounds(options, folder, progress)?;
    let idle = idle::measure(&options.vicinity, &options.cache, folder, progress)?;
    let comparisons = report::compare(&samples, &options.sizes);
    Ok(Report {
        machine,
        vicinity: env!("CARGO_PKG_VERSION").to_owned(),
        ovs_dpdk: ovs::version()?,
        window_s: rig::WINDOW.as_secs_f64(),
        targets: report::targets(&comparisons, &idle),
        samples,
        comparisons,
        idle,
        leftovers: Vec::new(),
    })
}

fn rounds(options: &Options, folder: &Path, progress: &Progress) -> Result<Vec<Sample>> {
    progress.step("starting vicinity and OVS-DPDK, each with a generator");
    let start = |switch| Rig::start(switch, &options.vicinity, folder);
    let mut rigs = [start(Peer::Vicinity)?, start(Peer::OvsDpdk)?];
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        for &size in &options.sizes {
            let line_ns = line::round_trip()?;
            let mut text = format!(
                "round {round} of {}, {size:4} B, CPUs {line_ns:.0} ns apart:",
                options.rounds
            );
            for rig in &mut rigs {
                let sample = rig.sample(round, size, line_ns)?;
                let frames = sample.figures.frames_per_s / 1e6;
                let cycles = sample.figures.cycles_per_frame;
                let switch = sample.switch;
                text += &format!("  {switch} {frames:.2} M frames/s, {cycles:.0} cycles a frame");
                samples.push(sample);
            }
            progress.step(&text);
        }
        // Each goes first in every other round.
        rigs.reverse();
    }
    Ok(samples)
}

fn write(report: &Report, output: &Path) -> Result<()> {
    let writing = || format!("write {}", output.display());
    if let Some(folder) = output.parent() {
        std::fs::create_dir_all(folder).context(writing)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::from);
    std::fs::write(output, text.context(writing)? + "\n").context(writing)
}
