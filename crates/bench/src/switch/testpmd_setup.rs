//! Sets up a switch with a generator, and measures it repeatedly.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vm_harness::error::{Context, Error, Result};
use vm_harness::interrupt;

use super::device_under_test::{CycleCounters, Switch, SwitchKind, SwitchOptions, explain, wake};
use super::sample::{Figures, Sample};
use super::start::start;
use super::testpmd_generator::{Received, TestpmdGenerator};
use crate::threads::Totals;

/// Pause between the connection and the first frame, so that a switch that brings its ports up in the
/// background does not lose the frames that circulate.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// Time under load before the first reading.
const WARM_UP: Duration = Duration::from_millis(300);

/// Time between the two readings. It is short, so that the switches are measured at nearly the same time.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// Pause for the frames under way to arrive, before the switch is stopped.
const DRAIN: Duration = Duration::from_millis(50);

/// A switch and the generator that is connected to it. The generator is dropped first.
pub(super) struct TestpmdSetup {
    generator: TestpmdGenerator,
    running: Box<dyn Switch>,
    switch: SwitchKind,
    pairs: u16,
    folder: PathBuf,
}

impl TestpmdSetup {
    /// Starts both with `pairs` pairs of ports, and stops the switch until the first sample. `vicinity` is the
    /// program under test, `run` the folder of the whole run.
    pub(super) fn start(
        switch: SwitchKind,
        pairs: u16,
        vicinity: &Path,
        run: &Path,
    ) -> Result<Self> {
        let folder = run.join(format!("{switch}-{pairs}"));
        let shape = SwitchOptions {
            ports: 2 * pairs,
            gso: false,
        };
        fs::create_dir(&folder).context(|| format!("make {}", folder.display()))?;
        let start_both = || {
            let running = start(switch, shape, &folder, vicinity)?;
            let generator = TestpmdGenerator::start(&folder, &running.sockets())?;
            interrupt::sleep(SETTLING_TIME)?;
            running.pause(true)?;
            Ok((running, generator))
        };
        let (running, generator) = start_both().map_err(|error| explain(error, switch, &folder))?;
        Ok(Self {
            generator,
            running,
            switch,
            pairs,
            folder,
        })
    }

    /// Takes one measurement; `line_ns` becomes [`Sample::line_ns`].
    pub(super) fn sample(&mut self, round: u32, size: u16, line_ns: f64) -> Result<Sample> {
        let sample = self.measure(round, size, line_ns);
        sample.map_err(|error| explain(error, self.switch, &self.folder))
    }

    fn measure(&mut self, round: u32, size: u16, line_ns: f64) -> Result<Sample> {
        self.running.pause(false)?;
        self.generator.send(size)?;
        interrupt::sleep(WARM_UP)?;
        let (before, waited_before) = (self.running.counters()?, self.waited()?);
        let received = self.generator.receive(WINDOW)?;
        let (waited_after, after) = (self.waited()?, self.running.counters()?);
        let unsent = self.generator.stop()?;
        interrupt::sleep(DRAIN)?;
        self.running.pause(true)?;

        let figures = figures(&received, before, after)
            .filter(|_| (received.mean_bytes / f64::from(size) - 1.0).abs() < 0.01);
        let figures = figures.ok_or_else(|| {
            Error::Host(format!(
                "the measurement at {size} B cannot be right: {received:?}, {before:?}, {after:?}"
            ))
        })?;
        let waited = waited_after.saturating_sub(waited_before);
        Ok(Sample {
            round,
            pairs: self.pairs,
            size,
            switch: self.switch,
            figures,
            line_ns,
            unsent,
            disturbed: waited.as_secs_f64() / WINDOW.as_secs_f64(),
        })
    }

    /// Returns the time that threads of both have waited for a CPU.
    fn waited(&self) -> Result<Duration> {
        let ids = [self.generator.id(), self.running.id()];
        ids.iter().map(|&id| Ok(Totals::of(id)?.waited)).sum()
    }
}

impl Drop for TestpmdSetup {
    fn drop(&mut self) {
        wake(self.running.as_ref());
    }
}

/// Figures from the readings; `None` if no frame moved.
fn figures(received: &Received, before: CycleCounters, after: CycleCounters) -> Option<Figures> {
    let (cycles_per_frame, busy_share) = after.since(before)?;
    Some(Figures {
        frames_per_s: received.frames_per_s,
        cycles_per_frame,
        busy_share,
    })
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
        let meter = |busy, all, frames| CycleCounters { busy, all, frames };
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
        let meter = CycleCounters {
            busy: 7,
            all: 9,
            frames: 3,
        };
        assert_eq!(figures(&received, meter, meter), None);
    }
}
