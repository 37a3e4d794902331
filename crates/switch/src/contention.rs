//! Detects whether CPUs are contended.
//!
//! The scheduler counts how long a thread ran, and how long it was runnable and waited for a CPU
//! (`schedstat`). On a host with enough CPUs, the wait is the latency of wake-ups. When a worker waits for
//! longer than it runs, guests use every CPU, and each wake-up and each call takes a CPU from a guest.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::clock;

/// Time between two samples: long enough for the differences to be meaningful.
const WINDOW: Duration = Duration::from_millis(100);

/// The result, and the last sample.
#[derive(Debug)]
pub(crate) struct Contention {
    /// The thread's `schedstat`; `None` where the kernel does not provide it.
    schedstat: Option<File>,
    sampled: Instant,
    last: SchedStat,
    contended: bool,
}

/// Nanoseconds that a thread has run and waited since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SchedStat {
    ran: u64,
    waited: u64,
}

impl SchedStat {
    /// Parses the text of `schedstat`: ran, waited, time slices.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let mut next = || fields.next()?.parse().ok();
        Some(Self {
            ran: next()?,
            waited: next()?,
        })
    }

    /// Returns whether the thread waited for longer than it ran, since the sample `before`.
    fn waited_longer_since(self, before: Self) -> bool {
        self.waited.saturating_sub(before.waited) > self.ran.saturating_sub(before.ran)
    }
}

impl Contention {
    /// Creates the detector of the calling thread; `processes` is an open descriptor of `/proc`.
    pub(crate) fn of_this_thread(processes: Option<OwnedFd>) -> Self {
        let schedstat = processes.and_then(|processes| {
            let path = "thread-self/schedstat";
            rustix::fs::openat(processes, path, OFlags::CLOEXEC, Mode::empty()).ok()
        });
        Self {
            schedstat: schedstat.map(File::from),
            sampled: clock::now(),
            last: SchedStat::default(),
            contended: false,
        }
    }

    /// Returns whether CPUs were contended at the last sample.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended
    }

    /// Takes a sample, if one is due.
    #[inline]
    pub(crate) fn update(&mut self, now: Instant) {
        if now.duration_since(self.sampled) >= WINDOW {
            self.sampled = now;
            self.sample();
        }
    }

    fn sample(&mut self) {
        let mut text = [0; 64];
        // syscalls: pread64
        let read = |file: &File| file.read_at(&mut text, 0).ok();
        let length = self.schedstat.as_ref().and_then(read).unwrap_or(0);
        let now = SchedStat::parse(text.get(..length).unwrap_or_default()).unwrap_or_default();
        self.contended = now.waited_longer_since(self.last);
        self.last = now;
    }

    #[cfg(test)]
    pub(crate) fn always() -> Self {
        Self {
            schedstat: None,
            // No sample is ever due.
            sampled: Instant::now() + Duration::from_secs(1_000_000),
            last: SchedStat::default(),
            contended: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_contended_when_the_thread_waited_for_longer_than_it_ran() {
        let stat = |ran, waited| SchedStat { ran, waited };
        let before = SchedStat::parse(b"5000 100 7\n").unwrap();
        assert_eq!(before, stat(5000, 100));
        assert!(stat(6000, 1101).waited_longer_since(before));
        assert!(!stat(6000, 1100).waited_longer_since(before));
        assert!(!before.waited_longer_since(before));
    }

    #[test]
    fn without_schedstat_cpus_are_never_contended() {
        assert_eq!(SchedStat::parse(b""), None);
        let mut contention = Contention::of_this_thread(None);
        contention.sample();
        assert!(!contention.is_contended());
    }

    #[test]
    fn the_kernel_provides_schedstat() {
        let processes = File::open("/proc").unwrap();
        let mut contention = Contention::of_this_thread(Some(processes.into()));
        // The kernel updates the figures at a context switch.
        std::thread::sleep(Duration::from_millis(1));
        contention.sample();
        assert!(contention.last.ran > 0);
    }
}
