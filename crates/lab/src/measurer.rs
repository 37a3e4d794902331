//! The interface between a run and the testbed. The logic of a run (order, failures, abandoned sweeps) does not
//! depend on VMs, so that it is tested without any.

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

/// Number of tries to measure the distance of the CPUs. The fastest counts. The number is small because it takes long
/// until both threads run at the same time while other programs use the CPUs.
const LINE_TRIES: u32 = 8;

/// Measures cells.
pub(super) trait Measurer {
    /// Sets up the testbed for a sweep, if needed, and describes it in the manifest.
    ///
    /// # Errors
    /// The testbed cannot be set up now.
    fn ready(&mut self, sweep: &str, manifest: &mut Manifest) -> Result<()>;

    /// Measures the nanoseconds that a cache line takes from CPU 0 to CPU 1 and back.
    fn distance(&self) -> Option<f64>;

    /// Measures a cell of a sweep. The settings for the cell are undone in every case.
    ///
    /// # Errors
    /// The measurement failed; the report shows the reason.
    fn measure(&mut self, sweep: &str, cell: &Cell) -> Result<Values>;

    /// Whether the testbed is not usable, or does not exist. An unusable testbed is removed by this call, and the next
    /// [`Measurer::ready`] sets up a new one.
    fn is_lost(&mut self) -> bool;
}

/// VMs, channels and the second host.
#[derive(Debug)]
pub(super) struct Vms {
    place: Paths,
    pace: Pace,
    progress: Progress,
    testbed: Option<Testbed>,
    /// Whether the VMs are booted for the sweep that counts instructions.
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
        match testbed.unresponsive_vm() {
            Some(name) if !matches!(error, Error::Interrupted) => {
                let gone = format!("{name} is gone: {error}");
                self.testbed = None;
                Err(Error::Host(gone))
            }
            _ => Err(error),
        }
    }

    fn is_lost(&mut self) -> bool {
        let whole = self.testbed.as_ref().is_some_and(Testbed::all_vms_run);
        if !whole {
            self.testbed = None;
        }
        !whole
    }
}
