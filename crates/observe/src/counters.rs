//! Parses the scheduler's counters of a thread.
//!
//! `/proc/PID/task/TID/schedstat` (the kernel's `sched-stats.rst`) contains three counters: nanoseconds
//! on a CPU, nanoseconds in which the thread was runnable but waited for a CPU, and how often the
//! kernel put it on a CPU. The kernel increases the second counter when the wait ends, so a long wait
//! counts in the interval in which it ended. The number of context switches is in `status`
//! (`proc_pid_status(5)`).

use crate::text::number_after;

/// Total counts of a thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Nanoseconds on a CPU.
    pub run_ns: u64,
    /// Nanoseconds in which the thread was runnable, but not running.
    pub wait_ns: u64,
    /// How often the kernel put the thread on a CPU.
    pub executions: u64,
    /// How often the thread left a CPU, to sleep or because another thread ran.
    pub switches: u64,
}

impl Totals {
    /// Parses the texts of `schedstat` and `status`. Returns `None` if either text is malformed.
    #[must_use]
    pub fn parse(schedstat: &str, status: &str) -> Option<Self> {
        let mut fields = schedstat.split_whitespace().map(str::parse);
        let mut field = || fields.next()?.ok();
        let slept: u64 = number_after(status, "voluntary_ctxt_switches:")?;
        let ousted: u64 = number_after(status, "nonvoluntary_ctxt_switches:")?;
        Some(Self {
            run_ns: field()?,
            wait_ns: field()?,
            executions: field()?,
            switches: slept.saturating_add(ousted),
        })
    }

    /// Returns the difference to an earlier reading of the same thread id. If a total decreased, the
    /// kernel has reused the id for a new thread, so the new totals are the difference.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = || {
            Some(Self {
                run_ns: self.run_ns.checked_sub(earlier.run_ns)?,
                wait_ns: self.wait_ns.checked_sub(earlier.wait_ns)?,
                executions: self.executions.checked_sub(earlier.executions)?,
                switches: self.switches.checked_sub(earlier.switches)?,
            })
        };
        difference().unwrap_or(*self)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::text::changed;

    const STATUS: &str = "Name:\tCPU 0/KVM\nState:\tS (sleeping)\nThreads:\t9\n\
                          voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";

    #[test]
    fn both_files_are_read() {
        let totals = Totals {
            run_ns: 53_739_803,
            wait_ns: 260_966_449,
            executions: 75,
            switches: 10,
        };
        let schedstat = "53739803 260966449 75\n";
        assert_eq!(Totals::parse(schedstat, STATUS), Some(totals));
        assert_eq!(Totals::parse("53739803 260966449\n", STATUS), None);
        assert_eq!(Totals::parse(schedstat, "Name:\tx\n"), None);
    }

    #[test]
    fn a_recycled_thread_id_gives_no_negative_rate() {
        let old = Totals {
            run_ns: 500,
            wait_ns: 70,
            executions: 9,
            switches: 9,
        };
        let new = Totals { run_ns: 20, ..old };
        assert_eq!(new.since(&old), new);
        assert_eq!(old.since(&old), Totals::default());
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let reached = Cell::new(0);
        let schedstat = "53739803 260966449 75\n";
        proptest!(|(schedstat in changed(schedstat), status in changed(STATUS))| {
            if let Some(totals) = Totals::parse(&schedstat, &status) {
                reached.set(reached.get() + 1);
                prop_assert_eq!(totals.since(&totals), Totals::default());
            }
        });
        assert!(reached.get() > 20, "{} texts were read", reached.get());
    }

    proptest! {
        #[test]
        fn lines_round_trip(run_ns: u64, wait_ns: u64, executions: u64, slept: u32) {
            let status = format!(
                "voluntary_ctxt_switches:\t{slept}\nnonvoluntary_ctxt_switches:\t2\n"
            );
            let totals = Totals { run_ns, wait_ns, executions, switches: u64::from(slept) + 2 };
            let schedstat = format!("{run_ns} {wait_ns} {executions}\n");
            prop_assert_eq!(Totals::parse(&schedstat, &status), Some(totals));
        }
    }
}
