//! Sets up a switch with the benchmark's own generator, and measures it repeatedly.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use front_end::frame;
use rustix::process::setpriority_process;

use vm_harness::error::{Context, Error, Result};
use vm_harness::interrupt;

use super::device_under_test::{Switch, SwitchKind, SwitchOptions, explain, wake};
use super::driver::Driver;
use super::frames::{Frames, HEADERS, mac};
use super::generator::{self, Flow, Observed, OfferedLoad, Until};
use super::start::start;
use crate::cpus::GENERATOR_CPU;
use crate::threads::Totals;
use vm_harness::affinity::pin;

/// Pause after the connection, for a switch that brings its ports up in the background.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// Time under load before the measurement.
const WARM_UP: Duration = Duration::from_millis(200);

/// Length of a measurement.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// Results of one run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The generator's results.
    pub(crate) seen: Observed,
    /// CPU time of all threads of the switch, as a share of one core.
    pub(crate) core_share: f64,
    /// Cycles of busy rounds, divided by the frames; `None` if the switch does not report them or no frame moved.
    pub(crate) cycles_per_frame: Option<f64>,
    /// Share of the time that its threads waited for a CPU.
    pub(crate) disturbed: f64,
}

/// A switch and the NICs that are connected to it. The NICs are dropped first.
pub(crate) struct LoadSetup {
    pub(crate) drivers: Vec<Driver>,
    pub(crate) running: Box<dyn Switch>,
    pub(crate) switch: SwitchKind,
    /// Frames that each NIC has received.
    pub(crate) received: Arc<[AtomicU64]>,
    folder: PathBuf,
    epoch: Instant,
}

impl LoadSetup {
    /// Starts the switch and the NICs, and stops the switch until the first run. `name` names its folder below `run`.
    pub(crate) fn start(
        switch: SwitchKind,
        shape: SwitchOptions,
        frames: Frames,
        vicinity: &Path,
        run: &Path,
        name: &str,
    ) -> Result<Self> {
        let folder = run.join(name);
        fs::create_dir(&folder).context(|| format!("make {}", folder.display()))?;
        let start_both = || {
            let running = start(switch, shape, &folder, vicinity)?;
            let sockets = running.sockets().connect()?;
            let payload = vec![0; frames.length.saturating_sub(HEADERS)];
            let drivers = (0..).zip(sockets).map(|(number, socket)| {
                let frame = frame::tcp([0; 6], mac(number), 0, &payload);
                Driver::start(socket, frames.kind(), frames.header(), &frame)
            });
            let drivers: Vec<_> = drivers.collect::<Result<_>>()?;
            interrupt::sleep(SETTLING_TIME)?;
            running.pause(true)?;
            Ok((running, drivers))
        };
        let (running, drivers) = start_both().map_err(|error| explain(error, switch, &folder))?;
        Ok(Self {
            received: drivers.iter().map(|_| AtomicU64::default()).collect(),
            drivers,
            running,
            switch,
            folder,
            epoch: Instant::now(),
        })
    }

    /// Measures one run: this offered load, for [`WINDOW`] after a warm-up.
    pub(crate) fn run(&mut self, flows: &[Flow], pace: OfferedLoad) -> Result<Run> {
        let run = self.measure(flows, pace);
        run.map_err(|error| explain(error, self.switch, &self.folder))
    }

    /// Saturates the switch while `work` runs in a thread with raised priority, and returns the result of `work`.
    pub(crate) fn load_during<T: Send>(
        &mut self,
        flows: &[Flow],
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let done = AtomicBool::new(false);
        let work = || {
            let found = raise_priority().and_then(|()| work());
            done.store(true, Ordering::Relaxed);
            found
        };
        std::thread::scope(|scope| {
            let work = scope.spawn(work);
            let load = self.generate(flows, OfferedLoad::Saturate, Until::Stopped(&done));
            let failed = |_| Error::Host("the work under load failed".to_owned());
            let found = work.join().map_err(failed)?;
            load.and(found)
        })
    }

    fn measure(&mut self, flows: &[Flow], pace: OfferedLoad) -> Result<Run> {
        self.running.pause(false)?;
        self.generate(flows, pace, Until::After(WARM_UP))?;
        let (meter, totals) = (self.running.counters()?, Totals::of(self.running.id())?);
        let begin = Instant::now();
        let seen = self.generate(flows, pace, Until::After(WINDOW))?;
        let seconds = begin.elapsed().as_secs_f64();
        let spent = Totals::of(self.running.id())?.since(&totals);
        let cycles = self.running.counters()?.since(meter);
        self.running.pause(true)?;
        if seen.received == 0 {
            return Err(Error::Host(format!(
                "no frame came through {}: {} were sent",
                self.switch, seen.sent
            )));
        }
        Ok(Run {
            seen,
            core_share: spent.ran.as_secs_f64() / seconds,
            cycles_per_frame: cycles.map(|(cycles, _)| cycles),
            disturbed: spent.waited.as_secs_f64() / seconds,
        })
    }

    /// Runs the generator on its CPU with raised priority.
    fn generate(
        &mut self,
        flows: &[Flow],
        pace: OfferedLoad,
        until: Until<'_>,
    ) -> Result<Observed> {
        let (drivers, epoch) = (&mut self.drivers, self.epoch);
        let received = &self.received;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                pin(GENERATOR_CPU)?;
                raise_priority()?;
                generator::run(drivers, flows, pace, until, epoch, received)
            });
            let failed = |_| Error::Host("the generator failed".to_owned());
            thread.join().map_err(failed)?
        })
    }
}

/// Raises the priority of the calling thread only, so that it does not wait for other programs on its CPU.
fn raise_priority() -> Result<()> {
    setpriority_process(None, -20).context(|| "raise a priority".to_owned())
}

impl Drop for LoadSetup {
    fn drop(&mut self) {
        wake(self.running.as_ref());
    }
}
