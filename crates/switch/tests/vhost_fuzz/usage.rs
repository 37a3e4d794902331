//! The resources that the process uses.

use std::fs;

/// The resident set may grow by this much, because the allocator keeps freed memory.
const SLACK_KIB: u64 = 32 * 1024;

/// The flag of a thread that ends (`PF_EXITING` in Linux' `include/linux/sched.h`).
const EXITING: u64 = 4;

/// Returns the number of threads that do not end. A thread that was joined may still be in the list: the kernel wakes the thread that
/// joins before it removes the other one.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    // The file is gone if the thread has ended meanwhile.
    let files = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    // proc_pid_stat(5): the flags are the seventh field behind the name.
    let flags = files.filter_map(|text| {
        let (_, rest) = text.rsplit_once(')')?;
        rest.split_whitespace().nth(6)?.parse::<u64>().ok()
    });
    flags.filter(|flags| flags & EXITING == 0).count()
}

#[derive(Debug)]
pub(crate) struct Usage {
    descriptors: usize,
    threads: usize,
    /// Mappings of guest memory.
    mappings: usize,
    resident_kib: u64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let entries = |folder| fs::read_dir(folder).unwrap().count();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.unwrap().trim().trim_end_matches(" kB");
        Self {
            descriptors: entries("/proc/self/fd"),
            threads: threads(),
            mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
            resident_kib: resident.parse().unwrap(),
        }
    }

    pub(crate) fn assert_no_more_than(&self, before: &Self) {
        let counts = |usage: &Self| (usage.descriptors, usage.threads, usage.mappings);
        assert_eq!(counts(self), counts(before), "{self:?}, {before:?}");
        let limit = before.resident_kib + SLACK_KIB;
        assert!(self.resident_kib <= limit, "{self:?}, {before:?}");
    }
}
