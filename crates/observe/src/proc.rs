//! Reads `/proc`. A process or thread can end between two reads, and its files disappear with it. Then
//! functions return `None`, not an error.

use std::fs;
use std::path::{Path, PathBuf};

use crate::counters::Totals;
use crate::role;
use crate::text::number_after;

/// A `/proc`, or a folder that looks like one.
#[derive(Clone, Debug)]
pub struct Proc(PathBuf);

/// What identifies a process, from `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) parent: u32,
    /// The start time in ticks since boot. It distinguishes the process from a later one with the same
    /// id.
    pub(crate) start: u64,
}

impl Default for Proc {
    /// Returns the host's `/proc`.
    fn default() -> Self {
        Self::new(Path::new("/proc"))
    }
}

impl Proc {
    pub(crate) fn new(root: &Path) -> Self {
        Self(root.to_owned())
    }

    /// Returns the ids of all processes.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        numbers(&self.0)
    }

    /// Returns the ids of the threads of a process.
    #[must_use]
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        numbers(&self.of(pid).join("task"))
    }

    /// Returns the ids of the threads of a process and of its descendants.
    #[must_use]
    pub fn threads_below(&self, pid: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut processes = vec![pid];
        while let Some(process) = processes.pop() {
            let threads = self.threads(process);
            for thread in &threads {
                let children = self.thread(process, *thread).join("children");
                let children = fs::read_to_string(children).unwrap_or_default();
                processes.extend(
                    children
                        .split_whitespace()
                        .filter_map(|id| id.parse::<u32>().ok()),
                );
            }
            found.extend(threads);
        }
        found
    }

    /// Returns the ids of the kernel threads that transfer a process's frames. Before Linux 6.4 the
    /// vhost workers are not threads of the process itself.
    #[must_use]
    pub fn vhost_workers(&self, pid: u32) -> Vec<u32> {
        let mut ids = self.processes();
        ids.retain(|id| self.name(*id).as_deref().and_then(role::vhost_owner) == Some(pid));
        ids
    }

    /// Returns a process's command line: words that end in NUL.
    #[must_use]
    pub fn command_line(&self, pid: u32) -> Option<Vec<u8>> {
        fs::read(self.of(pid).join("cmdline")).ok()
    }

    /// Returns a process's name, which is the name of its first thread.
    pub(crate) fn name(&self, pid: u32) -> Option<String> {
        line(&self.of(pid).join("comm"))
    }

    pub(crate) fn thread_name(&self, pid: u32, thread: u32) -> Option<String> {
        line(&self.thread(pid, thread).join("comm"))
    }

    pub(crate) fn identity(&self, pid: u32) -> Option<Identity> {
        parse_stat(&self.text(pid, "stat")?)
    }

    /// Returns the scheduler's counters of a thread of a process. The thread's id is also valid as
    /// `pid`.
    #[must_use]
    pub fn totals(&self, pid: u32, thread: u32) -> Option<Totals> {
        let folder = self.thread(pid, thread);
        let schedstat = fs::read_to_string(folder.join("schedstat")).ok()?;
        let status = fs::read_to_string(folder.join("status")).ok()?;
        Totals::parse(&schedstat, &status)
    }

    /// Returns the proportional set size in bytes. The kernel walks the process's page tables to
    /// compute it. Only root and the owner of the process may read it.
    pub(crate) fn pss(&self, pid: u32) -> Option<u64> {
        let kib: u64 = number_after(&self.text(pid, "smaps_rollup")?, "Pss:")?;
        kib.checked_mul(1024)
    }

    /// Returns the resident set size in bytes.
    pub(crate) fn rss(&self, pid: u32) -> Option<u64> {
        let kib: u64 = number_after(&self.text(pid, "status")?, "VmRSS:")?;
        kib.checked_mul(1024)
    }

    /// Returns the text of a file of a process.
    pub(crate) fn text(&self, pid: u32, file: &str) -> Option<String> {
        fs::read_to_string(self.of(pid).join(file)).ok()
    }

    /// Returns the names of the taps that a process has open. The `fdinfo` of a tap's descriptor
    /// contains its name (`iff:`). Returns `None` if this program may not read the process's
    /// descriptors.
    pub(crate) fn taps(&self, pid: u32) -> Option<Vec<String>> {
        let folder = self.of(pid);
        let mut taps = Vec::new();
        for entry in fs::read_dir(folder.join("fd")).ok()?.flatten() {
            let Ok(target) = fs::read_link(entry.path()) else {
                continue;
            };
            if target != Path::new("/dev/net/tun") {
                continue;
            }
            let info = folder.join("fdinfo").join(entry.file_name());
            let info = fs::read_to_string(info).unwrap_or_default();
            taps.extend(number_after::<String>(&info, "iff:"));
        }
        taps.sort();
        taps.dedup();
        Some(taps)
    }

    fn of(&self, pid: u32) -> PathBuf {
        self.0.join(pid.to_string())
    }

    fn thread(&self, pid: u32, thread: u32) -> PathBuf {
        self.0.join(format!("{pid}/task/{thread}"))
    }
}

