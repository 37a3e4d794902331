//! The resources that the process uses.

use std::fs;

/// The resident set may grow by this much, because the allocator keeps freed memory.
const SLACK_KIB: u64 = 32 * 1024;

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
            threads: entries("/proc/self/task"),
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
