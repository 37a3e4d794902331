//! Scheduler time of a set of threads over an interval.

use std::ops::AddAssign;
use std::time::Duration;

use crate::counters::Totals;
use crate::report::Activity;

/// The work of a set of threads. The fields are not integers, because VMs can share a thread's work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// The number of threads, or of parts of them.
    pub threads: f64,
    /// Seconds on a CPU.
    pub run: f64,
    /// Seconds in which the threads were runnable, but not running.
    pub wait: f64,
    /// How often the kernel put the threads on a CPU.
    pub executions: f64,
    /// How often the threads left a CPU.
    pub switches: f64,
}

impl Work {
    /// Returns the work of one thread in an interval. The kernel counts a wait when it ends and a run
    /// at the next tick, so a small part of an interval's figures belongs to the previous interval. The
    /// function limits the figures to the length of the interval.
    #[must_use]
    pub fn of(totals: &Totals, interval: Duration) -> Self {
        let run = seconds(totals.run_ns).min(interval.as_secs_f64());
        let left = interval.as_secs_f64() - run;
        Self {
            threads: 1.0,
            run,
            wait: seconds(totals.wait_ns).min(left),
            executions: totals.executions as f64,
            switches: totals.switches as f64,
        }
    }

    /// Returns a part of the work. `part` is between 0 and 1.
    pub(crate) fn part(&self, part: f64) -> Self {
        Self {
            threads: self.threads * part,
            run: self.run * part,
            wait: self.wait * part,
            executions: self.executions * part,
            switches: self.switches * part,
        }
    }

    /// Returns the rates over an interval.
    #[must_use]
    pub fn activity(&self, interval: Duration) -> Activity {
        let seconds = interval.as_secs_f64();
        if seconds <= 0.0 {
            return Activity::default();
        }
        let per_execution =
            |time: f64| (self.executions > 0.0).then(|| time * 1e6 / self.executions);
        let [r#use, wait] = [self.run, self.wait].map(|time| time / seconds);
        Activity {
            threads: self.threads,
            r#use,
            wait,
            block: (self.threads - r#use - wait).max(0.0),
            executions_per_second: self.executions / seconds,
            switches_per_second: self.switches / seconds,
            cpu_per_execution_us: per_execution(self.run),
            wait_per_execution_us: per_execution(self.wait),
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.threads += other.threads;
        self.run += other.run;
        self.wait += other.wait;
        self.executions += other.executions;
        self.switches += other.switches;
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn figures_are_xenmons() {
        let totals = Totals {
            run_ns: 500_000_000,
            wait_ns: 100_000_000,
            executions: 50,
            switches: 49,
        };
        let interval = Duration::from_secs(2);
        let activity = Work::of(&totals, interval).activity(interval);
        assert_eq!(activity.r#use, 0.25);
        assert_eq!(activity.wait, 0.05);
        assert!((activity.block - 0.70).abs() < 1e-9);
        assert_eq!(activity.executions_per_second, 25.0);
        assert_eq!(activity.cpu_per_execution_us, Some(10_000.0));
        assert_eq!(activity.wait_per_execution_us, Some(2_000.0));
        let idle = Work::of(&Totals::default(), interval).activity(interval);
        assert_eq!((idle.block, idle.cpu_per_execution_us), (1.0, None));
    }

    proptest! {
        #[test]
        fn use_wait_and_block_are_all_of_a_threads_time(
            run_ns: u64, wait_ns: u64, executions: u64, millis in 1_u64..100_000,
        ) {
            let interval = Duration::from_millis(millis);
            let totals = Totals { run_ns, wait_ns, executions, switches: 0 };
            let activity = Work::of(&totals, interval).activity(interval);
            let sum = activity.r#use + activity.wait + activity.block;
            prop_assert!((sum - 1.0).abs() < 1e-9, "{:?}", activity);
            prop_assert!(activity.r#use >= 0.0 && activity.wait >= 0.0);
        }
    }
}
