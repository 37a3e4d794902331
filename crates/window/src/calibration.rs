//! Thresholds of waiting, which follow from the speed of this machine.
//!
//! How long a waiter polls before it sleeps, and how long a yield takes that no other thread used,
//! depend on the cost of a system call. That cost is 0.1 us on a fast host, 1 us in a VM with
//! mitigations against speculation, and 10 us and more where QEMU emulates the processor. So each
//! process measures two costs once, when it first needs a threshold, in less than 2 ms.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

/// What was measured: durations of operations that nothing interrupted, and of some that were
/// interrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Yields of the processor.
    pub yields: Vec<Duration>,
    /// Doorbells: a write of an eventfd and the read that consumes it, without a context switch.
    pub doorbells: Vec<Duration>,
}

/// The thresholds of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// More than a yield takes that no other thread used, and less than two context switches.
    pub switch_time: Duration,
    /// How long a waiter polls before it yields to a program that may be on its way to it.
    pub yield_after: Duration,
    /// How long a waiter polls before it sleeps: about the cost of sleeping and waking up.
    pub spin: Duration,
    /// The same if a wake-up passes a gateway on each side.
    pub remote_spin: Duration,
    /// A waiter that polled nothing for this long lost its processor.
    pub lost_cpu: Duration,
}

/// Samples of each operation.
const SAMPLES: usize = 200;

/// The longest time that the samples of one operation take.
const LIMIT: Duration = Duration::from_micros(800);

/// An unused yield takes at most so many times as long as a doorbell, which is two system calls.
const DOORBELLS_PER_YIELD: u32 = 2;

/// A yield that took so many times as long as an unused one let another thread run.
const YIELDS_PER_SWITCH: u32 = 3;

/// A sleep and a wake-up cost so many doorbells: the wake-up also takes two context switches, an
/// interrupt of another processor, and the time in which that leaves its idle state.
const DOORBELLS_PER_WAKEUP: u32 = 32;

/// A remote wake-up takes so many wake-ups. It passes two gateways and the broker, and each of
/// them has to be scheduled.
const WAKEUPS_PER_REMOTE_WAKEUP: u32 = 25;

/// A gap of so many wake-ups is no slow poll.
const WAKEUPS_PER_GAP: u32 = 50;

impl Samples {
    /// Measures this machine.
    #[must_use]
    pub fn take() -> Self {
        // A data plane measures before its sandbox forbids any of these calls.
        let yields = measure(thread::yield_now);
        let doorbells = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(event) => measure(|| {
                let _rung = rustix::io::write(&event, &1u64.to_ne_bytes());
                let _taken = rustix::io::read(&event, &mut [0; 8]);
            }),
            // No descriptor is left: the least thresholds apply.
            Err(_) => Vec::new(),
        };
        Self { yields, doorbells }
    }
}

fn measure(mut operation: impl FnMut()) -> Vec<Duration> {
    let (start, mut times) = (Instant::now(), Vec::with_capacity(SAMPLES));
    let mut before = start;
    while times.len() < SAMPLES && before - start < LIMIT {
        operation();
        let after = Instant::now();
        times.push(after - before);
        before = after;
    }
    times
}

/// Returns the duration of an operation that nothing interrupted: the 10th percentile.
fn tenth_percentile(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 10).copied().unwrap_or_default()
}

impl Thresholds {
    /// Returns the thresholds of a machine with these samples.
    ///
    /// The bounds: a machine that seems fast gets at least what the plane used on a fast host, and a
    /// machine that seems slow because it was disturbed polls for no longer than under emulation.
    #[must_use]
    pub fn of(samples: &Samples) -> Self {
        let us = Duration::from_micros;
        let doorbell = tenth_percentile(&samples.doorbells);
        // If other threads ran in each yield, no sample shows an unused one.
        let free_yield = tenth_percentile(&samples.yields).min(doorbell * DOORBELLS_PER_YIELD);
        let switch_time = (free_yield * YIELDS_PER_SWITCH).clamp(us(1), us(50));
        let spin = (doorbell * DOORBELLS_PER_WAKEUP).clamp(us(20), us(100));
        Self {
            switch_time,
            yield_after: switch_time * 2,
            spin,
            remote_spin: (spin * WAKEUPS_PER_REMOTE_WAKEUP).clamp(us(500), us(1000)),
            lost_cpu: (spin * WAKEUPS_PER_GAP).clamp(us(1000), us(5000)),
        }
    }

