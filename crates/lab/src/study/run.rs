//! A run: sweeps in blocks, each sample written down as it comes.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::catalogue::{self, Experiment, Factor, Scale, Sweep};
use super::knob;
use super::manifest::{self, Manifest, load, samples, save};
use super::measure::{self, Pace};
use super::probe::{Ability, Probe};
use super::sample::{Cell, Sample};
use super::world::{self, Place, World};
use crate::error::{Context, Error, Result};
use crate::interrupt;
use crate::machine::Machine;
use crate::progress::Progress;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the parts are.
    pub place: Place,
    /// Folder of the results.
    pub output: PathBuf,
    /// Experiments; all when empty.
    pub ids: Vec<String>,
    /// How much.
    pub scale: Scale,
    /// Seed; drawn when none is given.
    pub seed: Option<u64>,
}

/// Blocks at least and at most, and seconds for all sweeps together.
const fn extent(scale: Scale) -> (u32, u32, f64) {
    match scale {
        Scale::Ci => (3, 3, 600.0),
        Scale::Default => (5, 10, 5400.0),
        Scale::Full => (10, 30, 36000.0),
    }
}

/// Blocks in which a broken world is mended before a sweep is given up.
const MENDS: u32 = 3;

/// Begin a run in `output`, which must not have one yet.
///
/// # Errors
/// As for [`resume`]; an unknown experiment.
pub fn begin(options: &Options, progress: &Progress) -> Result<Manifest> {
    let path = options.output.join("manifest.json");
    if path.exists() {
        return Err(Error::Host(format!(
            "{} has a run already: `vicinity lab resume` completes it, or name another --output",
            options.output.display()
        )));
    }
    let rows: Vec<&Experiment> = match options.ids.is_empty() {
        true => catalogue::all().collect(),
        false => options
            .ids
            .iter()
            .map(|id| catalogue::find(id))
            .collect::<Result<_>>()?,
    };
    let manifest = Manifest {
        machine: Machine::look()?,
        experiments: rows.iter().map(|row| row.id.to_owned()).collect(),
        scale: options.scale,
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48)),
        budget_s: extent(options.scale).2,
        accelerator: String::new(),
        channels: Vec::new(),
        guest_kernel: String::new(),
        image: String::new(),
        cpu_flags: manifest::line_of("/proc/cpuinfo", "flags"),
        mitigations: manifest::mitigations(),
    };
    fs::create_dir_all(&options.output).context(|| format!("make {}", options.output.display()))?;
    save(&options.output, &manifest)?;
    resume(&options.place, &options.output, progress)
}

/// Complete a run: measure what its samples lack.
///
/// # Errors
/// The VMs cannot be run at all, the results cannot be written, or [`Error::Interrupted`]. A cell
/// that fails is no error: it is written down with its reason.
pub fn resume(place: &Place, output: &Path, progress: &Progress) -> Result<Manifest> {
    for name in knob::restore_leftovers()? {
        progress.step(&format!(
            "undid the settings in {name}, left behind by a run that crashed"
        ));
    }
    let manifest = load(output)?;
    let samples = samples(output)?;
    let path = output.join("samples.ndjson");
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let mut run = Run {
        place: place.clone(),
        output: output.to_owned(),
        manifest,
        samples,
        file: file.context(|| format!("open {}", path.display()))?,
        progress: *progress,
        world: None,
        end: Instant::now(),
    };
    run.measure()?;
    Ok(run.manifest)
}

struct Run {
    place: Place,
    output: PathBuf,
    manifest: Manifest,
    samples: Vec<Sample>,
    file: File,
    progress: Progress,
    world: Option<World>,
    end: Instant,
}

impl Run {
    fn measure(&mut self) -> Result<()> {
        let mut left = sweeps(&self.manifest);
        self.end = Instant::now() + Duration::from_secs_f64(self.manifest.budget_s);
        let mut booted = false;
        while !left.is_empty() {
            let cells: usize = left
                .iter()
                .map(|sweep| cells(sweep, self.manifest.scale).len())
                .sum();
            let sweep = left.remove(0);
            if self.is_complete(sweep) {
                continue;
            }
            if !booted {
                self.world()?;
                booted = true;
                // Booting is not measuring.
                self.end = Instant::now() + Duration::from_secs_f64(self.manifest.budget_s);
            }
            let share = ratio(cells_of(sweep, self.manifest.scale), cells);
            let time = self
                .end
                .saturating_duration_since(Instant::now())
                .mul_f64(share);
            self.sweep(sweep, Instant::now() + time)?;
        }
        Ok(())
    }

