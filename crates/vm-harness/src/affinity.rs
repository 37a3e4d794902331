//! Keeps threads on CPUs.

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::{Context, Result};

/// Does `work` with this thread on one CPU, then lets it run where it could before. The work is done also
/// where that fails: another thread may wait for it.
///
/// # Errors
/// The thread cannot be kept on the CPU, or not let go.
pub fn on_cpu<T>(cpu: u32, work: impl FnOnce() -> T) -> Result<T> {
    let before = rustix::thread::sched_getaffinity(None);
    let before = before.context(|| "read this thread's CPUs".to_owned())?;
    let pinned = pin(cpu);
    let done = work();
    sched_setaffinity(None, &before).context(|| "set this thread's CPUs".to_owned())?;
    pinned.map(|()| done)
}

/// Keeps this thread on one CPU.
///
/// # Errors
/// The thread may not run on that CPU.
pub fn pin(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).context(|| format!("run on CPU {cpu}"))
}
