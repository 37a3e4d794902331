//! Finds the processes of VMs and of Vicinity among all processes.
//!
//! The finder reads a process's command line when it first finds the process. In every [`RESCAN`]th
//! search it reads all command lines again, for two reasons: a process can become QEMU later (`exec`),
//! and a thread gets its name after it starts.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cgroup::{Group, Mounts};
use crate::command_line::{self, Kind};
use crate::proc::{Identity, Proc};
use crate::role;

/// The number of searches after which the finder reads all processes again.
const RESCAN: u32 = 5;

/// A process of a VM or of Vicinity.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) identity: Identity,
    pub(crate) kind: Kind,
    /// The names of its threads, by their ids.
    pub(crate) names: BTreeMap<u32, String>,
    /// The names of its taps.
    pub(crate) taps: Vec<String>,
    pub(crate) group: Option<Group>,
}

/// The finder's state: all processes of the last search.
#[derive(Debug)]
pub(crate) struct Finder {
    proc: Proc,
    mounts: Mounts,
    round: u32,
    /// The processes by their ids; `None` for a process that is neither of a VM nor of Vicinity.
    known: BTreeMap<u32, Option<Process>>,
    /// The kernel threads that work for a VM, with the id of its process.
    kernel: BTreeMap<u32, u32>,
}

impl Finder {
    pub(crate) fn new(root: &Path) -> Self {
        let proc = Proc::new(root);
        let mountinfo = std::fs::read_to_string(root.join("self/mountinfo")).unwrap_or_default();
        Self {
            proc,
            mounts: Mounts::parse(&mountinfo),
            round: 0,
            known: BTreeMap::new(),
            kernel: BTreeMap::new(),
        }
    }

    pub(crate) fn proc(&self) -> &Proc {
        &self.proc
    }

    /// Searches all processes, and updates the state.
    pub(crate) fn scan(&mut self) {
        let anew = self.round % RESCAN == 0;
        self.round = self.round.wrapping_add(1);
        let mut last = std::mem::take(&mut self.known);
        self.kernel.retain(|_, _| !anew);
        for pid in self.proc.processes() {
            let seen = match last.remove(&pid) {
                Some(seen) if !anew => seen,
                _ => self.classify(pid),
            };
            // The kernel may have reused the id for another process.
            let seen = match seen {
                Some(process) if self.proc.identity(pid) != Some(process.identity) => {
                    self.classify(pid)
                }
                seen => seen,
            };
            self.known.insert(pid, seen);
        }
        let known = &self.known;
        self.kernel.retain(|thread, _| known.contains_key(thread));
    }

