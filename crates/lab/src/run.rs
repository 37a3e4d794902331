//! Runs sweeps in blocks, and writes each sample as soon as it is measured.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::catalogue::{self, Experiment, Factor, Scale, Sweep};
use super::cell_filter::{self, CellFilter};
use super::manifest::{self, Manifest, load, samples, save};
use super::measure::Pace;
use super::measurer::{Measurer, Vms};
use super::probe::{Ability, Probe};
use super::sample::{Cell, Sample, kept, rounded};
use super::sample_log::SampleLog;
use super::settings;
use super::testbed::Paths;
use super::thread_times;
use super::verdict::NOISE;
use vm_harness::error::{Context, Error, Result};
use vm_harness::machine::Machine;
use vm_harness::progress::Progress;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Paths of programs and folders.
    pub place: Paths,
    /// Folder of the results.
    pub output: PathBuf,
    /// Ids of experiments; if empty, the run has all of them.
    pub ids: Vec<String>,
    /// Selected levels of factors, `FACTOR=LEVEL,…`; all levels of factors that are not named.
    pub only: Vec<String>,
    /// The scale.
    pub scale: Scale,
    /// Minutes for all sweeps together; `None` for the scale's default.
    pub minutes: Option<u32>,
    /// Seed; `None` for a random one.
    pub seed: Option<u64>,
}

/// Seconds for all sweeps together.
const fn budget(scale: Scale) -> f64 {
    match scale {
        Scale::Ci => 780.0,
        Scale::Default => 5400.0,
        Scale::Full => 36000.0,
    }
}

/// Returns the minimum and maximum number of blocks of a sweep.
fn blocks(sweep: &Sweep, scale: Scale) -> (u32, u32) {
    let (least, most) = match scale {
        Scale::Ci => (3, 3),
        Scale::Default => (6, 20),
        Scale::Full => (10, 30),
    };
    (least * times(sweep), most * times(sweep))
}

/// Returns the number by which a sweep's number of blocks is multiplied. The A/A run has more blocks than other
/// sweeps, because every ratio is compared with it.
fn times(sweep: &Sweep) -> u32 {
    if sweep.name == NOISE { 2 } else { 1 }
}

/// How often the testbed may be lost in one sweep before the run abandons the sweep.
const LOSSES: u32 = 3;

/// How often the testbed may be lost without a measured cell in between before the run ends.
const MAX_CONSECUTIVE_LOSSES: u32 = 6;

/// Begins a run in `output`, which must not have one yet.
///
/// # Errors
/// As for [`resume`]; an unknown experiment, factor or level.
pub fn begin(options: &Options, progress: &Progress) -> Result<Manifest> {
    let path = options.output.join("manifest.json");
    if path.exists() {
        return Err(Error::Host(format!(
            "{} has a run already: `vicinity lab resume` completes it, or name another --output",
            options.output.display()
        )));
    }
    let manifest = Manifest {
        machine: Machine::describe()?,
        experiments: rows(&options.ids)?
            .iter()
            .map(|row| row.id.to_owned())
            .collect(),
        only: wanted(&options.ids, &options.only, options.scale)?,
        scale: options.scale,
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48)),
        budget_s: options
            .minutes
            .map_or(budget(options.scale), |minutes| f64::from(minutes) * 60.0),
        accelerator: String::new(),
        channels: Vec::new(),
        control_groups: Probe::of_this_host().versions,
        switches: thread_times::records_switches(),
        guest_kernel: String::new(),
        image: String::new(),
        cpu_flags: manifest::line_of("/proc/cpuinfo", "flags"),
        mitigations: manifest::mitigations(),
    };
    fs::create_dir_all(&options.output).context(|| format!("make {}", options.output.display()))?;
    save(&options.output, &manifest)?;
    resume(&options.place, &options.output, progress)
}

/// Returns the experiments of these ids; all experiments if there are no ids.
fn rows(ids: &[String]) -> Result<Vec<&'static Experiment>> {
    match ids.is_empty() {
        true => Ok(catalogue::all().collect()),
        false => ids.iter().map(|id| catalogue::find(id)).collect(),
    }
}

/// Checks the arguments of a run without running it, and returns the selected levels.
///
/// # Errors
/// An experiment, a factor or a level is unknown; the error names the nearest.
pub fn wanted(ids: &[String], only: &[String], scale: Scale) -> Result<CellFilter> {
    let rows = rows(ids)?;
    let sweeps: Vec<&Sweep> = catalogue::sweeps()
        .filter(|sweep| rows.iter().any(|row| row.sweep == sweep.name))
        .collect();
    cell_filter::read(only, &sweeps, scale)
}

