//! Measures the cells of each sweep.

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
use super::testbed::Testbed;
use vm_harness::error::{Error, Result};

pub use pace::Pace;

/// Measures a cell of a sweep.
///
/// # Errors
/// The measurement failed; the report shows the reason.
pub fn measure(testbed: &mut Testbed, sweep: &str, cell: &Cell, pace: Pace) -> Result<Values> {
    match sweep {
        "noise" => streams::noise(testbed, pace),
        "mix" => streams::mix(testbed, cell, pace),
        "lookup" => streams::lookup(testbed, cell, pace),
        "udp" | "tcp" => streams::neighbours(testbed, sweep, cell, pace),
        "gather" => streams::gather(testbed, cell, pace),
        "tcp-runs" => streams::runs(testbed, cell, pace),
        "two-cpus" => contention::two_cpus(testbed, cell, pace),
        "profile" => profile::measure(testbed, cell, pace),
        "burner" => contention::burner(testbed, cell, pace),
        "caps" => contention::caps(testbed, cell, pace),
        "direct" => direct::stream(testbed, cell, pace),
        "direct-requests" => direct::requests(testbed, cell, pace),
        catalogue::INSTRUCTIONS => direct::instructions(testbed, cell, pace),
        "boundary" | "direct-boundary" => boundary::measure(testbed, cell, pace),
        "idle-max" => web::idle_max(testbed, cell, pace),
        "idle-rate" => web::idle_rate(testbed, cell, pace),
        "neighbours" => web::neighbours(testbed, cell, pace),
        "count" => web::count(testbed, cell, pace),
        "weights" => web::weights(testbed, cell, pace),
        "start" => start::start(testbed, cell, pace),
        "create" => start::create(testbed, cell, pace),
        "space" => space::hybrid(testbed, cell, pace),
        "space-memory" => space_memory::measure(testbed, cell, pace),
        _ => Err(Error::Host(format!("nothing measures the sweep {sweep}"))),
    }
}