    /// Returns the processes of VMs and of Vicinity.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (u32, &Process)> {
        let all = self.known.iter();
        all.filter_map(|(pid, process)| Some((*pid, process.as_ref()?)))
    }

    /// Returns the threads of a process of a VM or of Vicinity, including the kernel threads that work
    /// for it.
    pub(crate) fn threads(&mut self, pid: u32) -> Vec<(u32, String)> {
        let Some(Some(process)) = self.known.get_mut(&pid) else {
            return Vec::new();
        };
        let ids = self.proc.threads(pid);
        process.names.retain(|thread, _| ids.contains(thread));
        let mut threads = Vec::new();
        for thread in ids {
            let known = process.names.get(&thread).cloned();
            let name = known.or_else(|| self.proc.thread_name(pid, thread));
            if let Some(name) = name {
                process.names.insert(thread, name.clone());
                threads.push((thread, name));
            }
        }
        let kernel = self.kernel.iter().filter(|(_, owner)| **owner == pid);
        threads.extend(kernel.map(|(thread, owner)| (*thread, format!("vhost-{owner}"))));
        threads
    }

    fn classify(&mut self, pid: u32) -> Option<Process> {
        let command_line = self.proc.command_line(pid)?;
        if command_line.is_empty() {
            // A kernel thread has an empty command line.
            if let Some(owner) = self.proc.name(pid).as_deref().and_then(role::vhost_owner) {
                self.kernel.insert(pid, owner);
            }
            return None;
        }
        let kind = command_line::kind(&command_line)?;
        let group = self.proc.text(pid, "cgroup");
        Some(Process {
            identity: self.proc.identity(pid)?,
            taps: match &kind {
                Kind::Vm(machine) => self.proc.taps(pid).unwrap_or_else(|| machine.taps.clone()),
                _ => Vec::new(),
            },
            kind,
            names: BTreeMap::new(),
            group: group.and_then(|text| self.mounts.group(&text)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Fixture(tempfile::TempDir);

    impl Fixture {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn process(&self, pid: u32, start: u64, cmdline: &str, threads: &[(u32, &str)]) {
            self.remove(pid);
            let folder = self.0.path().join(pid.to_string());
            for (thread, name) in threads {
                let task = folder.join(format!("task/{thread}"));
                fs::create_dir_all(&task).unwrap();
                fs::write(task.join("comm"), format!("{name}\n")).unwrap();
            }
            let name = threads[0].1;
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            fs::write(folder.join("cmdline"), cmdline).unwrap();
            let stat = format!("{pid} ({name}) S 1{} {start} 0 0", " 0".repeat(17));
            fs::write(folder.join("stat"), stat).unwrap();
        }

        fn remove(&self, pid: u32) {
            drop(fs::remove_dir_all(self.0.path().join(pid.to_string())));
        }
    }

    fn vms(finder: &Finder) -> Vec<u32> {
        finder.processes().map(|(pid, _)| pid).collect()
    }

    const QEMU: &str = "/usr/bin/qemu-system-x86_64\0-name\0guest=web,debug-threads=on\0";

    #[test]
    fn a_vm_is_found_with_its_threads_and_both_kinds_of_vhost_workers() {
        let host = Fixture::new();
        let threads = [(10, "qemu-system-x86"), (11, "CPU 0/KVM"), (12, "vhost-10")];
        host.process(10, 5, QEMU, &threads);
        host.process(20, 6, "", &[(20, "vhost-10")]);
        host.process(21, 6, "", &[(21, "vhost-99")]);
        host.process(30, 7, "bash\0", &[(30, "bash")]);
        let mut finder = Finder::new(host.0.path());
        finder.scan();
        assert_eq!(vms(&finder), [10]);
        let mut found = finder.threads(10);
        found.sort();
        let expected = [
            (10, "qemu-system-x86"),
            (11, "CPU 0/KVM"),
            (12, "vhost-10"),
            (20, "vhost-10"),
        ];
        assert_eq!(found, expected.map(|(id, name)| (id, name.to_owned())));
    }

    #[test]
    fn a_recycled_process_id_is_noticed_at_once() {
        let host = Fixture::new();
        host.process(10, 5, QEMU, &[(10, "qemu-system-x86")]);
        let mut finder = Finder::new(host.0.path());
        finder.scan();
        host.process(10, 6, "bash\0", &[(10, "bash")]);
        finder.scan();
        assert!(vms(&finder).is_empty());
    }

    #[test]
    fn a_process_that_becomes_qemu_later_is_found() {
        let host = Fixture::new();
        host.process(10, 5, "libvirtd\0", &[(10, "libvirtd")]);
        let mut finder = Finder::new(host.0.path());
        finder.scan();
        host.process(10, 5, QEMU, &[(10, "qemu-system-x86")]);
        for _ in 0..RESCAN {
            finder.scan();
        }
        assert_eq!(vms(&finder), [10]);
    }

    #[test]
    fn a_vm_that_vanishes_is_forgotten() {
        let host = Fixture::new();
        host.process(10, 5, QEMU, &[(10, "qemu-system-x86")]);
        let mut finder = Finder::new(host.0.path());
        finder.scan();
        host.remove(10);
        assert!(finder.threads(10).is_empty(), "between two looks");
        finder.scan();
        assert!(vms(&finder).is_empty());
    }
}