/// Completes a run: measures the cells that its samples lack.
///
/// # Errors
/// The VMs cannot be run at all, the results cannot be written, or [`Error::Interrupted`]. A cell
/// that fails is no error: its sample holds the reason.
pub fn resume(place: &Paths, output: &Path, progress: &Progress) -> Result<Manifest> {
    for name in settings::restore_leftovers()? {
        progress.step(&format!(
            "undid the settings in {name}, left behind by a run that crashed"
        ));
    }
    let manifest = load(output)?;
    let pace = Pace::of(manifest.scale);
    let left = sweeps(&manifest, &Probe::of_this_host());
    let mut run = Run {
        output: output.to_owned(),
        samples: samples(output)?,
        book: SampleLog::open(output)?,
        progress: *progress,
        stage: Vms::new(place, pace, *progress),
        manifest,
        end: Instant::now(),
        losses: 0,
    };
    let measured = run.measure(&left);
    // Samples are written also if the run failed.
    run.book.flush()?;
    measured.map(|()| run.manifest)
}

struct Run<S> {
    output: PathBuf,
    manifest: Manifest,
    samples: Vec<Sample>,
    book: SampleLog,
    progress: Progress,
    stage: S,
    end: Instant,
    /// Losses of the testbed since the last measured cell.
    losses: u32,
}