    /// Returns the thresholds of this process; the first call measures.
    #[must_use]
    pub fn of_this_process() -> &'static Self {
        static THRESHOLDS: OnceLock<Thresholds> = OnceLock::new();
        THRESHOLDS.get_or_init(|| Self::of(&Samples::take()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns samples: the durations in nanoseconds, each as often as given.
    fn samples(yields: &[(u64, usize)], doorbells: &[(u64, usize)]) -> Samples {
        let times = |runs: &[(u64, usize)]| {
            let times = runs.iter();
            times
                .flat_map(|(ns, count)| vec![Duration::from_nanos(*ns); *count])
                .collect()
        };
        Samples {
            yields: times(yields),
            doorbells: times(doorbells),
        }
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn on_a_fast_host_the_thresholds_are_the_least() {
        let native = samples(
            &[(280, 120), (310, 78), (9_000, 2)],
            &[(420, 150), (530, 50)],
        );
        let least = Thresholds {
            switch_time: us(1),
            yield_after: us(2),
            spin: us(20),
            remote_spin: us(500),
            lost_cpu: us(1000),
        };
        assert_eq!(Thresholds::of(&native), least);
        // Nothing could be measured.
        assert_eq!(Thresholds::of(&Samples::default()), least);
    }

    /// A yield takes 0.9 us, so with exits of the virtual CPU it often takes more than 1 us.
    #[test]
    fn in_a_vm_an_unused_yield_does_not_count_as_a_switch() {
        let kvm = samples(
            &[(880, 60), (1_150, 130), (6_000, 10)],
            &[(1_300, 190), (7_500, 10)],
        );
        let thresholds = Thresholds::of(&kvm);
        assert_eq!(thresholds.switch_time, Duration::from_nanos(2_640));
        assert!(kvm.yields[180] < thresholds.switch_time);
        assert!(
            kvm.yields[195] >= thresholds.switch_time,
            "another thread ran"
        );
        assert_eq!(thresholds.spin, Duration::from_nanos(41_600));
        assert_eq!(thresholds.remote_spin, us(1000));
    }

    #[test]
    fn under_emulation_the_thresholds_grow_to_their_bounds() {
        let tcg = samples(&[(9_000, 60), (14_000, 20)], &[(22_000, 36)]);
        let thresholds = Thresholds::of(&tcg);
        assert_eq!(thresholds.switch_time, us(27));
        assert_eq!(thresholds.spin, us(100));
        assert_eq!(thresholds.remote_spin, us(1000));
        assert_eq!(thresholds.lost_cpu, us(5000));
    }

    /// Each yield lets another thread run, for 3 ms, so there are few samples.
    #[test]
    fn a_busy_processor_does_not_hide_switches() {
        let busy = samples(&[(3_000_000, 1)], &[(420, 200)]);
        let thresholds = Thresholds::of(&busy);
        assert_eq!(thresholds.switch_time, Duration::from_nanos(2_520));
    }

    /// The CPU time of this thread, which other programs do not change.
    fn processor_time() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(
            time.tv_sec.try_into().unwrap(),
            time.tv_nsec.try_into().unwrap(),
        )
    }

    #[test]
    fn measuring_takes_less_than_2_ms() {
        let start = processor_time();
        let samples = Samples::take();
        let took = processor_time() - start;
        println!("{took:?}: {:?}", Thresholds::of(&samples));
        assert!(took < Duration::from_millis(2), "{took:?}");
        assert!(!samples.doorbells.is_empty());
    }
}
