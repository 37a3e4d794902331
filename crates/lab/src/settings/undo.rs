//! Undoes settings of the host.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use vm_harness::error::{Context, Result};
use vm_harness::host;

/// How to undo a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Undo {
    /// Writes the old value into a file of the kernel.
    Write { path: PathBuf, value: String },
    /// Moves a group's threads to its parent and removes the group.
    RemoveGroup { path: PathBuf },
    /// Moves a process back into its former group, if its start time is unchanged.
    Return {
        process: u32,
        started: u64,
        group: PathBuf,
    },
    /// Restores the CPUs of a thread, if its start time is unchanged.
    Affinity {
        thread: u32,
        started: u64,
        cpus: Vec<usize>,
    },
}

impl Undo {
    pub(super) fn run(&self) -> Result<()> {
        match self {
            Self::Write { path, value } if path.exists() => put(path, value),
            Self::RemoveGroup { path } if path.exists() => remove_group(path),
            Self::Return {
                process,
                started,
                group,
            } if host::start_time(*process) == Some(*started) => {
                put(&group.join("cgroup.procs"), &process.to_string())
            }
            Self::Write { .. } | Self::RemoveGroup { .. } | Self::Return { .. } => Ok(()),
            Self::Affinity {
                thread,
                started,
                cpus,
            } => restore_cpus(*thread, *started, cpus),
        }
    }
}

pub(super) fn put(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).context(|| format!("write {value} into {}", path.display()))
}

/// Moves a group's threads to its parent and removes the group.
fn remove_group(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(path);
    for list in ["cgroup.threads", "tasks"] {
        let threads = fs::read_to_string(path.join(list)).unwrap_or_default();
        for thread in threads.lines() {
            // A thread may have ended, or may not be movable (v2 forbids it at the edge
            // of a threaded subtree); the removal below then succeeds or returns the error.
            let _gone = put(&parent.join(list), thread);
        }
    }
    fs::remove_dir(path).context(|| format!("remove the cgroup {}", path.display()))
}

/// Restores the CPUs of a thread, unless it has ended or another thread has its id.
fn restore_cpus(thread: u32, started: u64, cpus: &[usize]) -> Result<()> {
    if host::start_time(thread) != Some(started) {
        return Ok(());
    }
    match pid(thread).and_then(|pid| sched_setaffinity(Some(pid), &set(cpus))) {
        Err(Errno::SRCH) => Ok(()),
        other => other.context(|| format!("give thread {thread} its CPUs back")),
    }
}

/// Returns the id for the system call. It is never `None`, which would mean the calling thread.
pub(super) fn pid(thread: u32) -> std::result::Result<Pid, Errno> {
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw);
    pid.ok_or(Errno::SRCH)
}

pub(super) fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}
