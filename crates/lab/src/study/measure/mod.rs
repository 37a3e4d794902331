//! How each sweep's cells are measured.

mod boundary;
mod contention;
pub(super) mod flow;
pub(super) mod profile;
mod start;
mod streams;
mod web;

use std::time::Duration;

use super::catalogue::Scale;
use super::sample::{Cell, Values};
use super::world::World;
use crate::error::{Error, Result};

/// How long a cell is measured.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Seconds that count.
    pub seconds: u32,
    /// Runs of an experiment that compares runs.
    pub runs: u32,
    /// MiB of the smallest disk that is created.
    pub disk: u64,
    /// VMs.
    pub vms: usize,
}

/// Seconds before those that count.
const WARM_UP: u32 = 1;

impl Pace {
    /// That of a scale.
    #[must_use]
    pub const fn of(scale: Scale) -> Self {
        match scale {
            Scale::Ci => Self {
                seconds: 1,
                runs: 3,
                disk: 64,
                vms: 4,
            },
            Scale::Default => Self {
                seconds: 2,
                runs: 5,
                disk: 256,
                vms: 4,
            },
            Scale::Full => Self {
                seconds: 20,
                runs: 10,
                disk: 1024,
                vms: 6,
            },
        }
    }

    /// Time before, and time of, the watch over threads. A command needs a moment to start.
    const fn watched(&self) -> (Duration, Duration) {
        let before = Duration::from_millis(WARM_UP as u64 * 1000 + 200);
        (before, Duration::from_secs(self.seconds as u64))
    }
}

/// Measure a cell of a sweep.
///
/// # Errors
/// Whatever goes wrong; the reason is for the report.
pub fn measure(world: &mut World, sweep: &str, cell: &Cell, pace: Pace) -> Result<Values> {
    match sweep {
        "noise" => streams::noise(world, pace),
        "mix" => streams::mix(world, cell, pace),
        "lookup" => streams::lookup(world, cell, pace),
        "udp" | "tcp" => streams::neighbours(world, sweep, cell, pace),
        "gather" => streams::gather(world, cell, pace),
        "tcp-runs" => streams::runs(world, cell, pace),
        "two-cpus" => contention::two_cpus(world, cell, pace),
        "profile" => profile::measure(world, cell, pace),
        "burner" => contention::burner(world, cell, pace),
        "caps" => contention::caps(world, cell, pace),
        "boundary" => boundary::measure(world, cell, pace),
        "idle-max" => web::idle_max(world, cell, pace),
        "idle-rate" => web::idle_rate(world, cell, pace),
        "neighbours" => web::neighbours(world, cell, pace),
        "count" => web::count(world, cell, pace),
        "weights" => web::weights(world, cell, pace),
        "start" => start::start(world, cell, pace),
        "create" => start::create(world, cell, pace),
        _ => Err(Error::Host(format!("nothing measures the sweep {sweep}"))),
    }
}

/// A list of metrics as a sample has them.
fn values(list: &[(&str, f64)]) -> Values {
    list.iter()
        .map(|(key, value)| ((*key).to_owned(), *value))
        .collect()
}
