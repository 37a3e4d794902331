//! Sets the CPUs of threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::journal::Journal;
use super::undo::{Undo, pid, set};
use vm_harness::error::{Context, Error, Result};
use vm_harness::host;

/// Number of CPUs that are read back.
const CPUS: usize = CpuSet::MAX_CPU;

/// Pins a thread to these CPUs, and reads the setting back.
///
/// # Errors
/// The thread has ended, the kernel refuses the set, or the kernel sets other CPUs.
pub fn pin(journal: &mut Journal, thread: u32, cpus: &[usize]) -> Result<()> {
    let what = || format!("pin thread {thread} to CPUs {cpus:?}");
    let pid = Some(pid(thread).context(what)?);
    let started = host::start_time(thread).unwrap_or(0);
    let old = sched_getaffinity(pid).context(what)?;
    journal.note(Undo::Affinity {
        thread,
        started,
        cpus: listed(&old),
    })?;
    sched_setaffinity(pid, &set(cpus)).context(what)?;
    let kept = listed(&sched_getaffinity(pid).context(what)?);
    if kept == cpus {
        return Ok(());
    }
    Err(Error::Host(format!(
        "{}: the kernel keeps {kept:?}",
        what()
    )))
}

fn listed(set: &CpuSet) -> Vec<usize> {
    (0..CPUS).filter(|cpu| set.is_set(*cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_cpus_back() {
        let mut sleep = host::command("sleep");
        sleep.arg("60");
        let child = host::ChildProcess::spawn(sleep).unwrap();
        let thread = child.id();
        let cpus = || listed(&sched_getaffinity(pid(thread).ok()).unwrap());
        let before = cpus();
        let mut journal = Journal::begin().unwrap();
        pin(&mut journal, thread, &before[..1]).unwrap();
        assert_eq!(cpus(), &before[..1]);
        drop(journal);
        assert_eq!(cpus(), before);
        let mut journal = Journal::begin().unwrap();
        assert!(pin(&mut journal, thread, &[CPUS - 1]).is_err());
    }
}