/// Returns the names in a folder that are numbers.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn line(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim_end().to_owned())
}

/// Parses fields 4 and 22 of `proc_pid_stat(5)`. Field 2, the name, is in parentheses and can contain
/// any characters, including parentheses.
fn parse_stat(text: &str) -> Option<Identity> {
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace().skip(1);
    Some(Identity {
        parent: fields.next()?.parse().ok()?,
        start: fields.nth(17)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_whatever_its_name() {
        let text = "7 (a) b) (c) S 42 7 7 0 -1 4194560 1 0 0 0 10 5 0 0 20 0 3 0 998877 1000 20 1";
        let identity = Identity {
            parent: 42,
            start: 998_877,
        };
        assert_eq!(parse_stat(text), Some(identity));
        assert_eq!(parse_stat("7 (a) S 42 7"), None);
    }

    #[test]
    fn this_process_is_there() {
        let proc = Proc::new(Path::new("/proc"));
        let pid = std::process::id();
        assert!(proc.processes().contains(&pid));
        assert!(proc.threads(pid).contains(&pid));
        assert!(proc.totals(pid, pid).is_some());
        assert!(proc.rss(pid).unwrap() > 0);
        assert!(proc.pss(pid).unwrap() > 0);
        assert_eq!(proc.taps(pid), Some(Vec::new()));
        let parent = proc.identity(pid).unwrap().parent;
        assert_eq!(parent, std::os::unix::process::parent_id());
    }

    #[test]
    fn threads_of_descendants_are_found_from_any_ancestor() {
        let host = tempfile::tempdir().unwrap();
        let thread = |pid: u32, thread: u32, children: &str, name: &str| {
            let task = host.path().join(format!("{pid}/task/{thread}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("children"), children).unwrap();
            fs::write(host.path().join(format!("{pid}/comm")), name).unwrap();
        };
        thread(10, 10, "20 ", "vicinity");
        thread(10, 11, "30 ", "vicinity");
        thread(20, 20, "", "vicinity");
        thread(30, 30, "40", "sh");
        thread(40, 41, "", "sh");
        thread(50, 50, "", "vhost-10\n");
        thread(60, 60, "", "vhost-11\n");
        let proc = Proc::new(host.path());
        let mut found = proc.threads_below(10);
        found.sort_unstable();
        assert_eq!(found, [10, 11, 20, 30, 41]);
        assert_eq!(proc.vhost_workers(10), [50]);
    }

    #[test]
    fn what_is_gone_is_none() {
        let proc = Proc::new(Path::new("/nonexistent"));
        assert!(proc.processes().is_empty());
        assert_eq!(proc.identity(1), None);
        assert_eq!(proc.totals(1, 1), None);
        assert_eq!(proc.taps(1), None);
    }
}
