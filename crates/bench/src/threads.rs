//! Scheduler statistics of the threads of a process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use vm_harness::error::{Context, Error, Result};
use vm_harness::host;

use super::parse::number_after;

/// Running totals of all threads of a process and its children. The totals of a thread that ends are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// How often threads went to sleep. A wake-up follows each sleep.
    pub(super) sleeps: u64,
    /// Time on a CPU.
    pub(super) ran: Duration,
    /// Time that a runnable thread waited for a CPU.
    pub(super) waited: Duration,
}

impl Totals {
    /// Returns the current totals of a process and its children.
    pub(super) fn of(process: u32) -> Result<Self> {
        let of_one = |process| read(Path::new(&format!("/proc/{process}/task")));
        let mut sum = of_one(process)?;
        for child in host::family(process).into_iter().skip(1) {
            // A process that ended after its id was read is skipped.
            let one = of_one(child).unwrap_or_default();
            sum.sleeps += one.sleeps;
            sum.ran += one.ran;
            sum.waited += one.waited;
        }
        Ok(sum)
    }

    /// Returns the difference to an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

/// Sums over the threads in a `/proc/PID/task` folder.
fn read(tasks: &Path) -> Result<Totals> {
    let reading = || format!("read {}", tasks.display());
    let mut sum = Totals::default();
    for thread in fs::read_dir(tasks).context(reading)? {
        let thread = thread.context(reading)?.path();
        let files = ["status", "schedstat"].map(|name| fs::read_to_string(thread.join(name)));
        let [Ok(status), Ok(schedule)] = files else {
            // The thread ended after its name was listed.
            continue;
        };
        let one = parse(&status, &schedule)
            .ok_or_else(|| Error::unreadable("a thread's counters", &(status + &schedule)))?;
        sum.sleeps += one.sleeps;
        sum.ran += one.ran;
        sum.waited += one.waited;
    }
    Ok(sum)
}

fn parse(status: &str, schedule: &str) -> Option<Totals> {
    let counted = observe::counters::Totals::parse(schedule, status)?;
    Some(Totals {
        sleeps: number_after(status, "voluntary_ctxt_switches:")?,
        ran: Duration::from_nanos(counted.run_ns),
        waited: Duration::from_nanos(counted.wait_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed() {
        let folder = tempfile::tempdir().unwrap();
        for (thread, sleeps, ran) in [("10", 5, 1_000), ("11", 7, 2_500)] {
            let folder = folder.path().join(thread);
            fs::create_dir(&folder).unwrap();
            let status = format!(
                "Name:\tvicinity\nThreads:\t2\nvoluntary_ctxt_switches:\t{sleeps}\n\
                 nonvoluntary_ctxt_switches:\t99\n"
            );
            fs::write(folder.join("status"), status).unwrap();
            fs::write(folder.join("schedstat"), format!("{ran} 17 3\n")).unwrap();
        }
        let sum = read(folder.path()).unwrap();
        assert_eq!(sum.sleeps, 12);
        assert_eq!(sum.ran, Duration::from_nanos(3_500));
        assert_eq!(sum.waited, Duration::from_nanos(34));
    }

    #[test]
    fn this_process_has_run() {
        assert!(Totals::of(std::process::id()).unwrap().ran > Duration::ZERO);
    }

    #[test]
    fn counters_that_cannot_be_read_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let thread = folder.path().join("10");
        fs::create_dir(&thread).unwrap();
        fs::write(thread.join("status"), "Name:\tvicinity\n").unwrap();
        fs::write(thread.join("schedstat"), "0 0 0\n").unwrap();
        assert!(read(folder.path()).is_err());
    }
}
