//! Measures the distance of two CPUs: the time that a cache line takes from one to the other and back. The CPUs of a
//! virtual machine move between the cores of its host, and every measured figure of a switch changes with their
//! distance.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::affinity::{on_cpu, pin};
use crate::error::Result;

/// Round trips in a try. A try is short, so that most tries are not interrupted.
const TRIPS: u32 = 200;

/// A counter that shares its cache lines with no other data.
#[repr(align(128))]
struct Line(AtomicU32);

/// Returns the nanoseconds that a cache line takes from the first CPU to the second and back. The fastest of `tries`
/// counts, because the slower ones were interrupted.
///
/// # Errors
/// The kernel refuses to pin the threads to these CPUs.
pub fn round_trip([first, second]: [u32; 2], tries: u32) -> Result<f64> {
    let line = Line(AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&line.0, second, tries));
        fastest_round_trip(&line.0, first, tries)
    })
}

/// Stores odd numbers, waits for the even number after each, and returns the nanoseconds of the fastest round trip.
fn fastest_round_trip(line: &AtomicU32, cpu: u32, tries: u32) -> Result<f64> {
    on_cpu(cpu, || {
        let mut best = f64::INFINITY;
        for try_number in 0..tries {
            let start = Instant::now();
            for trip in 0..TRIPS {
                let at = 2 * (try_number * TRIPS + trip);
                line.store(at + 1, Ordering::Release);
                wait_for(line, at + 2);
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(TRIPS));
        }
        best
    })
}

/// Waits for odd numbers, and stores the even number after each.
fn echo(line: &AtomicU32, cpu: u32, tries: u32) {
    // If pinning fails here, it also fails in `fastest_round_trip`, which returns the error.
    let _reported_by_ask = pin(cpu);
    for trip in 0..tries * TRIPS {
        wait_for(line, 2 * trip + 1);
        line.store(2 * trip + 2, Ordering::Release);
    }
}

fn wait_for(line: &AtomicU32, value: u32) {
    while line.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trip_takes_time_and_this_thread_is_free_again() {
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let time = round_trip([0, 1], 50).unwrap();
        assert!(time > 0.0 && time.is_finite());
        assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
    }
}