impl<S: Measurer> Run<S> {
    fn measure(&mut self, sweeps: &[&'static Sweep]) -> Result<()> {
        let mut left: Vec<&Sweep> = sweeps.to_vec();
        left.retain(|sweep| !self.is_complete(sweep));
        let Some(first) = left.first() else {
            return Ok(());
        };
        self.ready(first)?;
        // The time budget starts now, so the time of the set-up does not count.
        self.end = Instant::now() + Duration::from_secs_f64(self.manifest.budget_s);
        while !left.is_empty() {
            let cost: f64 = left.iter().map(|sweep| self.cost_of(sweep)).sum();
            let sweep = left.remove(0);
            let share = self.cost_of(sweep) / cost;
            let time = self
                .end
                .saturating_duration_since(Instant::now())
                .mul_f64(share);
            self.sweep(sweep, Instant::now() + time)?;
        }
        Ok(())
    }

    /// Returns the relative time of a sweep's blocks, if all sweeps have the same number of blocks (the A/A run twice
    /// as many).
    #[expect(clippy::cast_precision_loss, reason = "cells are few")]
    fn cost_of(&self, sweep: &Sweep) -> f64 {
        let cells = self.wanted(cells(sweep, self.manifest.scale)).len();
        // At least one cell, so that the share of the time is never 0 / 0.
        cells.max(1) as f64 * sweep.cost * f64::from(times(sweep))
    }

    fn wanted(&self, mut cells: Vec<Cell>) -> Vec<Cell> {
        cells.retain(|cell| cell_filter::selects(&self.manifest.only, cell));
        cells
    }

    /// Whether the minimum number of blocks has every cell.
    fn is_complete(&self, sweep: &Sweep) -> bool {
        let (least, _) = blocks(sweep, self.manifest.scale);
        (1..=least).all(|block| self.missing(sweep, block).is_empty())
    }

    /// Returns the cells that are not measured in a block yet, in the order drawn for the block.
    fn missing(&self, sweep: &Sweep, block: u32) -> Vec<Cell> {
        let measured: BTreeSet<&Cell> = self
            .samples
            .iter()
            .filter(|sample| {
                sample.sweep == sweep.name && sample.block == block && sample.failed.is_none()
            })
            .map(|sample| &sample.cell)
            .collect();
        let order = order(sweep, self.manifest.scale, self.manifest.seed, block);
        let mut wanted = self.wanted(order);
        wanted.retain(|cell| !measured.contains(cell));
        wanted
    }

    fn sweep(&mut self, sweep: &'static Sweep, until: Instant) -> Result<()> {
        let (least, most) = blocks(sweep, self.manifest.scale);
        self.progress
            .step(&format!("{}: {}", sweep.name, sweep.title));
        let mut losses = 0;
        for block in 1..=most {
            if block > least && super::verdict::is_tight(sweep, &self.samples, self.manifest.scale)
            {
                break;
            }
            let missing = self.missing(sweep, block);
            let count = missing.len();
            for (place, cell) in missing.into_iter().enumerate() {
                // The run always completes the first block of a sweep, so that every experiment that it began has
                // figures. It also completes the minimum number of blocks of the A/A run, with which every ratio is
                // compared.
                let needed = block == 1 || (block <= least && sweep.name == NOISE);
                if !needed && Instant::now() > until {
                    self.progress.step(&format!(
                        "{}: its time is used up in block {block}",
                        sweep.name
                    ));
                    return Ok(());
                }
                let left = self.end.saturating_duration_since(Instant::now()).as_secs();
                self.progress.step(&format!(
                    "{} block {block} cell {} of {count}: {cell} (at most {left} s left)",
                    sweep.name,
                    place + 1
                ));
                losses += u32::from(self.cell(sweep, block, cell)?);
                if losses > LOSSES {
                    self.progress.step(&format!(
                        "{}: given up, the VMs were lost again and again",
                        sweep.name
                    ));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Measures a cell and writes its sample. Returns whether the testbed was lost.
    fn cell(&mut self, sweep: &'static Sweep, block: u32, cell: Cell) -> Result<bool> {
        let ready = self.ready(sweep);
        let line_ns = self.stage.distance().map(rounded);
        let measured = ready.and_then(|()| self.stage.measure(sweep.name, &cell));
        let (values, failed) = match measured {
            Ok(values) => (kept(values), None),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => (Default::default(), Some(error.to_string())),
        };
        if let Some(reason) = &failed {
            self.progress.step(&format!(
                "{}: {cell} failed: {}",
                sweep.name,
                reason.lines().next().unwrap_or_default()
            ));
        }
        let sample = Sample {
            sweep: sweep.name.to_owned(),
            block,
            cell,
            values,
            failed,
            line_ns,
            at: self.progress.seconds(),
        };
        if let Err(error) = self.book.add(&sample) {
            self.progress
                .step(&format!("{error}; samples wait in memory"));
        }
        let lost = self.stage.is_lost();
        self.losses = match lost {
            true => self.losses + 1,
            false => 0,
        };
        let why = sample.failed.clone().unwrap_or_default();
        self.samples.push(sample);
        if self.losses > MAX_CONSECUTIVE_LOSSES {
            return Err(Error::Host(format!(
                "the VMs do not stay up: {why}\n`vicinity lab resume` goes on from here"
            )));
        }
        Ok(lost)
    }

    /// Sets up the testbed for a sweep, if needed, and writes the manifest.
    fn ready(&mut self, sweep: &Sweep) -> Result<()> {
        let before = self.manifest.image.clone();
        self.stage.ready(sweep.name, &mut self.manifest)?;
        if self.manifest.image != before {
            // The run continues without the manifest, because the samples are worth more than the description of the
            // testbed.
            if let Err(error) = save(&self.output, &self.manifest) {
                self.progress.step(&error.to_string());
            }
        }
        Ok(())
    }
}

/// Returns the sweeps that a run's experiments need, the A/A run first.
fn sweeps(manifest: &Manifest, probe: &Probe) -> Vec<&'static Sweep> {
    let rows: Vec<&Experiment> = catalogue::all()
        .filter(|row| manifest.experiments.iter().any(|id| id == row.id))
        .collect();
    let runs = |row: &&&Experiment| !matches!(probe.judge(row), Ability::NotRunnable(_));
    let needed: BTreeSet<&str> = rows.iter().filter(runs).map(|row| row.sweep).collect();
    catalogue::sweeps()
        .filter(|sweep| needed.contains(sweep.name) || (sweep.name == NOISE && !needed.is_empty()))
        .collect()
}

/// Returns every cell of a sweep, in the order of its levels.
#[must_use]
pub fn cells(sweep: &Sweep, scale: Scale) -> Vec<Cell> {
    let extend = |cells: Vec<Cell>, factor: &Factor| -> Vec<Cell> {
        let with = |cell: &Cell, level: &str| {
            let mut cell = cell.clone();
            cell.0.insert(factor.name.to_owned(), level.to_owned());
            cell
        };
        cells
            .iter()
            .flat_map(|cell| {
                factor
                    .levels(scale)
                    .iter()
                    .map(|level| with(cell, level))
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    sweep.factors.iter().fold(vec![Cell::default()], extend)
}

/// Returns the cells of a block in random order, which is the same for the same seed, sweep and block.
fn order(sweep: &Sweep, scale: Scale, seed: u64, block: u32) -> Vec<Cell> {
    let name = sweep.name.bytes().fold(0_u64, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into())
    });
    let mut dice =
        fastrand::Rng::with_seed(seed ^ name.rotate_left(16) ^ u64::from(block).rotate_left(48));
    let mut cells = cells(sweep, scale);
    dice.shuffle(&mut cells);
    cells
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
