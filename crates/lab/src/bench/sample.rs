//! One measurement: start a switch and a generator, let frames go round, read, stop both.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::host;
use crate::interrupt;

use super::peer::{self, Meter, Peer};
use super::report::{Figures, Sample};
use super::testpmd::{Generator, Received};
use super::threads::Totals;

/// Between the connection and the first frame, so that a switch that brings its ports up in the
/// background does not lose the frames that are to go round.
const SETTLE: Duration = Duration::from_millis(500);

/// Before the first reading.
const WARM_UP: Duration = Duration::from_secs(1);

/// Between the two readings.
pub(super) const WINDOW: Duration = Duration::from_secs(2);

/// One measurement to be made.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) round: u32,
    pub(super) size: u16,
    pub(super) switch: Peer,
}

/// Measures; `program` is the `vicinity` binary, `run` the folder of the whole run.
pub(super) fn sample(plan: Plan, program: &Path, run: &Path) -> Result<Sample> {
    let Plan {
        round,
        size,
        switch,
    } = plan;
    let folder = run.join(format!("{round}-{size}-{switch}"));
    fs::create_dir(&folder).context(|| format!("make {}", folder.display()))?;
    measure(plan, program, &folder).map_err(|error| explain(error, switch, &folder))
}

fn measure(plan: Plan, program: &Path, folder: &Path) -> Result<Sample> {
    let Plan {
        round,
        size,
        switch,
    } = plan;
    // Dropped in the opposite order: the generator goes first.
    let running = peer::start(switch, folder, program)?;
    let mut generator = Generator::start(folder, &running.sockets())?;
    interrupt::sleep(SETTLE)?;
    generator.send(size)?;
    interrupt::sleep(WARM_UP)?;

    let ids = [generator.id(), running.id()];
    let waited = || {
        ids.iter()
            .map(|&id| Ok(Totals::of(id)?.waited))
            .sum::<Result<Duration>>()
    };
    let (before, waited_before) = (running.meter()?, waited()?);
    let received = generator.receive(WINDOW)?;
    let (waited_after, after) = (waited()?, running.meter()?);

    let unsent = generator.stop()?;
    let figures = figures(&received, before, after)
        .filter(|_| (received.mean_bytes / f64::from(size) - 1.0).abs() < 0.01);
    let figures = figures.ok_or_else(|| {
        Error::Host(format!(
            "the measurement of {switch} at {size} B cannot be right: {received:?}, \
             {before:?}, {after:?}"
        ))
    })?;
    let waited = waited_after.saturating_sub(waited_before);
    Ok(Sample {
        round,
        size,
        switch,
        figures,
        unsent,
        disturbed: waited.as_secs_f64() / WINDOW.as_secs_f64(),
    })
}

/// Adds what the switch said last: the generator's failure is often the switch's fault.
fn explain(error: Error, switch: Peer, folder: &Path) -> Error {
    if matches!(error, Error::Interrupted) {
        return error;
    }
    let log = fs::read_to_string(folder.join(format!("{switch}.out")));
    let last = host::tail(&log.unwrap_or_default(), 15);
    Error::Host(format!("{error}\nlast lines of {switch}:\n{last}"))
}

/// What the readings say; `None` when nothing moved.
fn figures(received: &Received, before: Meter, after: Meter) -> Option<Figures> {
    let gained = |value: fn(Meter) -> u64| {
        let gained = value(after).checked_sub(value(before))?;
        (gained > 0).then_some(gained as f64)
    };
    let busy = gained(|meter| meter.busy)?;
    Some(Figures {
        frames_per_s: received.frames_per_s,
        cycles_per_frame: busy / gained(|meter| meter.frames)?,
        busy_share: busy / gained(|meter| meter.all)?,
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
        let meter = |busy, all, frames| Meter { busy, all, frames };
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
        let meter = Meter {
            busy: 7,
            all: 9,
            frames: 3,
        };
        assert_eq!(figures(&received, meter, meter), None);
    }
}
