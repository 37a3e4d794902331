//! Pins threads to CPUs.

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::{Context, Result};

/// Runs `work` with the calling thread pinned to one CPU, then restores the thread's CPUs. `work` also runs if the
/// pinning fails, because another thread may wait for its effect.
///
/// # Errors
/// The kernel refuses to pin the thread, or to restore its CPUs.
pub fn on_cpu<T>(cpu: u32, work: impl FnOnce() -> T) -> Result<T> {
    let before = rustix::thread::sched_getaffinity(None);
    let before = before.context(|| "read this thread's CPUs".to_owned())?;
    let pinned = pin(cpu);
    let done = work();
    sched_setaffinity(None, &before).context(|| "set this thread's CPUs".to_owned())?;
    pinned.map(|()| done)
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// The thread may not run on that CPU.
pub fn pin(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).context(|| format!("run on CPU {cpu}"))
}
