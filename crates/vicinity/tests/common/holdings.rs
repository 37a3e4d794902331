//! The resources that a daemon holds. It may keep none of a front-end after the front-end has
//! ended.

use std::fs;

use super::{Daemon, until};

/// Allowed growth of resident memory in KiB: the allocator keeps some of the freed memory.
const SLACK_KIB: u64 = 512;

/// The resources that one process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Process {
    descriptors: usize,
    threads: usize,
    mappings: usize,
}

impl Process {
    fn now(id: u32) -> Self {
        let entries = |what| fs::read_dir(format!("/proc/{id}/{what}")).unwrap().count();
        let maps = fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
        Self {
            descriptors: entries("fd"),
            threads: entries("task"),
            // Count only guests' memory, because the number of the allocator's own mappings
            // changes.
            mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
        }
    }
}

/// The resources that a daemon and the data plane of one of its networks hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings([Process; 2]);

impl Holdings {
    pub(crate) fn now(daemon: &Daemon, network: &str) -> Self {
        Self(processes(daemon, network).map(Process::now))
    }

    /// Returns the resources once they no longer change: the daemon closes the connection of a
    /// request a moment after its answer.
    pub(crate) fn settled(daemon: &Daemon, network: &str) -> Self {
        let mut last = Self::default();
        until("the daemon to settle", || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            let now = Self::now(daemon, network);
            std::mem::replace(&mut last, now.clone()) == now
        });
        last
    }

    /// Waits until the daemon holds these resources and no others.
    pub(crate) fn assert_unchanged(&self, daemon: &Daemon, network: &str, when: &str) {
        let mut now = Self::default();
        for _ in 0..500 {
            now = Self::now(daemon, network);
            if now == *self {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{when}: {now:?} instead of {self:?}");
    }
}

fn processes(daemon: &Daemon, network: &str) -> [u32; 2] {
    [daemon.child.id(), daemon.data_plane(network).unwrap()]
}

/// Memory of their own, in KiB, that a daemon and the data plane of one of its networks use.
#[derive(Debug)]
pub(crate) struct Memory([u64; 2]);

impl Memory {
    pub(crate) fn now(daemon: &Daemon, network: &str) -> Self {
        Self(processes(daemon, network).map(|id| {
            let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let line = |name| status.lines().find_map(move |line| line.strip_prefix(name));
            let kib = |name| {
                let words = line(name).unwrap().trim().trim_end_matches(" kB");
                words.parse::<u64>().unwrap()
            };
            kib("RssAnon:") + kib("RssShmem:")
        }))
    }

    /// Asserts that `now` is not more than this, except for the memory that the allocator keeps.
    pub(crate) fn assert_holds(&self, now: &Self) {
        for (before, now) in self.0.iter().zip(now.0) {
            assert!(now <= before + SLACK_KIB, "{now:?} KiB, {before} before");
        }
    }
}
