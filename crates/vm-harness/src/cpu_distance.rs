//! How far apart the two CPUs are: one cache line there and back. A virtual machine's CPUs move
//! between the host's cores, and every figure of a switch moves with them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::{Context, Result};

use super::peer::{GENERATOR_CPU, SWITCH_CPU};

/// Trips in a try; short, so that most tries are not interrupted.
const TRIPS: u32 = 200;

/// Tries, of which the fastest counts: the others were interrupted.
pub(crate) const TRIES: u32 = 50;

/// A counter alone in its cache lines.
#[repr(align(128))]
struct Line(AtomicU32);

/// Nanoseconds for one line to the other CPU and back.
pub(crate) fn round_trip(tries: u32) -> Result<f64> {
    let line = Line(AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&line.0, tries));
        ask(&line.0, tries)
    })
}

/// Counts from even to odd, on the generator's CPU.
fn ask(line: &AtomicU32, tries: u32) -> Result<f64> {
    on_cpu(GENERATOR_CPU, || {
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

/// Counts from odd to even, on the switch's CPU.
fn echo(line: &AtomicU32, tries: u32) {
    // Where pinning fails, it fails for the asker too, who tells.
    let _told_by_the_asker = pin(SWITCH_CPU);
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

/// Does `work` with this thread on one CPU, then lets it run where it could before. The work is done also
/// where that fails: another thread may wait for it.
pub(super) fn on_cpu<T>(cpu: u32, work: impl FnOnce() -> T) -> Result<T> {
    let before = rustix::thread::sched_getaffinity(None);
    let before = before.context(|| "read this thread's CPUs".to_owned())?;
    let pinned = pin(cpu);
    let done = work();
    sched_setaffinity(None, &before).context(|| "set this thread's CPUs".to_owned())?;
    pinned.map(|()| done)
}

/// Keeps this thread on one CPU.
pub(super) fn pin(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).context(|| format!("run on CPU {cpu}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trip_takes_time_and_this_thread_is_free_again() {
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let time = round_trip(TRIES).unwrap();
        assert!(time > 0.0 && time.is_finite());
        assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
    }
}
