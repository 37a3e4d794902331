//! How each sweep's cells are measured.

mod boundary;
mod contention;
mod dip;
mod direct;
mod flow;
mod pace;
mod profile;
mod space;
mod space_memory;
mod start;
mod streams;
mod web;

use super::catalogue;
use super::sample::{Cell, Values};
use super::world::World;
use vm_harness::error::{Error, Result};

pub use pace::Pace;

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
        "direct" => direct::stream(world, cell, pace),
        "direct-requests" => direct::requests(world, cell, pace),
        catalogue::INSTRUCTIONS => direct::instructions(world, cell, pace),
        "boundary" | "direct-boundary" => boundary::measure(world, cell, pace),
        "idle-max" => web::idle_max(world, cell, pace),
        "idle-rate" => web::idle_rate(world, cell, pace),
        "neighbours" => web::neighbours(world, cell, pace),
        "count" => web::count(world, cell, pace),
        "weights" => web::weights(world, cell, pace),
        "start" => start::start(world, cell, pace),
        "create" => start::create(world, cell, pace),
        "space" => space::hybrid(world, cell, pace),
        "space-memory" => space_memory::measure(world, cell, pace),
        _ => Err(Error::Host(format!("nothing measures the sweep {sweep}"))),
    }
}
