//! What a daemon holds: nothing of a front-end may stay when it is gone.

use std::fs;

use super::{Daemon, until};

/// Resident memory may grow by so much: the allocator keeps some of what was freed.
const SLACK_KIB: u64 = 512;

/// What one process holds.
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
            // Guests' memory. The allocator's own mappings come and go.
            mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
        }
    }
}

/// What a daemon and the data plane of one of its networks hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings([Process; 2]);

impl Holdings {
    pub(crate) fn now(daemon: &Daemon, network: &str) -> Self {
        Self(processes(daemon, network).map(Process::now))
    }

    /// What it is once it no longer changes: a moment after an answer has come, the connection of
    /// the question is closed.
    pub(crate) fn settled(daemon: &Daemon, network: &str) -> Self {
        let mut last = Self::default();
        until("the daemon to settle", || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            let now = Self::now(daemon, network);
            std::mem::replace(&mut last, now.clone()) == now
        });
        last
    }

    /// The daemon comes to hold this much and no more.
    pub(crate) fn again(&self, daemon: &Daemon, network: &str, when: &str) {
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

    /// It is not less than `now`, but for what the allocator keeps.
    pub(crate) fn assert_holds(&self, now: &Self) {
        for (before, now) in self.0.iter().zip(now.0) {
            assert!(now <= before + SLACK_KIB, "{now:?} KiB, {before} before");
        }
    }
}