    /// Every block that the scale asks for at least has every cell.
    fn is_complete(&self, sweep: &Sweep) -> bool {
        let (least, _, _) = extent(self.manifest.scale);
        (1..=least).all(|block| self.missing(sweep, block).is_empty())
    }

    /// The cells that a block lacks, in the order drawn for it.
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
        order
            .into_iter()
            .filter(|cell| !measured.contains(cell))
            .collect()
    }

    fn sweep(&mut self, sweep: &'static Sweep, until: Instant) -> Result<()> {
        let (least, most, _) = extent(self.manifest.scale);
        self.progress
            .step(&format!("{}: {}", sweep.name, sweep.title));
        let mut mended = 0;
        for block in 1..=most {
            if block > least && super::verdict::is_tight(sweep, &self.samples, self.manifest.scale)
            {
                break;
            }
            let missing = self.missing(sweep, block);
            let count = missing.len();
            for (place, cell) in missing.into_iter().enumerate() {
                // The first block is always completed: an experiment that was begun has figures.
                if block > 1 && Instant::now() > until {
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
                mended += u32::from(self.cell(sweep, block, cell)?);
                if mended > MENDS {
                    self.progress.step(&format!(
                        "{}: given up, the VMs died again and again",
                        sweep.name
                    ));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Measure a cell and write its sample. Returns whether the world had to be given up.
    fn cell(&mut self, sweep: &'static Sweep, block: u32, cell: Cell) -> Result<bool> {
        let pace = Pace::of(self.manifest.scale);
        let measured = self
            .world()
            .and_then(|world| measure::measure(world, sweep.name, &cell, pace));
        let (values, failed) = match measured {
            Ok(values) => (values, None),
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
            at: self.progress.seconds(),
        };
        let line =
            serde_json::to_string(&sample).context(|| "describe a sample".to_owned())? + "\n";
        self.file
            .write_all(line.as_bytes())
            .context(|| format!("write to {} (is the disk full?)", self.output.display()))?;
        self.samples.push(sample);
        let broken = self.world.as_ref().is_some_and(|world| !world.is_whole());
        if broken {
            self.world = None;
        }
        Ok(broken)
    }

    fn world(&mut self) -> Result<&mut World> {
        if self.world.is_none() {
            let count = Pace::of(self.manifest.scale).vms;
            let world = World::start(&self.place, count, &self.progress)?;
            self.manifest.accelerator = world.accel.title().to_owned();
            self.manifest.channels = world.channels();
            self.manifest.guest_kernel = world.image.manifest.kernel_release.clone();
            self.manifest.image = world::image_name(&world.image);
            save(&self.output, &self.manifest)?;
            self.world = Some(world);
        }
        interrupt::check()?;
        self.world
            .as_mut()
            .ok_or_else(|| Error::Host("the VMs are gone".to_owned()))
    }
}

/// The sweeps that a run's experiments need, the A/A run first.
fn sweeps(manifest: &Manifest) -> Vec<&'static Sweep> {
    let probe = Probe::look();
    let rows: Vec<&Experiment> = catalogue::all()
        .filter(|row| manifest.experiments.iter().any(|id| id == row.id))
        .collect();
    let runs = |row: &&&Experiment| !matches!(probe.judge(row), Ability::NotRunnable(_));
    let needed: BTreeSet<&str> = rows.iter().filter(runs).map(|row| row.sweep).collect();
    catalogue::SWEEPS
        .iter()
        .filter(|sweep| {
            needed.contains(sweep.name) || (sweep.name == "noise" && !needed.is_empty())
        })
        .collect()
}

/// Every cell of a sweep, in the order of its levels.
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

fn cells_of(sweep: &Sweep, scale: Scale) -> usize {
    cells(sweep, scale).len()
}

#[expect(clippy::cast_precision_loss, reason = "cells are few")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The cells of a block in random order: always the same for a seed, a sweep and a block.
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
mod tests {
    use super::*;

    #[test]
    fn a_block_has_every_cell_once_in_the_order_of_its_seed() {
        let sweep = catalogue::sweep("udp").unwrap();
        let all: BTreeSet<Cell> = cells(sweep, Scale::Ci).into_iter().collect();
        assert_eq!(all.len(), 12);
        let one = order(sweep, Scale::Ci, 7, 1);
        assert_eq!(one, order(sweep, Scale::Ci, 7, 1));
        assert_eq!(one.iter().cloned().collect::<BTreeSet<_>>(), all);
        assert_ne!(one, order(sweep, Scale::Ci, 7, 2));
        assert_ne!(one, order(sweep, Scale::Ci, 8, 1));
    }
}
