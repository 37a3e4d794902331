//! `vicinity bench switch`: the data path measured natively, against OVS-DPDK.
//!
//! Theory of operation. A run has parts ([`Part`]); each starts the switches it measures and
//! ends them. Generator and switch have a CPU each: 0 and 1.
//!
//! Frames as fast as they go (`frames`, `pairs`): DPDK's `dpdk-testpmd` plays the guests with
//! pairs of virtio-user ports (`testpmd`). It sends 448 frames from each port and then sends back
//! whatever it receives, so frames go round through the switch as fast as generator and switch
//! can. All switches (`peer`) run all the time, each with a generator of its own (`rig`), but
//! only one of them works; the others and their generators rest.
//!
//! Loads that testpmd cannot make (`latency`, `gso`, `residents`): a generator of our own (`load`)
//! drives NICs of our own (`driver`), at a given rate, with a stamp in each frame (`stage`).
//!
//! A round measures each thing with each switch, one right after the other; each goes first in
//! every other round. Other jobs on the machine change the figures, but those of a pair alike:
//! therefore the ratio of a pair is what counts, and the median over the rounds is reported
//! (`report`, `table`), beside what is promised (`targets`). Last, two real VMs that do nothing,
//! and 64 ports, show what an idle switch costs (`idle`).
//!
//! Everything that a run starts or takes has a guard that ends it or gives it back: programs
//! (`process`), hugepages (`hugepages`), the session's `priority`, the run's folder.
//! Signals arrive as errors, so the guards work then too. What stayed nevertheless is named in
//! the report (`leftovers`).

mod driver;
mod hugepages;
mod idle;
mod leftovers;
pub(crate) mod line;
mod load;
mod loads;
mod memory;
pub mod message;
mod needs;
pub mod operate;
mod ovs;
mod parse;
mod part;
mod patch;
mod peer;
mod priority;
mod process;
mod report;
mod residents;
mod rig;
pub mod space;
mod stage;
mod table;
mod targets;
mod testpmd;
mod threads;
pub mod uplink;
mod vicinity;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Context, Error, Result};
use crate::interrupt;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::scope::{self, RunFolder};

pub use self::idle::{Idle, IdlePorts};
pub use self::loads::{Cell, LoadFigures, LoadSample, LoadSummary};
pub use self::part::Part;
pub use self::peer::Peer;
pub use self::report::{Against, Comparison, Figures, Report, Sample};
pub use self::targets::Target;

use self::hugepages::Hugepages;
use self::priority::Priority;
use self::rig::Rig;

/// Frame lengths with one pair of ports.
pub const SIZES: [u16; 6] = [64, 128, 256, 512, 1024, 1500];

/// Frame lengths with more pairs, and how many.
const PAIRS_SIZES: [u16; 2] = [64, 1500];
const PAIRS: [u16; 2] = [2, 4];

/// Rounds, unless it is told. Five are the fewest whose median means something.
pub const ROUNDS: u32 = 5;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each measurement is repeated, see [`ROUNDS`].
    pub rounds: u32,
    /// Frame lengths in bytes, Ethernet header included, check sequence not; 64 to 1514.
    pub sizes: Vec<u16>,
    /// What is run; [`Part::ALL`] is everything.
    pub parts: Vec<Part>,
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
            parts: Part::ALL.to_vec(),
            vicinity: vicinity.to_owned(),
            cache: target.join("lab"),
            output: target.join("bench/switch.json"),
        }
    }
}

/// Measures the switch against OVS-DPDK and others, writes the report and returns it. All of it
/// takes about 80 s a round, and two minutes beside.
///
/// # Errors
/// A program is missing or fails, the machine is too small, or a signal came. Everything that
/// was started has been stopped by then.
pub fn switch(options: &Options, progress: &Progress) -> Result<Report> {
    interrupt::install()?;
    check(options)?;
    let pages_before = hugepages::total()?;
    scope::sweep_and_tell(progress)?;
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
    needs::root("reserves hugepages and pins threads")?;
    needs::two_cpus("a CPU for the generator and one for the switch")?;
    let complaint = if options.rounds == 0 || options.sizes.is_empty() || options.parts.is_empty() {
        "nothing to measure: give at least one round, one frame length and one part"
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
    let mut report = Report {
        machine: Machine::look()?,
        vicinity: env!("CARGO_PKG_VERSION").to_owned(),
        ovs_dpdk: ovs::version()?,
        rounds: options.rounds,
        window_s: rig::WINDOW.as_secs_f64(),
        samples: Vec::new(),
        comparisons: Vec::new(),
        load_samples: Vec::new(),
        loads: Vec::new(),
        idle: None,
        idle_ports: None,
        targets: Vec::new(),
        leftovers: Vec::new(),
    };
    let _first = Priority::raise();
    let _pages = Hugepages::reserve((3 * testpmd::MEMORY + ovs::MEMORY + patch::MEMORY) / 2)?;
    for &part in &options.parts {
        add(part, &mut report, options, folder, progress)?;
    }
    report.comparisons = report::compare(&report.samples);
    report.loads = loads::summaries(&report.load_samples);
    report.targets = targets::targets(&report);
    Ok(report)
}

/// Runs a part and adds what it found.
fn add(
    part: Part,
    report: &mut Report,
    options: &Options,
    folder: &Path,
    progress: &Progress,
) -> Result<()> {
    let program = &options.vicinity;
    let load_samples = &mut report.load_samples;
    match part {
        Part::Frames => {
            let samples = rounds(options, 1, &options.sizes, folder, progress)?;
            report.samples.extend(samples);
        }
        Part::Pairs => {
            for pairs in PAIRS {
                let samples = rounds(options, pairs, &PAIRS_SIZES, folder, progress)?;
                report.samples.extend(samples);
            }
        }
        Part::Latency => load_samples.extend(loads::latency(options, folder, progress)?),
        Part::Gso => load_samples.extend(loads::gso(options, folder, progress)?),
        Part::Residents => load_samples.extend(loads::residents(options, folder, progress)?),
        Part::Idle => {
            report.idle_ports = Some(idle::ports(program, folder, progress)?);
            let vms = idle::measure(program, &options.cache, folder, progress)?;
            report.idle = Some(vms);
        }
    }
    Ok(())
}

fn rounds(
    options: &Options,
    pairs: u16,
    sizes: &[u16],
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<Sample>> {
    progress.step(&format!(
        "{pairs} pairs: starting vicinity, OVS-DPDK and testpmd, each with a generator"
    ));
    let start = |switch| Rig::start(switch, pairs, &options.vicinity, folder);
    let mut rigs = [
        start(Peer::Vicinity)?,
        start(Peer::OvsDpdk)?,
        start(Peer::Testpmd)?,
    ];
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        for &size in sizes {
            let line_ns = line::round_trip(line::TRIES)?;
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

fn write(report: &impl Serialize, output: &Path) -> Result<()> {
    let writing = || format!("write {}", output.display());
    if let Some(folder) = output.parent() {
        std::fs::create_dir_all(folder).context(writing)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::from);
    std::fs::write(output, text.context(writing)? + "\n").context(writing)
}
