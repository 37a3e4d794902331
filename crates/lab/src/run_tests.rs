//! Tests a run with failing cells and lost testbeds, on a measurer without VMs.

use std::collections::BTreeMap;

use super::*;
use crate::sample::Values;

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

/// Outcome of a measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellOutcome {
    /// The measurement fails; the VMs still run.
    Refused(&'static str),
    /// A VM ends during the measurement.
    Death,
    /// The VMs that are booted next do not start.
    NoBoot,
}

/// A measurer whose measurements have these outcomes, by their number from one.
#[derive(Default)]
struct ScriptedMeasurer {
    outcomes: BTreeMap<u32, CellOutcome>,
    always: Option<CellOutcome>,
    measured: u32,
    boots: u32,
    up: bool,
}

impl Measurer for ScriptedMeasurer {
    fn ready(&mut self, _sweep: &str, _manifest: &mut Manifest) -> Result<()> {
        if !self.up {
            self.boots += 1;
            if self.always == Some(CellOutcome::NoBoot) && self.boots > 1 {
                return Err(Error::Host("the guest was not up".into()));
            }
            self.up = true;
        }
        Ok(())
    }

    fn distance(&self) -> Option<f64> {
        None
    }

    fn measure(&mut self, _sweep: &str, _cell: &Cell) -> Result<Values> {
        self.measured += 1;
        let fate = self.outcomes.get(&self.measured).copied().or(self.always);
        match fate {
            None => Ok([("mbit_s".to_owned(), 1.0)].into()),
            Some(CellOutcome::Refused(why)) => Err(Error::Host(why.into())),
            Some(CellOutcome::Death | CellOutcome::NoBoot) => {
                self.up = false;
                Err(Error::Host("QEMU ended".into()))
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        !self.up
    }
}

fn manifest() -> Manifest {
    Manifest {
        machine: Machine::describe().unwrap(),
        experiments: vec!["X9".into()],
        only: CellFilter::new(),
        scale: Scale::Ci,
        seed: 1,
        budget_s: 600.0,
        accelerator: String::new(),
        channels: Vec::new(),
        control_groups: String::new(),
        switches: String::new(),
        guest_kernel: String::new(),
        image: String::new(),
        cpu_flags: String::new(),
        mitigations: Vec::new(),
    }
}

fn run(folder: &Path, stage: ScriptedMeasurer) -> Run<ScriptedMeasurer> {
    Run {
        output: folder.to_owned(),
        samples: samples(folder).unwrap(),
        book: SampleLog::open(folder).unwrap(),
        progress: Progress::start(),
        stage,
        manifest: manifest(),
        end: Instant::now(),
        losses: 0,
    }
}

/// The cells of `tcp` at the scale `ci`, in its three blocks.
const CELLS: usize = 18;

fn tcp() -> [&'static Sweep; 1] {
    [catalogue::sweep("tcp").unwrap()]
}

fn failures(run: &Run<ScriptedMeasurer>) -> Vec<String> {
    let failed = run.samples.iter();
    failed.filter_map(|sample| sample.failed.clone()).collect()
}

#[test]
fn a_cell_that_fails_is_marked_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let outcomes = [
        (2, CellOutcome::Refused("a server does not come up")),
        (5, CellOutcome::Refused("the kernel keeps another value")),
    ];
    let play = ScriptedMeasurer {
        outcomes: outcomes.into(),
        ..ScriptedMeasurer::default()
    };
    let mut run = run(folder.path(), play);
    run.measure(&tcp()).unwrap();
    assert_eq!(run.samples.len(), CELLS);
    let reasons = failures(&run);
    assert!(reasons[0].contains("server does not come up") && reasons.len() == 2);
    assert_eq!(run.stage.boots, 1);
    assert_eq!(samples(folder.path()).unwrap(), run.samples);
}

#[test]
fn a_vm_that_dies_costs_its_cell_and_is_booted_again() {
    let folder = tempfile::tempdir().unwrap();
    let play = ScriptedMeasurer {
        outcomes: [(3, CellOutcome::Death), (9, CellOutcome::Death)].into(),
        ..ScriptedMeasurer::default()
    };
    let mut run = run(folder.path(), play);
    run.measure(&tcp()).unwrap();
    assert_eq!((run.samples.len(), failures(&run).len()), (CELLS, 2));
    assert_eq!(run.stage.boots, 3);
}

#[test]
fn resume_measures_what_failed_and_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let play = ScriptedMeasurer {
        outcomes: [(2, CellOutcome::Refused("no")), (3, CellOutcome::Death)].into(),
        ..ScriptedMeasurer::default()
    };
    let mut first = run(folder.path(), play);
    first.measure(&tcp()).unwrap();
    drop(first);
    let mut second = run(folder.path(), ScriptedMeasurer::default());
    second.measure(&tcp()).unwrap();
    assert_eq!(second.stage.measured, 2);
    let good = second.samples.iter().filter(|one| one.failed.is_none());
    let good: BTreeSet<(u32, &Cell)> = good.map(|one| (one.block, &one.cell)).collect();
    assert_eq!(good.len(), CELLS);
    let mut third = run(folder.path(), ScriptedMeasurer::default());
    third.measure(&tcp()).unwrap();
    assert_eq!((third.stage.measured, third.stage.boots), (0, 0));
}

#[test]
fn vms_that_do_not_stay_up_end_a_sweep_and_then_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let play = ScriptedMeasurer {
        always: Some(CellOutcome::NoBoot),
        ..ScriptedMeasurer::default()
    };
    let mut run = run(folder.path(), play);
    let sweeps = [tcp()[0], catalogue::sweep("udp").unwrap()];
    let error = run.measure(&sweeps).unwrap_err().to_string();
    assert!(error.contains("the guest was not up"), "{error}");
    assert!(error.contains("vicinity lab resume"), "{error}");
    let of = |name: &str| {
        let samples = run.samples.iter();
        samples.filter(|sample| sample.sweep == name).count()
    };
    assert_eq!((of("tcp"), of("udp")), (4, 3));
}

#[test]
fn a_full_disk_does_not_end_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = run(folder.path(), ScriptedMeasurer::default());
    let disk = run.book.fill_disk();
    run.measure(&tcp()).unwrap();
    assert!(run.book.flush().unwrap_err().to_string().contains("disk"));
    assert!(samples(folder.path()).unwrap().is_empty());
    run.book.make_room(disk);
    run.book.flush().unwrap();
    assert_eq!(samples(folder.path()).unwrap().len(), CELLS);
}

#[test]
fn only_the_cells_that_are_wanted_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = run(folder.path(), ScriptedMeasurer::default());
    let ids = ["X9".to_owned()];
    run.manifest.only = wanted(&ids, &["size=64".to_owned()], Scale::Ci).unwrap();
    let noise = catalogue::sweep("noise").unwrap();
    run.measure(&[noise, tcp()[0]]).unwrap();
    // The A/A run has two arms in six blocks; the other sweep has two channels at one size in three blocks.
    assert_eq!(run.stage.measured, 12 + 6);
    let error = wanted(&ids, &["sise=64".to_owned()], Scale::Ci).unwrap_err();
    assert!(error.to_string().contains("nearest is size"), "{error}");
}
