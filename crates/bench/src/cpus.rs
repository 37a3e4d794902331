//! The two CPUs that every benchmark uses, and their distance.

use vm_harness::cpu_distance;
use vm_harness::error::Result;

/// The CPU on which only the generator runs.
pub(crate) const GENERATOR_CPU: u32 = 0;

/// The CPU on which only the switch under test runs.
pub(crate) const SWITCH_CPU: u32 = 1;

/// Number of tries to measure the distance of the CPUs. The fastest counts, because the slower ones were interrupted.
const TRIES: u32 = 50;

/// Measures the nanoseconds that a cache line takes from the generator's CPU to the switch's and back.
pub(crate) fn distance_ns() -> Result<f64> {
    cpu_distance::round_trip([GENERATOR_CPU, SWITCH_CPU], TRIES)
}
