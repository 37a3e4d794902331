//! `vicinity bench switch`: measures the data path natively, against OVS-DPDK.
//!
//! Theory of operation. A run has parts ([`Part`]); each starts the switches that it measures and
//! ends them. The generator has CPU 0 and the switch has CPU 1.
//!
//! ```text
//!     testpmd_setup: testpmd_generator ◀─ vhost-user ─▶ device under test: vicinity, ovs,
//!     load_setup:    generator, driver ◀─ vhost-user ─▶                    testpmd_forwarder
//!                          │                                  │
//!                          └── sample, load_sample ──▶ report ◀── idle
//!                                                        │
//!                                                        ▼
//!                                                  table, targets
//! ```
//!
//! Maximum rates (`frames`, `pairs`): DPDK's `dpdk-testpmd` acts as the guests with
//! pairs of virtio-user ports (`testpmd_generator`). It sends 448 frames from each port and then sends back
//! each frame that it receives, so frames circulate through the switch as fast as generator and switch
//! allow. All switches (`device_under_test`) run all the time, each with a generator of its own (`testpmd_setup`), but
//! only one of them works; the others and their generators are stopped.
//!
//! Loads that testpmd cannot generate (`latency`, `gso`, `fdb`): the benchmark's own `generator`
//! drives its own NICs (`driver`) at a given rate, with a stamp in each frame (`load_setup`).
//!
//! A round measures each load with each switch, one right after the other, and the order is reversed in
//! every other round. Other programs of the machine change the figures, but they change both figures of a pair by
//! about the same factor. Therefore the result is the median over the rounds of the ratio of a pair (`report`,
//! `table`), beside the `targets`. Last, the cost of an idle switch is measured with two idle VMs, and with 64 ports
//! (`idle`).
//!
//! Everything that a run starts or reserves has a guard that ends or frees it: programs
//! (`process`), hugepages (`hugepages`), the session's `priority`, the run's folder.
//! Signals arrive as errors, so the guards also run after a signal. The report names everything that is left
//! nevertheless (`leftovers`).

pub(crate) mod device_under_test;
mod driver;
#[cfg(test)]
mod example;
mod fdb;
pub(crate) mod frames;
pub(crate) mod generator;
mod idle;
mod load_sample;
pub(crate) mod load_setup;
mod loads;
mod options;
mod ovs;
mod part;
mod report;
mod sample;
mod start;
mod table;
mod targets;
mod testpmd_forwarder;
mod testpmd_generator;
mod testpmd_setup;
pub(crate) mod vicinity;

use std::path::Path;

use vm_harness::error::{Error, Result};
use vm_harness::hugepages::{self, Hugepages};
use vm_harness::interrupt;
use vm_harness::machine::Machine;
use vm_harness::progress::Progress;
use vm_harness::scope::{self, RunFolder};

pub use self::device_under_test::SwitchKind;
pub use self::idle::{Idle, IdlePorts};
pub use self::load_sample::{Cell, LoadFigures, LoadSample, LoadSummary};
pub use self::options::{Options, SIZES};
pub use self::part::Part;
pub use self::report::{Comparison, PeerComparison, Report};
pub use self::sample::{Figures, Sample};

use self::testpmd_setup::TestpmdSetup;
use crate::priority::Priority;
use crate::{cpus, leftovers, output, requirements};

/// Frame lengths with more pairs of ports, and numbers of pairs.
const PAIRS_SIZES: [u16; 2] = [64, 1500];
const PAIRS: [u16; 2] = [2, 4];

/// Measures the switch against OVS-DPDK and others, writes the report and returns it. All parts together take about 80
/// s a round, plus two minutes.
///
/// # Errors
/// A program is missing or fails, the machine is too small, or a signal arrived. All programs that
/// the benchmark started have been stopped by then.
pub fn switch(options: &Options, progress: &Progress) -> Result<Report> {
    interrupt::install()?;
    check(options)?;
    let pages_before = hugepages::total()?;
    scope::sweep_and_log(progress)?;
    let folder = RunFolder::new()?;
    let path = folder.path().to_owned();
    let report = measure(options, &path, progress);
    drop(folder);
    let mut report = report?;
    report.leftovers = leftovers::find(&path, pages_before)?;
    output::write(&report, &options.output)?;
    Ok(report)
}

fn check(options: &Options) -> Result<()> {
    requirements::root("reserves hugepages and pins threads")?;
    requirements::two_cpus("a CPU for the generator and one for the switch")?;
    let complaint = if options.rounds == 0 || options.sizes.is_empty() || options.parts.is_empty() {
        "nothing to measure: give at least one round, one frame length and one part"
    } else if options.sizes.iter().any(|size| !(64..=1514).contains(size)) {
        "a frame length must be from 64 to 1514 bytes"
    } else if ![testpmd_generator::PROGRAM, ovs::DAEMON]
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
        machine: Machine::describe()?,
        vicinity: env!("CARGO_PKG_VERSION").to_owned(),
        ovs_dpdk: ovs::version()?,
        rounds: options.rounds,
        window_s: testpmd_setup::WINDOW.as_secs_f64(),
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
    let _pages = Hugepages::reserve(
        (3 * testpmd_generator::MEMORY + ovs::MEMORY + testpmd_forwarder::MEMORY) / 2,
    )?;
    for &part in &options.parts {
        add(part, &mut report, options, folder, progress)?;
    }
    report.comparisons = report::compare(&report.samples);
    report.loads = load_sample::summaries(&report.load_samples);
    report.targets = targets::targets(&report);
    Ok(report)
}

/// Runs a part and adds its results to the report.
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
        Part::Fdb => load_samples.extend(loads::fdb_sizes(options, folder, progress)?),
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
    let start = |switch| TestpmdSetup::start(switch, pairs, &options.vicinity, folder);
    let mut setups = [
        start(SwitchKind::Vicinity)?,
        start(SwitchKind::OvsDpdk)?,
        start(SwitchKind::Testpmd)?,
    ];
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        for &size in sizes {
            let line_ns = cpus::distance_ns()?;
            let mut text = format!(
                "round {round} of {}, {size:4} B, CPUs {line_ns:.0} ns apart:",
                options.rounds
            );
            for setup in &mut setups {
                let sample = setup.sample(round, size, line_ns)?;
                let frames = sample.figures.frames_per_s / 1e6;
                let cycles = sample.figures.cycles_per_frame;
                let switch = sample.switch;
                text += &format!("  {switch} {frames:.2} M frames/s, {cycles:.0} cycles a frame");
                samples.push(sample);
            }
            progress.step(&text);
        }
        // The order is reversed in every other round.
        setups.reverse();
    }
    Ok(samples)
}
