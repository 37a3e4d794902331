//! The two CPUs that every benchmark uses, and their distance.

use vm_harness::cpu_distance;
use vm_harness::error::Result;

/// The CPU that the generator has to itself.
pub(crate) const GENERATOR_CPU: u32 = 0;

/// The CPU that the switch under test has to itself.
pub(crate) const SWITCH_CPU: u32 = 1;

/// Tries to measure their distance, of which the fastest counts: the others were interrupted.
const TRIES: u32 = 50;

/// Nanoseconds of a cache line from the generator's CPU to the switch's and back, now.
pub(crate) fn distance_ns() -> Result<f64> {
    cpu_distance::round_trip([GENERATOR_CPU, SWITCH_CPU], TRIES)
}
