//! What cells are measured on. The run's own logic (order, failures, what is given up) does not
//! know VMs, so that it is tested without any.

use super::catalogue;
use super::manifest::Manifest;
use super::measure::{self, Pace};
use super::sample::{Cell, Values};
use super::testbed::{self, Paths, Testbed};
use vm_harness::cpu_distance;
use vm_harness::error::{Error, Result};
use vm_harness::interrupt;
use vm_harness::machine;
use vm_harness::progress::Progress;

/// Tries to measure how far apart the CPUs are, of which the fastest counts. Few: where others want
/// the CPUs too, it takes long until both ends run at once.
const LINE_TRIES: u32 = 8;

/// Somewhere to measure.
pub(super) trait Measurer {
    /// Sets it up for a sweep, if it is not, and note in the manifest what it is.
    ///
    /// # Errors
    /// It cannot be set up now.
    fn ready(&mut self, sweep: &str, manifest: &mut Manifest) -> Result<()>;

    /// Nanoseconds of a cache line from one of the CPUs to the other and back, now.
    fn distance(&self) -> Option<f64>;

    /// Measures a cell of a sweep. Settings made for it are undone, whatever happens.
    ///
    /// # Errors
    /// Whatever went wrong: the reason is for the report.
    fn measure(&mut self, sweep: &str, cell: &Cell) -> Result<Values>;

    /// Whether it is not usable any more, or never was. It is then taken down, and set up anew
    /// by the next [`Measurer::ready`].
    fn is_lost(&mut self) -> bool;
}

/// VMs, channels and the second host.
#[derive(Debug)]
pub(super) struct Vms {
    place: Paths,
    pace: Pace,
    progress: Progress,
    testbed: Option<Testbed>,
    /// Whether its VMs are booted for the sweep that counts instructions.
    instructions: bool,
}

impl Vms {
    pub(super) fn new(place: &Paths, pace: Pace, progress: Progress) -> Self {
        Self {
            place: place.clone(),
            pace,
            progress,
            testbed: None,
            instructions: false,
        }
    }
}

impl Measurer for Vms {
    fn ready(&mut self, sweep: &str, manifest: &mut Manifest) -> Result<()> {
        let instructions = sweep == catalogue::INSTRUCTIONS;
        if self.instructions != instructions {
            self.testbed = None;
            self.instructions = instructions;
        }
        if self.testbed.is_none() {
            let (place, count) = (&self.place, self.pace.vms);
            let testbed = Testbed::start(place, count, instructions, &self.progress)?;
            manifest.accelerator = testbed.accel.title().to_owned();
            manifest.channels = testbed.channels();
            manifest.guest_kernel = testbed.image.manifest.kernel_release.clone();
            manifest.image = testbed::image_name(&testbed.image);
            self.testbed = Some(testbed);
        }
        interrupt::check()
    }

    fn distance(&self) -> Option<f64> {
        let measured =
            (machine::cpus() > 1).then(|| cpu_distance::round_trip([0, 1], LINE_TRIES))?;
        measured.ok()
    }

    fn measure(&mut self, sweep: &str, cell: &Cell) -> Result<Values> {
        let testbed = self.testbed.as_mut();
        let testbed = testbed.ok_or_else(|| Error::Host("no VMs were booted".into()))?;
        let measured = measure::measure(testbed, sweep, cell, self.pace);
        let Err(error) = measured else {
            return measured;
        };
        match testbed.silent() {
            Some(name) if !matches!(error, Error::Interrupted) => {
                let gone = format!("{name} is gone: {error}");
                self.testbed = None;
                Err(Error::Host(gone))
            }
            _ => Err(error),
        }
    }

    fn is_lost(&mut self) -> bool {
        let whole = self.testbed.as_ref().is_some_and(Testbed::is_whole);
        if !whole {
            self.testbed = None;
        }
        !whole
    }
}
